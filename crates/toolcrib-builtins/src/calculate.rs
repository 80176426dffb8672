//! `calculate`: evaluates arithmetic expressions with a small parser.
//!
//! `number` holds the arithmetic, `parser` the grammar and the functions. Both are pure.

mod number;
mod parser;

use serde::Deserialize;
use serde_json::json;
use toolcrib_core::Result;

use super::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler, invalid_input, parse_arguments};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Operators, functions and constants as the description of the tool lists them.
    expression: String,
}

/// Builds the tool, which needs neither configuration nor context.
pub(super) fn tool() -> Result<(BuiltinDefinition, BuiltinHandler)> {
    let definition = BuiltinDefinition::new(
        "calculate",
        "Evaluates an arithmetic expression. Use it instead of computing in your head. Operators + - * / % ^ and \
         parentheses (2^3^2 is 2^9, -2^2 is -4, % is the remainder with the sign of its left side); functions sqrt, \
         abs, min, max, round(x, digits), floor, ceil, sin, cos, tan (radians), ln, log(x, base; default 10), log2, \
         log10, exp, pow; constants pi, e. Integers are exact up to 38 digits, other results have 15 significant digits.",
        json!({
            "type": "object",
            "properties": {
                "expression": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": parser::MAX_EXPRESSION_LEN,
                    "description": "such as `(1 + 2) * sqrt(16) / 3`",
                },
            },
            "required": ["expression"],
            "additionalProperties": false,
        }),
    )?
    .title("Calculate")
    .output_schema(json!({
        "type": "object",
        "properties": {
            "result": { "type": ["number", "string"], "description": "a string when too large for a JSON number" },
        },
        "required": ["result"],
        "additionalProperties": false,
    }))
    .read_only();
    Ok((definition, builtin_handler(|input| async { calculate(parse_arguments(input)?) })))
}

/// Evaluates the expression. Errors of the expression are errors of the arguments.
fn calculate(arguments: Arguments) -> Result<BuiltinOutput> {
    let result = parser::evaluate(&arguments.expression).map_err(invalid_input)?.to_json();
    Ok(BuiltinOutput::json(json!({ "result": result })))
}
