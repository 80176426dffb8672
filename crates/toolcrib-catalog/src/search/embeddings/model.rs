//! Static embedding model: a WordPiece vocabulary and one vector per piece. Only WordPiece tokenizers and the data
//! types F32 and F16 are read; other models are rejected with the reason.

use std::collections::HashMap;

use serde::Deserialize;
use toolcrib_core::error::{Code, Error, Result, ResultExt};

/// Maximum number of pieces per text; the rest of a text is ignored.
const MAX_PIECES: usize = 256;
/// Maximum length of a word in bytes. Longer ones are skipped, as splitting takes quadratic time.
const MAX_WORD_LEN: usize = 64;

/// Embedding model in memory.
#[derive(Debug)]
pub struct EmbeddingModel {
    /// Row of each piece in `values`.
    pieces: HashMap<String, u32>,
    /// Row-major matrix with `dimensions` columns.
    values: Vec<f32>,
    dimensions: usize,
}

/// The parts of `tokenizer.json` that are used.
#[derive(Deserialize)]
struct TokenizerFile {
    model: TokenizerModel,
}

#[derive(Deserialize)]
struct TokenizerModel {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: HashMap<String, u32>,
}

/// Entry of a tensor in the safetensors header.
#[derive(Deserialize)]
struct TensorHeader {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl EmbeddingModel {
    /// Parses a model from the bytes of `model.safetensors` and the text of `tokenizer.json`.
    ///
    /// # Errors
    /// `CONFIG_INVALID` for another tokenizer than WordPiece, an unknown data type or inconsistent sizes.
    pub fn parse(safetensors: &[u8], tokenizer: &str) -> Result<EmbeddingModel> {
        let tokenizer: TokenizerFile = serde_json::from_str(tokenizer)
            .context(Code::ConfigInvalid, "parse the tokenizer of the embedding model")?;
        // Another tokenizer would split words differently, and the vectors would be those of other pieces.
        if let Some(kind) = tokenizer.model.kind.filter(|kind| kind != "WordPiece") {
            return Err(unusable_error(&format!("its tokenizer is `{kind}`; only `WordPiece` is supported")));
        }
        let (values, dimensions) = parse_embeddings(safetensors)?;
        let rows = values.len() / dimensions;
        if tokenizer.model.vocab.values().any(|row| *row as usize >= rows) {
            return Err(unusable_error("it has fewer vectors than vocabulary entries"));
        }
        Ok(EmbeddingModel { pieces: tokenizer.model.vocab, values, dimensions })
    }

    /// Returns the normalised mean vector of the text's pieces, or the zero vector if no piece is known.
    pub(super) fn embed(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0_f32; self.dimensions];
        for row in self.piece_rows(text).into_iter().take(MAX_PIECES) {
            // Rows were checked when the model was parsed.
            let start = row as usize * self.dimensions;
            let vector = self.values.get(start..start + self.dimensions).unwrap_or_default();
            sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        if length > 0.0 {
            sum.iter_mut().for_each(|value| *value /= length);
        }
        sum
    }

    /// Rows of the text's pieces.
    fn piece_rows(&self, text: &str) -> Vec<u32> {
        // As uncased WordPiece models do; accents are kept.
        let lower = text.to_lowercase();
        let words = lower.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
        words
            .filter(|word| word.len() <= MAX_WORD_LEN)
            .take(MAX_PIECES)
            .flat_map(|word| self.split_pieces(word))
            .collect()
    }

