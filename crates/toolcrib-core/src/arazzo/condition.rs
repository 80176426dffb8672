//! Simple conditions: literals, runtime expressions and operators, such as `$statusCode == 200 && !$response.body#/busy`.
//! Comparing is loose, as Arazzo has it: texts without regard to case, `'200'` like 200, and what leads nowhere is null.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::budget::ConditionBudget;
use crate::expression::{Scope, is_expression, resolve};
use crate::text::sanitize_truncated;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    Literal(Value),
    Expression(String),
    Not(Box<Condition>),
    Compare(Box<Condition>, ComparisonOperator, Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonOperator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Condition, String> {
        if text.len() > MAX_CONDITION_LEN {
            return Err(format!("the condition is longer than {MAX_CONDITION_LEN} characters"));
        }
        // Documents also write the whole condition in braces.
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let text = inner.filter(|inner| !inner.contains('}')).unwrap_or(text);
        let mut parser = ConditionParser { rest: text.trim(), depth: 0 };
        let condition = parser.parse_or()?;
        if parser.rest.is_empty() { Ok(condition) } else { Err(parser.unexpected_input()) }
    }

    pub(super) fn evaluate(&self, scope: &Scope<'_>, budget: &ConditionBudget) -> Result<bool, String> {
        Ok(is_truthy(&*self.evaluate_value(scope, budget)?))
    }

    fn evaluate_value<'a>(&'a self, scope: &Scope<'a>, budget: &ConditionBudget) -> Result<Cow<'a, Value>, String> {
        budget.spend(1)?;
        let truth = |truth: bool| Ok(Cow::Owned(Value::Bool(truth)));
        match self {
            Condition::Literal(value) => Ok(Cow::Borrowed(value)),
            Condition::Expression(expression) => {
                // Finding the way costs the square of its length, see `expression`.
                budget.spend(expression.len())?;
                Ok(resolve(expression, scope).unwrap_or(Cow::Owned(Value::Null)))
            }
            Condition::Not(inner) => truth(!inner.evaluate(scope, budget)?),
            Condition::Compare(left, comparison, right) => {
                let (left, right) = (left.evaluate_value(scope, budget)?, right.evaluate_value(scope, budget)?);
                budget.spend_on_comparison(&left)?;
                budget.spend_on_comparison(&right)?;
                truth(comparison.compare(&left, &right))
            }
            Condition::All(parts) => {
                for part in parts {
                    if !part.evaluate(scope, budget)? {
                        return truth(false);
                    }
                }
                truth(true)
            }
            Condition::Any(parts) => {
                for part in parts {
                    if part.evaluate(scope, budget)? {
                        return truth(true);
                    }
                }
                truth(false)
            }
        }
    }
}

const MAX_CONDITION_LEN: usize = 2000;
const MAX_CONDITION_DEPTH: usize = 32;

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
    fn compare(self, left: &Value, right: &Value) -> bool {
        let order = compare_values(left, right);
        match self {
            ComparisonOperator::Equal => order == Some(Ordering::Equal),
            ComparisonOperator::NotEqual => order != Some(Ordering::Equal),
            ComparisonOperator::Less => order == Some(Ordering::Less) && are_orderable(left, right),
            ComparisonOperator::Greater => order == Some(Ordering::Greater) && are_orderable(left, right),
            ComparisonOperator::LessOrEqual => order.is_some_and(Ordering::is_le) && are_orderable(left, right),
            ComparisonOperator::GreaterOrEqual => order.is_some_and(Ordering::is_ge) && are_orderable(left, right),
        }
    }
}

/// Only numbers and texts are before or after others.
fn are_orderable(left: &Value, right: &Value) -> bool {
    let can = |value: &Value| value.is_number() || value.is_string();
    can(left) && can(right)
}

fn compare_values(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => Some(left.to_lowercase().cmp(&right.to_lowercase())),
        (Value::Number(number), Value::String(text)) => compare_numbers(number, &text.trim().parse().ok()?),
        (Value::String(text), Value::Number(number)) => compare_numbers(&text.trim().parse().ok()?, number),
        (Value::Bool(truth), Value::String(text)) | (Value::String(text), Value::Bool(truth)) => {
            text.trim().eq_ignore_ascii_case(if *truth { "true" } else { "false" }).then_some(Ordering::Equal)
        }
        (left, right) => (left == right).then_some(Ordering::Equal),
    }
}

pub(super) fn compare_numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (None, _) | (_, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

struct ConditionParser<'a> {
    rest: &'a str,
    depth: usize,
}

