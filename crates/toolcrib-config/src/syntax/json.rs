//! JSON parser of configuration files. Accepts comments and trailing commas, which VS Code and other clients write.
//!
//! Numbers keep their digits and objects the order of their keys. Duplicate keys stay in the tree; `syntax::parse`
//! reports them.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{ConfigDiagnostic, ConfigNode, LineIndex, MAX_NODE_DEPTH, NodeEntry, NodeValue};

/// Parses a whole file; an empty one is null. A syntax error has a line and a column.
pub(super) fn parse(text: &str, file: &str) -> Result<ConfigNode, ConfigDiagnostic> {
    let lines = LineIndex::new(text);
    // Comments and trailing commas, as VS Code allows them; all other extensions of the parser stay off.
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options)
        .map_err(|error| lines.diagnostic_at(file, error.range().start, &error.kind().to_string()))?;
    match parsed.value {
        Some(value) => value_to_node(&value, &lines, 0)
            .ok_or_else(|| lines.diagnostic_at(file, value.range().start, "nested too deep")),
        None => Ok(ConfigNode::null(1)),
    }
}

/// Converts a parsed value; `None` where it is nested too deep.
/// The check bounds the recursions over the tree that follow.
fn value_to_node(value: &ast::Value<'_>, lines: &LineIndex<'_>, depth: usize) -> Option<ConfigNode> {
    if depth > MAX_NODE_DEPTH {
        return None;
    }
    // The line of the value, which for an object or a list is that of its opening bracket.
    let line = lines.line(value.range().start);
    let value = match value {
        ast::Value::NullKeyword(_) => NodeValue::Null,
        ast::Value::BooleanLit(literal) => NodeValue::Bool(literal.value, literal.value.to_string()),
        ast::Value::NumberLit(literal) => NodeValue::Number(literal.value.to_owned()),
        ast::Value::StringLit(literal) => NodeValue::Text(literal.value.to_string()),
        ast::Value::Array(array) => NodeValue::List(
            array.elements.iter().map(|item| value_to_node(item, lines, depth + 1)).collect::<Option<_>>()?,
        ),
        ast::Value::Object(object) => NodeValue::Map(
            object
                .properties
                .iter()
                .map(|property| {
                    Some(NodeEntry {
                        key: property.name.as_str().to_owned(),
                        line: lines.line(property.range.start),
                        node: value_to_node(&property.value, lines, depth + 1)?,
                    })
                })
                .collect::<Option<_>>()?,
        ),
    };
    Some(ConfigNode { value, line })
}
