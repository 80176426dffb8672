//! JSON as a tree, with comments and trailing commas, as editors and clients write it.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{DEEPEST, Entry, Fault, Lines, Node, Value};

pub(super) fn parse(text: &str, file: &str) -> Result<Node, Fault> {
    let lines = Lines::new(text);
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
        .map_err(|error| lines.fault(file, error.range().start, &error.kind().to_string()))?;
    match parsed.value {
        Some(value) => node(&value, &lines, 0).ok_or_else(|| lines.fault(file, value.range().start, "nested too deep")),
        None => Ok(Node::null(1)),
    }
}

fn node(value: &ast::Value<'_>, lines: &Lines<'_>, depth: usize) -> Option<Node> {
    if depth > DEEPEST {
        return None;
    }
    let line = lines.line(value.range().start);
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(literal) => Value::Bool(literal.value, literal.value.to_string()),
        ast::Value::NumberLit(literal) => Value::Number(literal.value.to_owned()),
        ast::Value::StringLit(literal) => Value::Text(literal.value.to_string()),
        ast::Value::Array(array) => {
            Value::List(array.elements.iter().map(|item| node(item, lines, depth + 1)).collect::<Option<_>>()?)
        }
        ast::Value::Object(object) => Value::Map(
            object
                .properties
                .iter()
                .map(|property| {
                    Some(Entry {
                        key: property.name.as_str().to_owned(),
                        line: lines.line(property.range.start),
                        node: node(&property.value, lines, depth + 1)?,
                    })
                })
                .collect::<Option<_>>()?,
        ),
    };
    Some(Node { value, line })
}
