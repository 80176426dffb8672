//! Simple conditions: literals, runtime expressions and operators, such as `$statusCode == 200 && !$response.body#/busy`.
//! Comparing is loose, as Arazzo has it: texts without regard to case, `'200'` like 200, and what leads nowhere is null.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::budget::Budget;
use crate::expression::{Scope, is_expression, look_up};
use crate::text::shown_short;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition {
    Literal(Value),
    Expression(String),
    Not(Box<Condition>),
    Compare(Box<Condition>, Comparison, Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Condition {
    pub(super) fn parse(text: &str) -> Result<Condition, String> {
        if text.len() > LONGEST {
            return Err(format!("the condition is longer than {LONGEST} characters"));
        }
        // Documents also write the whole condition in braces.
        let text = text.trim();
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let text = inner.filter(|inner| !inner.contains('}')).unwrap_or(text);
        let mut parser = Parser { rest: text.trim(), depth: 0 };
        let condition = parser.any()?;
        if parser.rest.is_empty() { Ok(condition) } else { Err(parser.unexpected()) }
    }

    pub(super) fn holds(&self, scope: &Scope<'_>, budget: &Budget) -> Result<bool, String> {
        Ok(is_true(&*self.value(scope, budget)?))
    }

    fn value<'a>(&'a self, scope: &Scope<'a>, budget: &Budget) -> Result<Cow<'a, Value>, String> {
        budget.spend(1)?;
        let truth = |truth: bool| Ok(Cow::Owned(Value::Bool(truth)));
        match self {
            Condition::Literal(value) => Ok(Cow::Borrowed(value)),
            Condition::Expression(expression) => {
                // Finding the way costs the square of its length, see `expression`.
                budget.spend(expression.len())?;
                Ok(look_up(expression, scope).unwrap_or(Cow::Owned(Value::Null)))
            }
            Condition::Not(inner) => truth(!inner.holds(scope, budget)?),
            Condition::Compare(left, comparison, right) => {
                let (left, right) = (left.value(scope, budget)?, right.value(scope, budget)?);
                budget.spend_on(&left)?;
                budget.spend_on(&right)?;
                truth(comparison.holds(&left, &right))
            }
            Condition::All(parts) => {
                for part in parts {
                    if !part.holds(scope, budget)? {
                        return truth(false);
                    }
                }
                truth(true)
            }
            Condition::Any(parts) => {
                for part in parts {
                    if part.holds(scope, budget)? {
                        return truth(true);
                    }
                }
                truth(false)
            }
        }
    }
}

const LONGEST: usize = 2000;
const DEEPEST: usize = 32;

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = order(left, right);
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::NotEqual => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less) && ordered(left, right),
            Comparison::Greater => order == Some(Ordering::Greater) && ordered(left, right),
            Comparison::LessOrEqual => order.is_some_and(Ordering::is_le) && ordered(left, right),
            Comparison::GreaterOrEqual => order.is_some_and(Ordering::is_ge) && ordered(left, right),
        }
    }
}

/// Only numbers and texts are before or after others.
fn ordered(left: &Value, right: &Value) -> bool {
    let can = |value: &Value| value.is_number() || value.is_string();
    can(left) && can(right)
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => order_of_numbers(left, right),
        (Value::String(left), Value::String(right)) => Some(left.to_lowercase().cmp(&right.to_lowercase())),
        (Value::Number(number), Value::String(text)) => order_of_numbers(number, &text.trim().parse().ok()?),
        (Value::String(text), Value::Number(number)) => order_of_numbers(&text.trim().parse().ok()?, number),
        (Value::Bool(truth), Value::String(text)) | (Value::String(text), Value::Bool(truth)) => {
            text.trim().eq_ignore_ascii_case(if *truth { "true" } else { "false" }).then_some(Ordering::Equal)
        }
        (left, right) => (left == right).then_some(Ordering::Equal),
    }
}

pub(super) fn order_of_numbers(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (None, _) | (_, None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Condition::Any))
    }

    fn all(&mut self) -> Result<Condition, String> {
        let mut parts = vec![self.compare()?];
        while self.take("&&") {
            parts.push(self.compare()?);
        }
        Ok(one_or(parts, Condition::All))
    }

    fn compare(&mut self) -> Result<Condition, String> {
        const COMPARISONS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let left = self.single()?;
        let Some((_, comparison)) = COMPARISONS.into_iter().find(|(sign, _)| self.take(sign)) else { return Ok(left) };
        Ok(Condition::Compare(Box::new(left), comparison, Box::new(self.single()?)))
    }

    fn single(&mut self) -> Result<Condition, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the condition is nested deeper than {DEEPEST} levels"));
        }
        let condition = if self.take("!") {
            Condition::Not(Box::new(self.single()?))
        } else if self.take("(") {
            let inner = self.any()?;
            if !self.take(")") {
                return Err(self.unexpected());
            }
            inner
        } else {
            self.operand()?
        };
        self.depth -= 1;
        Ok(condition)
    }

    fn operand(&mut self) -> Result<Condition, String> {
        if let Some(quote) = self.rest.chars().next().filter(|&first| first == '\'' || first == '"') {
            return self.quoted(quote).map(|text| Condition::Literal(text.into()));
        }
        if self.rest.starts_with("{$") {
            let end = self.rest.find('}').ok_or_else(|| self.unexpected())?;
            let word = &self.rest[1..end];
            self.advance(end + 1);
            return expression(word);
        }
        let word = &self.rest[..word_end(self.rest)];
        let literal = match word {
            "" => return Err(self.unexpected()),
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if word.starts_with('$') => {
                self.advance(word.len());
                return expression(word);
            }
            _ => Value::Number(
                word.parse()
                    .map_err(|_| format!("`{}` is no literal; texts stand in single quotes", shown_short(word, 60)))?,
            ),
        };
        self.advance(word.len());
        Ok(Condition::Literal(literal))
    }

    /// A quote inside of the text is written twice.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
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
        Err(format!("the text that begins with `{}` has no end", shown_short(self.rest, 40)))
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

    fn unexpected(&self) -> String {
        match self.rest {
            "" => "the condition ends too early".into(),
            rest => format!("`{}` is not expected there in a condition", shown_short(rest, 40)),
        }
    }
}

fn expression(word: &str) -> Result<Condition, String> {
    if is_expression(word) {
        Ok(Condition::Expression(word.to_owned()))
    } else {
        Err(format!("`{}` is no runtime expression", shown_short(word, 60)))
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

fn one_or(mut parts: Vec<Condition>, many: impl FnOnce(Vec<Condition>) -> Condition) -> Condition {
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
    use crate::expression::Response;

    #[test]
    fn a_condition_holds_as_arazzo_has_it() {
        let body =
            json!({"status": "Available", "count": 3, "pets": [{"name": "rex", "a b": 1}], "zero": 0, "none": null});
        let scope =
            Scope { response: Some(Response { status: 200, headers: &[], body: Some(&body) }), ..Scope::default() };
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
            let holds = |condition: Condition| condition.holds(&scope, &Budget::default());
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
