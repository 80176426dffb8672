//! Reads the vectors of a safetensors file: 8 bytes header length, JSON header, values.

use std::collections::HashMap;

use serde::Deserialize;
use toolcrib_core::error::{Error, Result};

use super::model::unusable_error;

/// Names of the tensor with the vectors, by which tool wrote the file. Otherwise the largest matrix is taken.
const VECTOR_NAMES: [&str; 4] = ["embeddings", "embedding.weight", "embeddings.weight", "vectors"];
/// Name of the optional tensor that maps pieces to vectors.
const MAPPING_NAME: &str = "mapping";
/// Maximum number of dimensions; models with more are not static embeddings.
const MAX_DIMENSIONS: usize = 4096;

/// Maximum absolute value in a vector; usual ones are below 100.
const MAX_VALUE: f32 = 1e9;

/// The vectors of a model.
#[derive(Debug)]
pub(super) struct Vectors {
    /// Row-major matrix with `dimensions` columns.
    pub(super) values: Vec<f32>,
    pub(super) dimensions: usize,
    /// Row of each piece, if it is not the number of the piece.
    pub(super) mapping: Option<Vec<u32>>,
}

/// Entry of a tensor in the header.
#[derive(Debug, Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Vectors {
    /// Parses the bytes of a file; `CONFIG_INVALID` if it has no matrix of a known data type.
    pub(super) fn parse(bytes: &[u8]) -> Result<Vectors> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(truncated_error)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| truncated_error())?;
        let header = rest.get(..length).ok_or_else(truncated_error)?;
        let data = &rest[length..];
        let mut header: HashMap<String, serde_json::Value> = serde_json::from_slice(header).map_err(malformed_error)?;
        header.remove("__metadata__");
        let mut tensors: HashMap<String, TensorHeader> = HashMap::new();
        for (name, value) in header {
            tensors.insert(name, serde_json::from_value(value).map_err(malformed_error)?);
        }
        let named = VECTOR_NAMES.iter().find_map(|name| tensors.get(*name));
        let matrices = tensors.iter().filter(|(_, tensor)| tensor.shape.len() == 2);
        // The name decides between matrices of the same size, so that the choice does not depend on a hash map.
        let size = |tensor: &TensorHeader| tensor.data_offsets[1].saturating_sub(tensor.data_offsets[0]);
        let largest = matrices.max_by_key(|(name, tensor)| (size(tensor), std::cmp::Reverse(*name)));
        let matrix = named.or(largest.map(|(_, tensor)| tensor));
        let matrix = matrix.ok_or_else(|| unusable_error("`model.safetensors` has no matrix of vectors"))?;
        let values = read_values(matrix, data)?;
        let dimensions = match matrix.shape[..] {
            [rows, dimensions]
                if (1..=MAX_DIMENSIONS).contains(&dimensions) && rows.checked_mul(dimensions) == Some(values.len()) =>
            {
                dimensions
            }
            _ => return Err(unusable_error("the shape of its tensor does not match its values")),
        };
        if values.iter().all(|value| *value == 0.0) {
            return Err(unusable_error("its vectors are all zero or not finite"));
        }
        let mapping = tensors.get(MAPPING_NAME).map(|tensor| read_mapping(tensor, data)).transpose()?;
        Ok(Vectors { values, dimensions, mapping })
    }

    /// Number of vectors.
    pub(super) fn rows(&self) -> usize {
        self.values.len() / self.dimensions
    }
}

/// Decodes the values of a tensor. Quantised values are not scaled: only directions are compared.
fn read_values(tensor: &TensorHeader, data: &[u8]) -> Result<Vec<f32>> {
    let bytes = tensor_bytes(tensor, data)?;
    Ok(match tensor.dtype.as_str() {
        "F32" => chunks(bytes).map(f32::from_le_bytes).map(bounded_or_zero).collect(),
        "F64" => chunks(bytes).map(|bytes| bounded_or_zero(f64::from_le_bytes(bytes) as f32)).collect(),
        "F16" => chunks(bytes).map(|bytes| decode_half(u16::from_le_bytes(bytes))).collect(),
        "BF16" => {
            let widen = |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16);
            chunks(bytes).map(widen).map(bounded_or_zero).collect()
        }
        "I8" => bytes.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
        other => {
            let reason = format!("its values are `{other}`; `F64`, `F32`, `F16`, `BF16` and `I8` are supported");
            return Err(unusable_error(&reason));
        }
    })
}

