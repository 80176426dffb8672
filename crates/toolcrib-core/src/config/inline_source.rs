//! One source outside of a file, in the same words: what a request or a command declares.

use std::path::Path;

use serde_json::{Value, json};

use super::{Config, ConfigDiagnostic, ConfigDialect, Syntax};
use crate::source::Source;

/// Reads a source from the keys that would stand under its name in a file.
pub fn parse_source(name: &str, keys: &Value, base_dir: &Path) -> Result<Source, Vec<ConfigDiagnostic>> {
    let text = json!({ "sources": { name: keys } }).to_string();
    let declared = Config::parse(&text, "source", base_dir, Syntax::Json, ConfigDialect::Toolcrib);
    let source = declared.and_then(|config| match config.sources.into_iter().next() {
        Some(declaration) => declaration.source,
        None => Err(vec![ConfigDiagnostic::new("source", 0, "", "says nothing")]),
    });
    // Nobody wrote a line here.
    source.map_err(|faults| faults.into_iter().map(|fault| ConfigDiagnostic { line: 0, ..fault }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceKind;

    #[test]
    fn a_source_is_declared_in_the_words_of_a_file() {
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
