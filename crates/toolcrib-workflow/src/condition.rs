//! Simple conditions: literals, runtime expressions and operators, such as `$statusCode == 200 &&
//! !$response.body#/busy`. Comparisons are loose, as Arazzo specifies: strings ignore case, `'200'` equals 200, an
//! unresolvable expression is null.
//!
//! Precedence, from the loosest: `||`, `&&`, comparison, `!`. A comparison has two operands at most; `a == b == c` is
//! an error. The parser runs when the document is read, so that a workflow with a malformed condition is skipped
//! before any step is executed.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Value;
use toolcrib_core::json::{as_float, long_integer};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression::{Scope, is_expression, resolve};

use super::budget::ConditionBudget;
use super::lexer::{ComparisonOperator, Lexer, parse_literal};

/// Syntax tree of a condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    Literal(Value),
    /// Runtime expression, resolved at evaluation.
    Expression(String),
    Not(Box<Condition>),
    Compare(Box<Condition>, ComparisonOperator, Box<Condition>),
    /// Conditions joined by `&&`.
    All(Vec<Condition>),
    /// Conditions joined by `||`.
    Any(Vec<Condition>),
}

impl Condition {
    /// Parses a condition. The error is a message for people.
    pub(super) fn parse(text: &str) -> Result<Condition, String> {
        let mut lexer = Lexer::new("condition", text, MAX_CONDITION_DEPTH)?;
        // Real documents also put the whole condition in braces. They are removed only if no other brace is inside, or
        // `{$a} == {$b}` would lose its outer ones.
        let inner = lexer.rest().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        if let Some(inner) = inner.filter(|inner| !inner.contains('}')) {
            lexer = Lexer::new("condition", inner, MAX_CONDITION_DEPTH)?;
        }
        let condition = parse_or(&mut lexer)?;
        if lexer.rest().is_empty() { Ok(condition) } else { Err(lexer.unexpected_input()) }
    }

    /// Evaluates the condition in a scope. Fails only if the budget is used up.
    pub(super) fn evaluate(&self, scope: &Scope<'_>, budget: &ConditionBudget) -> Result<bool, String> {
        Ok(is_truthy(&*self.evaluate_value(scope, budget)?))
    }

    /// Evaluates to a value, of which the truthiness counts.
    fn evaluate_value<'a>(&'a self, scope: &Scope<'a>, budget: &ConditionBudget) -> Result<Cow<'a, Value>, String> {
        budget.spend(1)?;
        // An operand without an operator counts by its truthiness, so every node evaluates to a value.
        let boolean = |value: bool| Ok(Cow::Owned(Value::Bool(value)));
        match self {
            Condition::Literal(value) => Ok(Cow::Borrowed(value)),
            Condition::Expression(expression) => {
                // Resolving can take quadratic time in the length of the expression.
                budget.spend(expression.len())?;
                Ok(resolve(expression, scope).unwrap_or(Cow::Owned(Value::Null)))
            }
            Condition::Not(inner) => boolean(!inner.evaluate(scope, budget)?),
            Condition::Compare(left, operator, right) => {
                // Both sides are charged by size: a condition may compare two large responses.
                let left = left.evaluate_value(scope, budget)?;
                let right = right.evaluate_value(scope, budget)?;
                budget.spend_on_comparison(&left)?;
                budget.spend_on_comparison(&right)?;
                boolean(operator.compare(&left, &right))
            }
            Condition::All(parts) => boolean(!is_any_true(parts, |part| Ok(!part.evaluate(scope, budget)?))?),
            Condition::Any(parts) => boolean(is_any_true(parts, |part| part.evaluate(scope, budget))?),
        }
    }
}

