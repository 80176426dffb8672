//! Reads the model for semantic search (`search.model`): a directory with `model.safetensors` and `tokenizer.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolcrib_catalog::search::embeddings::{EmbeddingModel, LazyModel};
use toolcrib_connector::secret;
use toolcrib_core::error::{Code, Error, Result};

/// Maximum size of a file of a model. Static embeddings have some ten megabytes.
const MAX_MODEL_BYTES: u64 = 1024 * 1024 * 1024;

/// Reads a model.
///
/// # Errors
/// `BAD_REQUEST` if a file cannot be read, `CONFIG_INVALID` if it has another format.
pub fn read_model(directory: &Path) -> Result<EmbeddingModel> {
    let vectors = read_file(&directory.join("model.safetensors"))?;
    let tokenizer_path = directory.join("tokenizer.json");
    let tokenizer =
        String::from_utf8(read_file(&tokenizer_path)?).map_err(|error| unreadable(&tokenizer_path, &error))?;
    // The message names the directory, because the error only knows the content.
    EmbeddingModel::parse(&vectors, &tokenizer).map_err(|mut error| {
        error.message = format!("`{}`: {}", directory.display(), error.message);
        error
    })
}

/// Returns the configured model, which the first search reads. If it cannot be read, a warning says why, and search goes
/// on by words alone.
pub(crate) fn configured_model(path: &str) -> Arc<LazyModel> {
    let configured = path.to_owned();
    Arc::new(LazyModel::new(path, move || {
        let directory = secret::resolve_path(&configured).map(PathBuf::from);
        match directory.and_then(|directory| read_model(&directory)) {
            Ok(model) => Some(model),
            Err(error) => {
                tracing::warn!("cannot use the model in `search.model`, search uses words alone: {}", error.message);
                None
            }
        }
    }))
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    // Reading a pipe or a device may never end.
    if !metadata.is_file() {
        return Err(unreadable(path, &"it is not a file"));
    }
    if metadata.len() > MAX_MODEL_BYTES {
        return Err(unreadable(path, &"it is larger than 1 GiB"));
    }
    fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::new(Code::BadRequest, format!("cannot read `{}`: {reason}", path.display()))
}
