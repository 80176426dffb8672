//! `toolcrib call --output FILE`: writes the content of a result to a file.
//!
//! Written is the first binary block: an image, audio, or an embedded resource. A result without one is written as the
//! JSON that it consists of, or else as its text. `-` is stdout, which then has nothing else.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use toolcrib::connector::HTTP_KEY;
use toolcrib::core::ResultExt;
use toolcrib::core::text::sanitize;
use toolcrib::{CallOutput, Code, Error, Result};

use super::pagination_line;
use crate::output::print_bytes;

/// Destination of the content.
#[derive(Debug, Clone)]
pub(super) enum ContentDestination {
    File(PathBuf),
    Stdout,
}

impl ContentDestination {
    /// Parses the value of `--output`. A file named `-` is `./-`.
    pub(super) fn parse(text: &str) -> Result<ContentDestination, Infallible> {
        Ok(if text == "-" { ContentDestination::Stdout } else { ContentDestination::File(text.into()) })
    }

    /// Checks before the call that the content can be written: a call may not be repeatable.
    pub(super) fn check(&self, json: bool) -> Result<()> {
        match self {
            ContentDestination::File(file) => check_directory(file),
            ContentDestination::Stdout if json => {
                Err(Error::new(Code::BadRequest, "`--output -` and `--json` both write to stdout; write to a file"))
            }
            ContentDestination::Stdout => Ok(()),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        match self {
            ContentDestination::File(file) => write_file(file, bytes),
            ContentDestination::Stdout => print_bytes(bytes),
        }
    }
}

/// Name for messages.
impl fmt::Display for ContentDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentDestination::File(file) => write!(f, "`{}`", sanitize(&file.display().to_string())),
            ContentDestination::Stdout => f.write_str("stdout"),
        }
    }
}

/// Description of the written content, and the rest of the result.
pub(super) struct WrittenResult {
    /// Line for a terminal.
    pub(super) description: String,
    /// The result with a link to the file in the place of the written block, for `--json`.
    pub(super) result: Value,
}

fn check_directory(file: &Path) -> Result<()> {
    let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
    match directory {
        Some(directory) if !directory.is_dir() => {
            let message = format!("cannot write `{}`: `{}` is not a directory", file.display(), directory.display());
            Err(Error::new(Code::BadRequest, message))
        }
        Some(_) | None if file.is_dir() => {
            Err(Error::new(Code::BadRequest, format!("cannot write `{}`: it is a directory", file.display())))
        }
        Some(_) | None => Ok(()),
    }
}

/// Writes the content of a result. An existing file is replaced.
pub(super) fn write_result(destination: &ContentDestination, output: &CallOutput) -> Result<WrittenResult> {
    let mut result = serde_json::to_value(output).context(Code::Internal, "cannot read the result")?;
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let binaries: Vec<usize> = (0..blocks.len()).filter(|index| binary_block(&blocks[*index]).is_some()).collect();
    let Some(&first) = binaries.first() else {
        // The line about the next page is not part of what the API sent.
        let sent = if pagination_line(output).is_some() { &blocks[..blocks.len() - 1] } else { blocks };
        // Neither is the status of a response without content.
        let meta: Value = output.meta().and_then(|meta| serde_json::from_str(meta).ok()).unwrap_or_default();
        let is_empty = meta[HTTP_KEY]["empty"] == true;
        let text = if is_empty { String::new() } else { result_text(output, sent) };
        destination.write(text.as_bytes())?;
        let description = format!("wrote {} bytes to {destination}", text.len());
        return Ok(WrittenResult { description, result });
    };
    let BinaryBlock { base64, media_type } = binary_block(&blocks[first]).unwrap_or_default();
    let bytes = STANDARD.decode(base64).context(Code::ToolExecutionFailed, "the result has invalid base64")?;
    destination.write(&bytes)?;
    let mut description = format!("wrote {} bytes ({}) to {destination}", bytes.len(), sanitize(media_type));
    if binaries.len() > 1 {
        description.push_str(&format!("; {} more are in the result, see `--json`", binaries.len() - 1));
    }
    if let ContentDestination::File(file) = destination {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let link = json!({
            "type": "resource_link",
            "uri": url::Url::from_file_path(&path).map_or_else(|()| path.display().to_string(), String::from),
            "name": path.file_name().map(|name| name.to_string_lossy()),
            "mimeType": media_type,
            "size": bytes.len(),
        });
        result["content"][first] = link;
    }
    Ok(WrittenResult { description, result })
}

/// Content of a binary block.
#[derive(Default)]
struct BinaryBlock<'a> {
    base64: &'a str,
    media_type: &'a str,
}

/// Returns `None` for a block that is not binary.
fn binary_block(block: &Value) -> Option<BinaryBlock<'_>> {
    let (content, key) = match block["type"].as_str()? {
        "image" | "audio" => (block, "data"),
        "resource" => (&block["resource"], "blob"),
        _ => return None,
    };
    let media_type = content["mimeType"].as_str().unwrap_or("application/octet-stream");
    Some(BinaryBlock { base64: content[key].as_str()?, media_type })
}

/// JSON as the tool sent it, if the result is JSON, else the text blocks.
fn result_text(output: &CallOutput, blocks: &[Value]) -> String {
    let first_text = blocks.first().and_then(|block| block["text"].as_str());
    match output.structured() {
        // The first text block repeats the structured content, and may be an array, which that cannot be.
        Some(structured) => {
            let is_json = |text: &&str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
            first_text.filter(is_json).unwrap_or(structured).to_owned()
        }
        None => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(file, bytes).map_err(|error| {
        Error::new(Code::ToolExecutionFailed, format!("cannot write `{}`: {error}", file.display())).with_cause(error)
    })
}
