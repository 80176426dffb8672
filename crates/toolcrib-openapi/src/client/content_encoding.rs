//! Decodes the content encodings of a response: `gzip` and `deflate`, alone or one after the other.
//!
//! A few kilobytes can expand to gigabytes. So the output of each encoding is bounded, and decoding stops at the bound
//! instead of reading on.

use std::borrow::Cow;
use std::io::{self, Read};

use flate2::bufread::{DeflateDecoder, GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Value of `Accept-Encoding`: the encodings that are decoded.
pub(super) const ACCEPTED_ENCODINGS: &str = "gzip, deflate";
/// Encodings of one response. Two happen when a proxy compresses what the server has compressed already.
const MAX_ENCODINGS: usize = 3;

/// First bytes of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Maximum number of members of a gzip stream. Servers send one, and each costs a decoder.
const MAX_GZIP_MEMBERS: usize = 1_000;

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
    let mut bytes = Cow::Borrowed(body);
    // The encoding applied last is removed first. Each stage is bounded: the data between two stages may be larger than
    // the result.
    for (applied, compression) in compressions.iter().enumerate().rev() {
        let decoded = match compression {
            Compression::Gzip => gunzip(&bytes, max_bytes)?,
            Compression::Deflate => inflate(&bytes, max_bytes)?,
        };
        if decoded.is_truncated {
            // Data that is still compressed is of no use.
            let bytes = if applied == 0 { decoded.bytes } else { Vec::new() };
            return Ok(DecodedBody { bytes, is_truncated: true });
        }
        bytes = Cow::Owned(decoded.bytes);
    }
    Ok(DecodedBody { bytes: bytes.into_owned(), is_truncated: false })
}

/// Decodes `gzip`: one member or several. Other data after a member is ignored, as browsers do: some servers append zeros
/// or a line break.
fn gunzip(body: &[u8], max_bytes: usize) -> io::Result<DecodedBody> {
    let mut decoded = DecodedBody { bytes: Vec::new(), is_truncated: false };
    let mut rest = body;
    for _ in 0..MAX_GZIP_MEMBERS {
        let mut member = GzDecoder::new(rest);
        decoded.read_from(&mut member, max_bytes)?;
        rest = member.into_inner();
        if decoded.is_truncated || !rest.starts_with(&GZIP_MAGIC) {
            return Ok(decoded);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Decodes `deflate`, whose format is recognised by the first two bytes.
fn inflate(body: &[u8], max_bytes: usize) -> io::Result<DecodedBody> {
    let mut decoded = DecodedBody { bytes: Vec::new(), is_truncated: false };
    let is_zlib = match body {
        // RFC 1950: the method is 8 (deflate), and both bytes together are a multiple of 31.
        [method, flags, ..] => method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31),
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    if is_zlib {
        decoded.read_from(&mut ZlibDecoder::new(body), max_bytes)?;
        return Ok(decoded);
    }
    let mut decoder = DeflateDecoder::new(body);
    decoded.read_from(&mut decoder, max_bytes)?;
    // The bare stream has neither header nor checksum, so the beginning of a JSON text may pass for a short one.
    if !decoded.is_truncated && !decoder.into_inner().is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(decoded)
}

impl DecodedBody {
    /// Appends the output of a decoder, up to the limit for the whole.
    fn read_from(&mut self, decoder: &mut impl Read, max_bytes: usize) -> io::Result<()> {
        // One byte more than the limit tells a body that fits from one that does not.
        let remaining = max_bytes + 1 - self.bytes.len();
        decoder.take(remaining as u64).read_to_end(&mut self.bytes)?;
        self.is_truncated = self.bytes.len() > max_bytes;
        self.bytes.truncate(max_bytes);
        Ok(())
    }
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
        // Data after gzip is ignored; a bare stream of `deflate` must be the whole body, or any text might pass for one.
        for rest in [b"\0\0\0\0".as_slice(), b"\r\n", b"junk after the end of the stream", &[0x1f]] {
            ok(&[&gzip(&text), rest].concat(), &[Gzip]);
            ok(&[&zlib(&text), rest].concat(), &[Deflate]);
            assert_eq!(failure(&[&raw_deflate(b"x"), rest].concat(), Deflate), io::ErrorKind::InvalidData);
        }
        assert_ne!(
            failure(&[gzip(&text), vec![0x1f, 0x8b, 0, 0, 0, 0, 0, 0, 0, 0]].concat(), Gzip),
            io::ErrorKind::UnexpectedEof
        );
        let json = br#"{"id":1,"name":"a pet with a name","tags":["one","two"]}"#;
        // Incomplete or invalid: that depends on the bytes of the text, as a bare stream has no header.
        assert!(decode(json, &[Deflate], 1000).is_err());
        assert_eq!(failure(&[0x1f], Gzip), io::ErrorKind::UnexpectedEof);
        assert_ne!(failure(b"{}", Gzip), io::ErrorKind::UnexpectedEof);
        assert_ne!(failure(b"plain text, not compressed", Gzip), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_members_of_a_gzip_body_are_limited() {
        let many = |count: usize| gzip(b"").repeat(count);
        assert!(decode(&many(MAX_GZIP_MEMBERS), &[Compression::Gzip], 1000).unwrap().bytes.is_empty());
        let failure = decode(&many(MAX_GZIP_MEMBERS + 1), &[Compression::Gzip], 1000).unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::InvalidData);
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