impl ConditionParser<'_> {
    fn parse_or(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.parse_and()?];
        while self.take("||") {
            parts.push(self.parse_and()?);
        }
        Ok(unwrap_single_or(parts, Condition::Any))
    }

    fn parse_and(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.parse_comparison()?];
        while self.take("&&") {
            parts.push(self.parse_comparison()?);
        }
        Ok(unwrap_single_or(parts, Condition::All))
    }

    fn parse_comparison(&mut self) -> Result<Condition, String> {
        const COMPARISONS: [(&str, ComparisonOperator); 6] = [
            ("==", ComparisonOperator::Equal),
            ("!=", ComparisonOperator::NotEqual),
            ("<=", ComparisonOperator::LessOrEqual),
            (">=", ComparisonOperator::GreaterOrEqual),
            ("<", ComparisonOperator::Less),
            (">", ComparisonOperator::Greater),
        ];
        let left = self.parse_unary()?;
        let Some((_, comparison)) = COMPARISONS.into_iter().find(|(sign, _)| self.take(sign)) else { return Ok(left) };
        Ok(Condition::Compare(Box::new(left), comparison, Box::new(self.parse_unary()?)))
    }

    fn parse_unary(&mut self) -> Result<Condition, String> {
        self.depth += 1;
        if self.depth > MAX_CONDITION_DEPTH {
            return Err(format!("the condition is nested deeper than {MAX_CONDITION_DEPTH} levels"));
        }
        let condition = if self.take("!") {
            Condition::Not(Box::new(self.parse_unary()?))
        } else if self.take("(") {
            let inner = self.parse_or()?;
            if !self.take(")") {
                return Err(self.unexpected_input());
            }
            inner
        } else {
            self.parse_operand()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn parse_operand(&mut self) -> Result<Condition, String> {
        if let Some(quote) = self.rest.chars().next().filter(|&first| first == '\'' || first == '"') {
            return self.parse_quoted(quote).map(|text| Condition::Literal(text.into()));
        }
        if self.rest.starts_with("{$") {
            let end = self.rest.find('}').ok_or_else(|| self.unexpected_input())?;
            let word = &self.rest[1..end];
            self.advance(end + 1);
            return parse_expression(word);
        }
        let word = &self.rest[..word_end(self.rest)];
        let literal = match word {
            "" => return Err(self.unexpected_input()),
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if word.starts_with('$') => {
                self.advance(word.len());
                return parse_expression(word);
            }
            _ => Value::Number(word.parse().map_err(|_| {
                format!("`{}` is no literal; texts stand in single quotes", sanitize_truncated(word, 60))
            })?),
        };
        self.advance(word.len());
        Ok(Condition::Literal(literal))
    }

    /// A quote inside of the text is written twice.
    fn parse_quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            if character != quote {
                text.push(character);
            } else if characters.next_if(|(_, next)| *next == quote).is_some() {
                text.push(quote);
            } else {
                self.advance(at + 1);
                return Ok(text);
            }
        }
        Err(format!("the text that begins with `{}` has no end", sanitize_truncated(self.rest, 40)))
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest.starts_with(sign);
        if found {
            self.advance(sign.len());
        }
        found
    }

    fn advance(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    fn unexpected_input(&self) -> String {
        match self.rest {
            "" => "the condition ends too early".into(),
            rest => format!("`{}` is not expected there in a condition", sanitize_truncated(rest, 40)),
        }
    }
}

fn parse_expression(word: &str) -> Result<Condition, String> {
    if is_expression(word) {
        Ok(Condition::Expression(word.to_owned()))
    } else {
        Err(format!("`{}` is no runtime expression", sanitize_truncated(word, 60)))
    }
}

/// Up to a space or an operator; what stands in brackets belongs to the word.
fn word_end(text: &str) -> usize {
    let mut inside = false;
    for (at, character) in text.char_indices() {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => {}
            '=' | '!' | '<' | '>' | '&' | '|' | '(' | ')' | ',' => return at,
            _ if character.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn unwrap_single_or(mut parts: Vec<Condition>, many: impl FnOnce(Vec<Condition>) -> Condition) -> Condition {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            many(parts)
        }
        None => many(parts),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expression::ResponseScope;

    #[test]
    fn a_condition_holds_as_arazzo_has_it() {
        let body =
            json!({"status": "Available", "count": 3, "pets": [{"name": "rex", "a b": 1}], "zero": 0, "none": null});
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
    fn a_condition_that_cannot_be_read_says_why() {
        for (text, reason) in [
            ("", "the condition ends too early"),
            ("$statusCode ==", "the condition ends too early"),
            ("$statusCode == 200 200", "`200` is not expected there in a condition"),
            ("$statusCode = 200", "`= 200` is not expected there in a condition"),
            ("($statusCode", "the condition ends too early"),
            ("$step.x == 1", "`$step.x` is no runtime expression"),
            ("$response.body#/a == open", "`open` is no literal; texts stand in single quotes"),
            ("'open", "the text that begins with `'open` has no end"),
            (&"(".repeat(100), "the condition is nested deeper than 32 levels"),
            (&"!".repeat(100), "the condition is nested deeper than 32 levels"),
            (&" ".repeat(3000), "the condition is longer than 2000 characters"),
        ] {
            assert_eq!(Condition::parse(text), Err(reason.to_owned()));
        }
    }
}
