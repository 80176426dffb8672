//! Static embedding model: the pieces of a vocabulary and one vector for each.

use std::sync::atomic::{AtomicU64, Ordering};

use toolcrib_core::error::{Code, Error, Result};

use super::tensors::Vectors;
use super::tokenizer::Tokenizer;

/// Embedding model in memory.
#[derive(Debug)]
pub struct EmbeddingModel {
    tokenizer: Tokenizer,
    vectors: Vectors,
    /// Unique in the process, so that what was computed with another model is not used.
    id: u64,
}

impl EmbeddingModel {
    /// Parses a model from the bytes of `model.safetensors` and the text of `tokenizer.json`.
    ///
    /// # Errors
    /// `CONFIG_INVALID` for an unknown tokenizer or data type, and for inconsistent sizes.
    pub fn parse(safetensors: &[u8], tokenizer: &str) -> Result<EmbeddingModel> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let tokenizer = Tokenizer::parse(tokenizer)?;
        let vectors = Vectors::parse(safetensors)?;
        let pieces = vectors.mapping.as_ref().map_or(vectors.rows(), Vec::len);
        if tokenizer.max_number().is_none_or(|number| number as usize >= pieces) {
            return Err(unusable_error("it has fewer vectors than vocabulary entries"));
        }
        Ok(EmbeddingModel { tokenizer, vectors, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn dimensions(&self) -> usize {
        self.vectors.dimensions
    }

    /// Number of vectors.
    pub(super) fn rows(&self) -> usize {
        self.vectors.rows()
    }

    /// Vector of a row; empty for an unknown one.
    pub(super) fn vector(&self, row: u32) -> &[f32] {
        let start = row as usize * self.vectors.dimensions;
        self.vectors.values.get(start..start + self.vectors.dimensions).unwrap_or_default()
    }

    /// Sorted, distinct rows of the pieces of a text.
    pub(super) fn distinct_rows(&self, text: &str, max_pieces: usize) -> Vec<u32> {
        let pieces = self.tokenizer.split(text, max_pieces);
        let mut rows: Vec<u32> = match &self.vectors.mapping {
            None => pieces,
            Some(mapping) => pieces.iter().filter_map(|piece| mapping.get(*piece as usize)).copied().collect(),
        };
        rows.retain(|row| (*row as usize) < self.vectors.rows());
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

pub(super) fn unusable_error(reason: &str) -> Error {
    Error::new(Code::ConfigInvalid, format!("the embedding model cannot be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_too_few_vectors_is_rejected() {
        let header = r#"{"embeddings":{"dtype":"I8","shape":[2,1],"data_offsets":[0,2]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[1, 2]].concat();
        let parse = |vocabulary: &str| {
            EmbeddingModel::parse(&file, &format!(r#"{{"model":{{"type":"WordPiece","vocab":{vocabulary}}}}}"#))
        };
        assert_eq!(parse(r#"{"a":1,"b":0}"#).unwrap().distinct_rows("b a b", 9), [0, 1]);
        for vocabulary in [r#"{"a":2}"#, "{}"] {
            assert_eq!(parse(vocabulary).unwrap_err().code, Code::ConfigInvalid);
        }
    }
}