    /// Splits a word as WordPiece does: the longest known prefix, then the longest known continuations (`##…`). Returns
    /// nothing if a part is unknown.
    fn split_pieces(&self, word: &str) -> Vec<u32> {
        let mut rows = Vec::new();
        let mut start = 0;
        while start < word.len() {
            let prefix = if start == 0 { "" } else { "##" };
            let ends = (start + 1..=word.len()).rev().filter(|end| word.is_char_boundary(*end));
            let found = ends
                .map(|end| (end, format!("{prefix}{}", &word[start..end])))
                .find_map(|(end, piece)| self.pieces.get(&piece).map(|row| (end, *row)));
            // WordPiece maps such a word to `[UNK]`, which says nothing.
            let Some((end, row)) = found else { return Vec::new() };
            rows.push(row);
            start = end;
        }
        rows
    }
}

/// Reads the tensor `embeddings` from a safetensors file: 8 bytes header length, JSON header, values. Returns the
/// values and the number of dimensions.
fn parse_embeddings(bytes: &[u8]) -> Result<(Vec<f32>, usize)> {
    let short = || unusable_error("`model.safetensors` is truncated");
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| short())?;
    let header = rest.get(..length).ok_or_else(short)?;
    let header: HashMap<String, serde_json::Value> =
        serde_json::from_slice(header).context(Code::ConfigInvalid, "parse the header of `model.safetensors`")?;
    let tensor = header.get("embeddings").cloned().ok_or_else(|| unusable_error("it has no tensor `embeddings`"))?;
    let tensor: TensorHeader =
        serde_json::from_value(tensor).context(Code::ConfigInvalid, "parse the header of `model.safetensors`")?;
    // Offsets are relative to the end of the header.
    let [start, end] = tensor.data_offsets;
    let data = rest[length..].get(start..end).ok_or_else(short)?;
    let values: Vec<f32> = match tensor.dtype.as_str() {
        "F32" => {
            data.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
        }
        "F16" => data.chunks_exact(2).map(|bytes| decode_half(u16::from_le_bytes([bytes[0], bytes[1]]))).collect(),
        other => return Err(unusable_error(&format!("its values are `{other}`; only `F32` and `F16` are supported"))),
    };
    match tensor.shape[..] {
        [rows, dimensions] if dimensions > 0 && rows.checked_mul(dimensions) == Some(values.len()) => {
            Ok((values, dimensions))
        }
        _ => Err(unusable_error("the shape of its tensor does not match its values")),
    }
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

fn unusable_error(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("the embedding model cannot be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENIZER: &str =
        r###"{"model":{"type":"WordPiece","vocab":{"[UNK]":0,"rain":1,"##y":2,"cloud":3,"mail":4}}}"###;

    fn safetensors_file(dtype: &str, values: &[u8]) -> Vec<u8> {
        let header = format!(
            r#"{{"__metadata__":{{}},"embeddings":{{"dtype":"{dtype}","shape":[5,2],"data_offsets":[0,{}]}}}}"#,
            values.len()
        );
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), values].concat()
    }

    fn f32_file() -> Vec<u8> {
        let values: [f32; 10] = [9.0, 9.0, 1.0, 0.0, 0.5, 0.1, 0.9, 0.1, 0.0, 1.0];
        safetensors_file("F32", &values.map(f32::to_le_bytes).concat())
    }

    #[test]
    fn similar_texts_have_similar_vectors() {
        let model = EmbeddingModel::parse(&f32_file(), TOKENIZER).unwrap();
        let similarity =
            |a: &str, b: &str| -> f32 { model.embed(a).iter().zip(model.embed(b)).map(|(a, b)| a * b).sum() };
        assert!(similarity("Rainy!", "cloud") > 0.9);
        assert!(similarity("rainy", "mail") < 0.2);
        assert_eq!(model.embed("unheard of"), [0.0, 0.0]);
        assert_eq!(model.split_pieces("rainyx"), Vec::<u32>::new());
    }

    #[test]
    fn half_precision_values_are_decoded() {
        let halves: Vec<u8> = [0x3c00_u16, 0xc000, 0x3800, 0, 1, 0x7bff, 0, 0, 0, 0].map(u16::to_le_bytes).concat();
        let model = EmbeddingModel::parse(&safetensors_file("F16", &halves), TOKENIZER).unwrap();
        assert_eq!(model.values[..4], [1.0, -2.0, 0.5, 0.0]);
        assert_eq!(model.values[5], 65504.0);
    }

    #[test]
    fn an_unusable_model_is_rejected() {
        for (bytes, tokenizer) in [
            (vec![], TOKENIZER),
            (vec![255; 20], TOKENIZER),
            (safetensors_file("I8", &[0; 10]), TOKENIZER),
            (safetensors_file("F32", &[0; 36]), TOKENIZER),
            (f32_file(), r#"{"model":{"vocab":{"a":5}}}"#),
            (f32_file(), r#"{"model":{"type":"BPE","vocab":{}}}"#),
            (f32_file(), "{}"),
        ] {
            assert_eq!(EmbeddingModel::parse(&bytes, tokenizer).unwrap_err().code, Code::ConfigInvalid);
        }
    }
}
