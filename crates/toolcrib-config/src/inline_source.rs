//! A single source declared outside a configuration file, with the same keys: by a REST request or a command.
//!
//! ```text
//! parse_source("files", {"command": "npx", "args": ["server-files"]}, base_dir)
//! ```

use std::path::Path;

use serde_json::{Value, json};
use toolcrib_core::source::Source;

use super::{Config, ConfigDiagnostic, ConfigDialect, ReferenceLookup, Syntax, syntax};

/// Parses a source from the keys that a file would have under its name.
/// Relative paths are resolved against `base_dir`. Fails with all errors of the source; their file is `source`.
pub fn parse_source(name: &str, keys: &Value, base_dir: &Path) -> Result<Source, Vec<ConfigDiagnostic>> {
    parse(name, keys, base_dir, None)
}

/// Like [`parse_source`], with `lookup` for references outside of texts, as in [`Config::read_resolved`].
pub fn parse_source_resolved(
    name: &str,
    keys: &Value,
    base_dir: &Path,
    lookup: ReferenceLookup<'_>,
) -> Result<Source, Vec<ConfigDiagnostic>> {
    parse(name, keys, base_dir, Some(lookup))
}

fn parse(
    name: &str,
    keys: &Value,
    base_dir: &Path,
    lookup: Option<ReferenceLookup<'_>>,
) -> Result<Source, Vec<ConfigDiagnostic>> {
    let text = json!({ "sources": { name: keys } }).to_string();
    // Through the same parser as a file, so that messages and checks are the same.
    let config = syntax::parse(&text, "source", Syntax::Json);
    let config = config.and_then(|root| Config::from_node(&root, "source", base_dir, ConfigDialect::Toolcrib, lookup));
    let source = config.and_then(|config| match config.sources.into_iter().next() {
        Some(configured) => configured.source,
        None => Err(vec![ConfigDiagnostic::new("source", 0, "", "declares no source")]),
    });
    // Line numbers would refer to the generated JSON, which the caller never sees.
    let without_line = |diagnostic| ConfigDiagnostic { line: 0, ..diagnostic };
    source.map_err(|diagnostics| diagnostics.into_iter().map(without_line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_core::source::SourceKind;

    #[test]
    fn an_inline_source_has_the_keys_and_messages_of_a_file() {
        let declare = |name, keys| parse_source(name, &keys, Path::new("/p"));
        let source = declare("My Docs", json!({ "url": "http://x", "ttl": "5m" })).unwrap();
        assert_eq!((source.id.as_str(), source.kind.transport()), ("my_docs", "http"));
        let source = declare("a", json!({ "command": "./x" })).unwrap();
        assert!(matches!(source.kind, SourceKind::Stdio(stdio) if stdio.command == "/p/x"));
        for (name, keys, message) in [
            ("a", json!({ "ulr": "x" }), "source: sources.a: unknown key `ulr`; did you mean `url`?"),
            ("call_tool", json!({}), "source: sources: `call_tool` cannot name a source: that name is reserved"),
            ("a", json!([]), "source: sources.a: expected a map of keys, found a list"),
        ] {
            assert_eq!(declare(name, keys).unwrap_err()[0].to_string(), message);
        }
    }
}