/// Whether a part is true. Stops at the first that is, and at the first error.
pub(super) fn is_any_true<T>(
    parts: &[T],
    mut evaluate: impl FnMut(&T) -> Result<bool, String>,
) -> Result<bool, String> {
    for part in parts {
        if evaluate(part)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Maximum nesting of a condition; bounds the recursion of parser and evaluation.
const MAX_CONDITION_DEPTH: usize = 32;

/// Truthiness: null, false, 0 and the empty string are false. Arrays and objects are true, even empty ones.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

impl ComparisonOperator {
    /// Compares loosely. Values of different types are unequal, apart from numbers and booleans written as strings.
    fn compare(self, left: &Value, right: &Value) -> bool {
        // Equal values of other types (null, booleans, arrays) have an order, but `<=` and `>=` are false for them.
        let is_equality = matches!(self, ComparisonOperator::Equal | ComparisonOperator::NotEqual);
        (is_equality || are_orderable(left, right)) && self.accepts(compare_values(left, right))
    }

    /// Whether the operator holds for two values in this order; `None` if they have none.
    pub(super) fn accepts(self, order: Option<Ordering>) -> bool {
        match self {
            ComparisonOperator::Equal => order == Some(Ordering::Equal),
            ComparisonOperator::NotEqual => order != Some(Ordering::Equal),
            ComparisonOperator::Less => order == Some(Ordering::Less),
            ComparisonOperator::Greater => order == Some(Ordering::Greater),
            ComparisonOperator::LessOrEqual => order.is_some_and(Ordering::is_le),
            ComparisonOperator::GreaterOrEqual => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Whether `<` and `>` are defined: only for numbers and strings.
fn are_orderable(left: &Value, right: &Value) -> bool {
    let is_orderable = |value: &Value| value.is_number() || value.is_string();
    is_orderable(left) && is_orderable(right)
}

/// Loose comparison; `None` if the values are neither equal nor orderable.
fn compare_values(left: &Value, right: &Value) -> Option<Ordering> {
    if is_number(left) || is_number(right) {
        return compare_numbers(&*to_number(left)?, &*to_number(right)?);
    }
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.to_lowercase().cmp(&right.to_lowercase())),
        (Value::Bool(truth), Value::String(text)) | (Value::String(text), Value::Bool(truth)) => {
            text.trim().eq_ignore_ascii_case(if *truth { "true" } else { "false" }).then_some(Ordering::Equal)
        }
        (left, right) => (left == right).then_some(Ordering::Equal),
    }
}

/// Whether a value is a number, also one of more than 64 bits.
pub(super) fn is_number(value: &Value) -> bool {
    as_float(value).is_some()
}

/// Returns a number, also from a text: headers are strings, so documents compare `$response.header.x` with numbers.
fn to_number(value: &Value) -> Option<Cow<'_, Value>> {
    match value {
        _ if is_number(value) => Some(Cow::Borrowed(value)),
        Value::String(text) => parse_literal(text.trim()).filter(is_number).map(Cow::Owned),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Compares integers exactly and others as floats.
pub(super) fn compare_numbers(left: &Value, right: &Value) -> Option<Ordering> {
    // As floats, ids above 2^53 that differ would compare as equal.
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return Some(left.cmp(&right));
    }
    if let (Some(left), Some(right)) = (integer_digits(left), integer_digits(right)) {
        return Some(compare_integers(&left, &right));
    }
    as_float(left)?.partial_cmp(&as_float(right)?)
}

/// Digits of an integer of any length.
fn integer_digits(value: &Value) -> Option<Cow<'_, str>> {
    let is_short = value.is_i64() || value.is_u64();
    long_integer(value).map(Cow::Borrowed).or_else(|| is_short.then(|| Cow::Owned(value.to_string())))
}

/// Compares two integers by sign, length and digits.
fn compare_integers(left: &str, right: &str) -> Ordering {
    let by_digits = |left: &str, right: &str| left.len().cmp(&right.len()).then_with(|| left.cmp(right));
    match (left.strip_prefix('-'), right.strip_prefix('-')) {
        (None, None) => by_digits(left, right),
        (Some(left), Some(right)) => by_digits(right, left),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    }
}

/// `a || b`
fn parse_or(lexer: &mut Lexer<'_>) -> Result<Condition, String> {
    // One part without an operator is returned itself, so the tree has no needless level.
    Ok(unwrap_single_or(lexer.parse_separated("||", parse_and)?, Condition::Any))
}

/// `a && b`
fn parse_and(lexer: &mut Lexer<'_>) -> Result<Condition, String> {
    Ok(unwrap_single_or(lexer.parse_separated("&&", parse_comparison)?, Condition::All))
}

/// `a == b`, or a single operand.
fn parse_comparison(lexer: &mut Lexer<'_>) -> Result<Condition, String> {
    let left = parse_unary(lexer)?;
    match lexer.take_comparison() {
        Some(operator) => Ok(Condition::Compare(Box::new(left), operator, Box::new(parse_unary(lexer)?))),
        None => Ok(left),
    }
}

/// `!a`, `(a)` or an operand.
fn parse_unary(lexer: &mut Lexer<'_>) -> Result<Condition, String> {
    lexer.enter()?;
    let condition = if lexer.take("!") {
        Condition::Not(Box::new(parse_unary(lexer)?))
    } else if lexer.take("(") {
        let inner = parse_or(lexer)?;
        lexer.expect(")")?;
        inner
    } else {
        parse_operand(lexer)?
    };
    lexer.leave();
    Ok(condition)
}

/// A literal, or an expression with or without braces.
fn parse_operand(lexer: &mut Lexer<'_>) -> Result<Condition, String> {
    if let Some(quote) = lexer.quote() {
        return parse_quoted(lexer, quote).map(|text| Condition::Literal(text.into()));
    }
    let rest = lexer.rest();
    // In braces, the expression ends at the closing one and may contain operators.
    if rest.starts_with("{$") {
        let end = rest.find('}').ok_or_else(|| lexer.unexpected_input())?;
        lexer.advance(end + 1);
        return parse_expression(&rest[1..end]);
    }
    let word = &rest[..word_end(rest)];
    if word.is_empty() {
        return Err(lexer.unexpected_input());
    }
    lexer.advance(word.len());
    if word.starts_with('$') {
        return parse_expression(word);
    }
    let not_literal = || format!("`{}` is not a literal; put strings in single quotes", sanitize_truncated(word, 60));
    parse_literal(word).map(Condition::Literal).ok_or_else(not_literal)
}

/// A quoted string; a doubled quote stands for the quote itself.
fn parse_quoted(lexer: &mut Lexer<'_>, quote: char) -> Result<String, String> {
    let mut text = String::new();
    let mut characters = lexer.rest().char_indices().skip(1).peekable();
    while let Some((position, character)) = characters.next() {
        if character != quote {
            text.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            text.push(quote);
        } else {
            lexer.advance(position + 1);
            return Ok(text);
        }
    }
    Err(format!("the string that begins with `{}` is not terminated", sanitize_truncated(lexer.rest(), 40)))
}

/// Checks that a word is an expression.
fn parse_expression(word: &str) -> Result<Condition, String> {
    if is_expression(word) {
        Ok(Condition::Expression(word.to_owned()))
    } else {
        Err(format!("`{}` is not a runtime expression", sanitize_truncated(word, 60)))
    }
}

/// End of an operand: the next white space or operator outside brackets.
fn word_end(text: &str) -> usize {
    // Brackets may contain a quoted name with white space: `pets[0]['a b']`.
    let mut in_brackets = false;
    for (position, character) in text.char_indices() {
        match character {
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            _ if in_brackets => {}
            '=' | '!' | '<' | '>' | '&' | '|' | '(' | ')' | ',' => return position,
            _ if character.is_whitespace() => return position,
            _ => {}
        }
    }
    text.len()
}

/// Returns the only part itself, or a group of several.
fn unwrap_single_or(mut parts: Vec<Condition>, group: impl FnOnce(Vec<Condition>) -> Condition) -> Condition {
    if parts.len() == 1 { parts.swap_remove(0) } else { group(parts) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use toolcrib_core::json::parse_integer;
    use toolcrib_openapi::expression::ResponseScope;

    #[test]
    fn conditions_are_evaluated_as_arazzo_specifies() {
        let body = json!({"status": "Available", "count": 3, "pets": [{"name": "rex", "a b": 1}], "zero": 0, "none": null,
                "long": parse_integer("123456789012345678901234567890")});
        let scope = Scope {
            response: Some(ResponseScope { status: 200, headers: &[], body: Some(&body) }),
            ..Scope::default()
        };
        for (text, expected) in [
            ("$statusCode == 200", true),
            ("{$statusCode == 200}", true),
            ("{$statusCode} == 200", true),
            ("$statusCode==201", false),
            ("$statusCode == '200'", true),
            ("$statusCode >= 200 && $statusCode < 300", true),
            ("$statusCode < 200 || $statusCode > 299", false),
            ("$response.body#/status == 'available'", true),
            ("$response.body#/status != 'AVAILABLE'", false),
            ("$response.body#/status > 'aardvark'", true),
            ("$response.body#/count > 2.5", true),
            ("$response.body#/long == 123456789012345678901234567890", true),
            ("$response.body#/long == '123456789012345678901234567890'", true),
            ("$response.body#/long == 123456789012345678901234567891", false),
            ("$response.body#/long < 123456789012345678901234567891", true),
            ("$response.body#/long > 2.5", true),
            ("$response.body#/long > 18446744073709551615", true),
            ("-123456789012345678901234567890 < -123456789012345678901234567889", true),
            ("$response.body#/long", true),
            ("$response.body.pets[0].name == 'REX'", true),
            ("$response.body.pets[0]['a b'] == 1", true),
            ("$response.body#/pets", true),
            ("!$response.body#/zero", true),
            ("$response.body#/nope == null", true),
            ("$response.body#/nope", false),
            ("$response.body#/nope < 5", false),
            ("$response.body#/none <= null", false),
            ("!($statusCode == 200 && ($response.body#/count == 3))", false),
            ("$response.body#/nope || $statusCode == 200 && false", false),
            ("'it''s' == \"It's\"", true),
            ("true == 'true'", true),
            ("$outputs.x == 1", false),
        ] {
            let holds = |condition: Condition| condition.evaluate(&scope, &ConditionBudget::default());
            assert_eq!(Condition::parse(text).and_then(holds), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_malformed_condition_is_rejected_with_the_reason() {
        for (text, reason) in [
            ("", "the condition ends too early"),
            ("$statusCode ==", "the condition ends too early"),
            ("$statusCode == 200 200", "unexpected `200` in the condition"),
            ("$statusCode = 200", "unexpected `= 200` in the condition"),
            ("($statusCode", "the condition ends too early"),
            ("$step.x == 1", "`$step.x` is not a runtime expression"),
            ("$response.body#/a == open", "`open` is not a literal; put strings in single quotes"),
            ("'open", "the string that begins with `'open` is not terminated"),
            (&"(".repeat(100), "the condition is nested deeper than 32 levels"),
            (&"!".repeat(100), "the condition is nested deeper than 32 levels"),
            (&" ".repeat(3000), "the condition is longer than 2000 bytes"),
        ] {
            assert_eq!(Condition::parse(text), Err(reason.to_owned()));
        }
    }
}
