//! Decodes the content encodings of a response: `gzip` and `deflate`, alone or one after the other.
//!
//! A few kilobytes can expand to gigabytes. So the output of each encoding is bounded, and decoding stops at the bound
//! instead of reading on.

use std::io::{self, Cursor, Read};

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Value of `Accept-Encoding`: the encodings that are decoded.
pub(super) const ACCEPTED_ENCODINGS: &str = "gzip, deflate";
/// Encodings of one response. Two happen when a proxy compresses what the server has compressed already.
const MAX_ENCODINGS: usize = 3;

/// First bytes of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Encodings of a response body, in the order in which they were applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentEncoding {
    /// The body is as it was sent.
    Identity,
    /// The body can be decoded.
    Compressed(Vec<Compression>),
    /// An encoding that was not requested and cannot be decoded, or too many of them.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    /// In the format of zlib, as HTTP requires, or the bare stream, as some servers send.
    Deflate,
}

/// Decoded body, cut at the limit.
#[derive(Debug)]
pub(super) struct DecodedBody {
    pub(super) bytes: Vec<u8>,
    /// The decoded body is longer than the limit.
    pub(super) is_truncated: bool,
}

impl ContentEncoding {
    pub(super) fn from_headers(headers: &HeaderMap) -> ContentEncoding {
        let mut compressions = Vec::new();
        for value in headers.get_all(CONTENT_ENCODING) {
            for name in value.as_bytes().split(|byte| *byte == b',') {
                match name.trim_ascii().to_ascii_lowercase().as_slice() {
                    b"" | b"identity" => {}
                    b"gzip" | b"x-gzip" => compressions.push(Compression::Gzip),
                    b"deflate" => compressions.push(Compression::Deflate),
                    _ => return ContentEncoding::Unknown,
                }
            }
        }
        match compressions.len() {
            0 => ContentEncoding::Identity,
            1..=MAX_ENCODINGS => ContentEncoding::Compressed(compressions),
            _ => ContentEncoding::Unknown,
        }
    }
}

/// Decodes a body up to `max_bytes`. CPU-bound. Fails with `UnexpectedEof` if the compressed data ends too early, and with
/// another kind if it is invalid.
pub(super) fn decode(body: &[u8], compressions: &[Compression], max_bytes: usize) -> io::Result<DecodedBody> {
    // Plain text that is shorter than a header of gzip would count as incomplete.
    let starts_like_gzip = body.iter().zip(GZIP_MAGIC).all(|(byte, expected)| *byte == expected);
    if compressions.last() == Some(&Compression::Gzip) && !starts_like_gzip {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // One byte more than the limit tells a body that fits from one that does not.
    let read_limit = max_bytes as u64 + 1;
    let mut reader: Box<dyn Read + '_> = Box::new(body);
    // The encoding applied last is removed first. Each stage is bounded: the data between two stages may be larger than
    // the result.
    for compression in compressions.iter().rev() {
        reader = match compression {
            Compression::Gzip => Box::new(MultiGzDecoder::new(reader).take(read_limit)),
            Compression::Deflate => Box::new(inflate(reader)?.take(read_limit)),
        };
    }
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    let is_truncated = bytes.len() > max_bytes;
    bytes.truncate(max_bytes);
    Ok(DecodedBody { bytes, is_truncated })
}

/// Decodes `deflate`, whose format is recognised by the first two bytes.
fn inflate<'a>(mut reader: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut start)?;
    let is_zlib = match start.as_slice() {
        // RFC 1950: the method is 8 (deflate), and both bytes together are a multiple of 31.
        [method, flags] => method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31),
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let whole = Cursor::new(start).chain(reader);
    Ok(if is_zlib { Box::new(ZlibDecoder::new(whole)) } else { Box::new(DeflateDecoder::new(whole)) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression as Level;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(body: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Level::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn raw_deflate(body: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Level::default());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn encodings_are_read_from_all_headers() {
        let check = |values: &[&'static str], expected: ContentEncoding| {
            let headers =
                values.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value))).collect::<HeaderMap>();
            assert_eq!(ContentEncoding::from_headers(&headers), expected, "{values:?}");
        };
        use Compression::{Deflate, Gzip};
        check(&[], ContentEncoding::Identity);
        check(&["identity", " , "], ContentEncoding::Identity);
        check(&["GZip"], ContentEncoding::Compressed(vec![Gzip]));
        check(&["x-gzip, identity"], ContentEncoding::Compressed(vec![Gzip]));
        check(&["deflate", "gzip"], ContentEncoding::Compressed(vec![Deflate, Gzip]));
        check(&["gzip, br"], ContentEncoding::Unknown);
        check(&["gzip,gzip,gzip,gzip"], ContentEncoding::Unknown);
    }

    #[test]
    fn bodies_are_decoded_up_to_the_limit_and_errors_are_told_apart() {
        use Compression::{Deflate, Gzip};
        let text = b"all the words ".repeat(50);
        let ok = |body: &[u8], compressions: &[Compression]| {
            let decoded = decode(body, compressions, text.len()).unwrap();
            assert_eq!((decoded.bytes.as_slice(), decoded.is_truncated), (text.as_slice(), false), "{compressions:?}");
            let cut = decode(body, compressions, text.len() - 1).unwrap();
            assert_eq!((cut.bytes.as_slice(), cut.is_truncated), (&text[..text.len() - 1], true));
        };
        ok(&gzip(&text), &[Gzip]);
        ok(&[gzip(&text[..100]), gzip(&text[100..])].concat(), &[Gzip]);
        ok(&zlib(&text), &[Deflate]);
        ok(&raw_deflate(&text), &[Deflate]);
        ok(&gzip(&gzip(&text)), &[Gzip, Gzip]);
        ok(&gzip(&zlib(&text)), &[Deflate, Gzip]);

        let failure = |body: &[u8], compression| decode(body, &[compression], 1000).unwrap_err().kind();
        // A block of the invalid type 3 at the position of the first block.
        for (mut encoded, compression, first_block) in
            [(gzip(&text), Gzip, 10), (zlib(&text), Deflate, 2), (raw_deflate(&text), Deflate, 0)]
        {
            assert_eq!(failure(&encoded[..encoded.len() - 1], compression), io::ErrorKind::UnexpectedEof);
            encoded[first_block] = 0x07;
            assert_ne!(failure(&encoded, compression), io::ErrorKind::UnexpectedEof, "{compression:?}");
        }
        assert_eq!(failure(&[0x1f], Gzip), io::ErrorKind::UnexpectedEof);
        assert_ne!(failure(b"{}", Gzip), io::ErrorKind::UnexpectedEof);
        assert_ne!(failure(b"plain text, not compressed", Gzip), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&gzip(&vec![0; 20_000_000]));
        let decoded = decode(&bomb, &[Compression::Gzip, Compression::Gzip], 100_000).unwrap();
        assert_eq!(
            (decoded.bytes.len(), decoded.bytes.capacity() < 1_000_000, decoded.is_truncated),
            (100_000, true, true)
        );
    }
}
