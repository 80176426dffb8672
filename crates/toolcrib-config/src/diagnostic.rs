//! Errors and warnings about a configuration: file, line, key, and a message that says what to write instead.
//!
//! ```text
//! toolcrib.yaml:4: sources.files: unknown key `agrs`; did you mean `args`?
//! ```

use std::fmt;

use serde::Serialize;
use serde_json::json;
use toolcrib_core::error::{Code, Error};
use toolcrib_core::text::sanitize_truncated;

/// One error or warning. The message never quotes a value that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConfigDiagnostic {
    /// Display name of the file.
    pub file: String,
    /// Line number, counted from one; zero where there are no lines, as in the environment.
    pub line: usize,
    /// Column, counted from one. Known for syntax errors only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Key path such as `sources.files`; empty for the file as a whole.
    pub key: String,
    /// One line, without a full stop, with a hint where there is one.
    pub message: String,
}

impl ConfigDiagnostic {
    /// Creates a diagnostic. Key and message are sanitised and truncated (120 and 400 characters): both may quote text
    /// of the file, which may be written to mislead a terminal.
    pub fn new(file: &str, line: usize, key: &str, message: impl AsRef<str>) -> ConfigDiagnostic {
        ConfigDiagnostic {
            file: file.to_owned(),
            line,
            column: None,
            key: sanitize_truncated(key, 120),
            message: sanitize_truncated(message.as_ref(), 400),
        }
    }

    /// Adds the column of a syntax error.
    pub(super) fn with_column(mut self, column: usize) -> ConfigDiagnostic {
        self.column = Some(column);
        self
    }

    /// Combines diagnostics into one `CONFIG_INVALID` error with a line of text each.
    /// The details have them as objects under `faults`, for programs.
    pub fn combined_error(diagnostics: &[ConfigDiagnostic]) -> Error {
        let message = diagnostics.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>().join("\n");
        Error::new(Code::ConfigInvalid, message).with_details(json!({ "faults": diagnostics }))
    }
}

/// Formats like a compiler: `toolcrib.yaml:4: sources.files: unknown key …`
impl fmt::Display for ConfigDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_is_formatted_like_a_compiler_message() {
        let diagnostic = ConfigDiagnostic::new("toolcrib.yaml", 4, "sources.files", "unknown key `comand`");
        assert_eq!(diagnostic.to_string(), "toolcrib.yaml:4: sources.files: unknown key `comand`");
        assert_eq!(
            ConfigDiagnostic::new("x.json", 2, "", "expected `,`").with_column(7).to_string(),
            "x.json:2:7: expected `,`"
        );
        assert_eq!(ConfigDiagnostic::new("environment", 0, "NAME", "wrong").to_string(), "environment: NAME: wrong");
    }
}