/// Decodes the rows of a mapping; a row that is no index counts as missing.
fn read_mapping(tensor: &TensorHeader, data: &[u8]) -> Result<Vec<u32>> {
    let bytes = tensor_bytes(tensor, data)?;
    match tensor.dtype.as_str() {
        "I64" | "U64" => {
            Ok(chunks(bytes).map(|bytes| u32::try_from(u64::from_le_bytes(bytes)).unwrap_or(u32::MAX)).collect())
        }
        "I32" | "U32" => Ok(chunks(bytes).map(u32::from_le_bytes).collect()),
        other => Err(unusable_error(&format!("its tensor `{MAPPING_NAME}` has values `{other}`"))),
    }
}

/// Bytes of a tensor; offsets are relative to the end of the header.
fn tensor_bytes<'a>(tensor: &TensorHeader, data: &'a [u8]) -> Result<&'a [u8]> {
    let [start, end] = tensor.data_offsets;
    data.get(start..end).ok_or_else(truncated_error)
}

fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Decodes an IEEE 754 half-precision float. Infinity and NaN become 0.
fn decode_half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff) / 1024.0;
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-14),
        31 => 0.0,
        _ => sign * (1.0 + fraction) * 2.0_f32.powi(exponent - 15),
    }
}

/// Returns 0 for values that are not finite, or so large that sums of their products would not be.
fn bounded_or_zero(value: f32) -> f32 {
    if value.abs() <= MAX_VALUE { value } else { 0.0 }
}

fn malformed_error(error: serde_json::Error) -> Error {
    unusable_error(&format!("the header of `model.safetensors` is malformed: {error}"))
}

fn truncated_error() -> Error {
    unusable_error("`model.safetensors` is truncated")
}

#[cfg(test)]
mod tests {
    use toolcrib_core::error::Code;

    use super::*;

    fn file(header: &str, values: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), values].concat()
    }

    fn check(dtype: &str, values: &[u8], expected: [f32; 4]) {
        let header = format!(
            r#"{{"__metadata__":{{}},"other":{{"dtype":"I64","shape":[1],"data_offsets":[0,1]}},
            "word_vectors":{{"dtype":"{dtype}","shape":[2,2],"data_offsets":[0,{}]}}}}"#,
            values.len()
        );
        let vectors = Vectors::parse(&file(&header, values)).unwrap();
        assert_eq!((vectors.values, vectors.dimensions), (expected.to_vec(), 2), "{dtype}");
    }

    #[test]
    fn values_of_every_type_are_decoded() {
        let expected = [1.0, -2.0, 0.5, 0.0];
        check("F32", &expected.map(f32::to_le_bytes).concat(), expected);
        check("F64", &expected.map(|value| f64::from(value).to_le_bytes()).concat(), expected);
        check("F16", &[0x3c00_u16, 0xc000, 0x3800, 0x7c00].map(u16::to_le_bytes).concat(), expected);
        check("BF16", &[0x3f80_u16, 0xc000, 0x3f00, 0x7f80].map(u16::to_le_bytes).concat(), expected);
        check("I8", &[1, 254, 127, 128], [1.0, -2.0, 127.0, -128.0]);
        assert_eq!(decode_half(0x7bff), 65504.0);
    }

    #[test]
    fn the_largest_of_several_matrices_has_the_vectors() {
        let header = r#"{"words":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]},
            "projection":{"dtype":"I8","shape":[1,2],"data_offsets":[4,6]}}"#;
        let vectors = Vectors::parse(&file(header, &[1, 2, 3, 4, 5, 6])).unwrap();
        assert_eq!(vectors.values, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn pieces_may_be_mapped_to_rows() {
        let header = r#"{"mapping":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},
            "embeddings":{"dtype":"I8","shape":[1,2],"data_offsets":[16,18]}}"#;
        let bytes = [&0_u64.to_le_bytes()[..], &u64::MAX.to_le_bytes(), &[1, 2]].concat();
        assert_eq!(Vectors::parse(&file(header, &bytes)).unwrap().mapping, Some(vec![0, u32::MAX]));
    }

    #[test]
    fn damaged_files_are_rejected() {
        let header = |dtype: &str, shape: &str, end: usize| {
            format!(r#"{{"embeddings":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{end}]}}}}"#)
        };
        for bytes in [
            vec![],
            vec![255; 20],
            file(&header("I4", "[2,2]", 4), &[0; 4]),
            file(&header("I8", "[2,3]", 4), &[0; 4]),
            file(&header("I8", "[2,0]", 0), &[]),
            file(&header("I8", "[2,2]", 9), &[0; 4]),
            file("{}", &[]),
            file(r#"{"embeddings":1}"#, &[]),
            file(&header("F32", "[2,2]", 16), &[f32::NAN.to_le_bytes(); 4].concat()),
            file(&header("F32", "[2,2]", 16), &[f32::MAX.to_le_bytes(); 4].concat()),
        ] {
            assert_eq!(Vectors::parse(&bytes).unwrap_err().code, Code::ConfigInvalid);
        }
    }
}
