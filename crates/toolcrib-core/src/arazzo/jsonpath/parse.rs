//! From the text of a query to its parts.

use regex::Regex;
use serde_json::Value;

use super::{
    ComparisonOperator, JsonPathCondition, JsonPathConditionKind, JsonPathOperand, JsonPathQuery, JsonPathSegment,
    JsonPathSelector, LogicalExpression,
};
use crate::arazzo::criterion::compile_pattern;
use crate::text::sanitize_truncated;

pub(super) fn parse_condition(text: &str) -> Result<JsonPathCondition, String> {
    if text.len() > MAX_QUERY_LEN {
        return Err(format!("the JSONPath query is longer than {MAX_QUERY_LEN} characters"));
    }
    let mut parser = JsonPathParser { rest: text.trim(), depth: 0 };
    if parser.rest.starts_with('$') {
        let query = parser.parse_query()?;
        if parser.rest.is_empty() {
            return Ok(JsonPathCondition(JsonPathConditionKind::Query(query)));
        }
    }
    parser = JsonPathParser { rest: text.trim(), depth: 0 };
    let comparison = parser.parse_or()?;
    if parser.rest.is_empty() {
        Ok(JsonPathCondition(JsonPathConditionKind::Comparison(comparison)))
    } else {
        Err(parser.unexpected_input())
    }
}

const MAX_QUERY_LEN: usize = 2000;
const MAX_QUERY_DEPTH: usize = 16;

/// Spaces after each token are skipped as it is taken.
struct JsonPathParser<'a> {
    rest: &'a str,
    depth: usize,
}

type JsonPathResult<T> = Result<T, String>;

impl JsonPathParser<'_> {
    fn parse_query(&mut self) -> JsonPathResult<JsonPathQuery> {
        let relative = self.take("@");
        if !relative && !self.take("$") {
            return Err(self.unexpected_input());
        }
        let mut segments = Vec::new();
        loop {
            let descendants = self.take("..");
            let selectors = if self.take("[") {
                self.parse_selectors()?
            } else if descendants || self.take(".") {
                vec![if self.take("*") {
                    JsonPathSelector::Wildcard
                } else {
                    JsonPathSelector::Name(self.parse_name()?)
                }]
            } else {
                return Ok(JsonPathQuery { relative, segments });
            };
            segments.push(JsonPathSegment { descendants, selectors });
        }
    }

    fn parse_selectors(&mut self) -> JsonPathResult<Vec<JsonPathSelector>> {
        let mut selectors = vec![self.parse_selector()?];
        while self.take(",") {
            selectors.push(self.parse_selector()?);
        }
        self.expect("]")?;
        Ok(selectors)
    }

    fn parse_selector(&mut self) -> JsonPathResult<JsonPathSelector> {
        if self.take("*") {
            return Ok(JsonPathSelector::Wildcard);
        }
        if self.take("?") {
            return Ok(JsonPathSelector::Filter(self.parse_or()?));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(JsonPathSelector::Name(self.parse_quoted()?));
        }
        let start = self.parse_index()?;
        if !self.take(":") {
            return start.map(JsonPathSelector::Index).ok_or_else(|| self.unexpected_input());
        }
        let end = self.parse_index()?;
        let step = if self.take(":") { self.parse_index()?.unwrap_or(1) } else { 1 };
        Ok(JsonPathSelector::Slice { start, end, step })
    }

    fn parse_or(&mut self) -> JsonPathResult<LogicalExpression> {
        let mut parts = vec![self.parse_and()?];
        while self.take("||") {
            parts.push(self.parse_and()?);
        }
        Ok(LogicalExpression::Any(parts))
    }

    fn parse_and(&mut self) -> JsonPathResult<LogicalExpression> {
        let mut parts = vec![self.parse_unary()?];
        while self.take("&&") {
            parts.push(self.parse_unary()?);
        }
        Ok(LogicalExpression::All(parts))
    }

    /// Everything that nests passes here.
    fn parse_unary(&mut self) -> JsonPathResult<LogicalExpression> {
        self.depth += 1;
        if self.depth > MAX_QUERY_DEPTH {
            return Err(format!("the JSONPath query is nested deeper than {MAX_QUERY_DEPTH} levels"));
        }
        let logical = if !self.rest.starts_with("!=") && self.take("!") {
            LogicalExpression::Not(Box::new(self.parse_unary()?))
        } else if self.take("(") {
            let inner = self.parse_or()?;
            self.expect(")")?;
            inner
        } else {
            self.parse_test()?
        };
        self.depth -= 1;
        Ok(logical)
    }

    fn parse_test(&mut self) -> JsonPathResult<LogicalExpression> {
        for (name, whole) in [("match(", true), ("search(", false)] {
            if self.take(name) {
                let operand = self.parse_operand()?;
                self.expect(",")?;
                let pattern = self.parse_pattern(whole)?;
                self.expect(")")?;
                return Ok(LogicalExpression::Matches(operand, pattern));
            }
        }
        const COMPARISONS: [(&str, ComparisonOperator); 6] = [
            ("==", ComparisonOperator::Equal),
            ("!=", ComparisonOperator::NotEqual),
            ("<=", ComparisonOperator::LessOrEqual),
            (">=", ComparisonOperator::GreaterOrEqual),
            ("<", ComparisonOperator::Less),
            (">", ComparisonOperator::Greater),
        ];
        let left = self.parse_operand()?;
        match COMPARISONS.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, comparison)) => Ok(LogicalExpression::Compare(left, comparison, self.parse_operand()?)),
            None => match left {
                JsonPathOperand::Query(query) => Ok(LogicalExpression::Exists(query)),
                JsonPathOperand::Literal(_) | JsonPathOperand::Length(_) | JsonPathOperand::Count(_) => {
                    Err("a literal alone is no condition".into())
                }
            },
        }
    }

    fn parse_operand(&mut self) -> JsonPathResult<JsonPathOperand> {
        if self.rest.starts_with(['@', '$']) {
            return Ok(JsonPathOperand::Query(self.parse_query()?));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(JsonPathOperand::Literal(self.parse_quoted()?.into()));
        }
        let word = self.take_word(|character| character.is_ascii_alphanumeric() || "_.+-".contains(character));
        if self.take("(") {
            return self.parse_function(&word);
        }
        let literal = match word.as_str() {
            "" => return Err(self.unexpected_input()),
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number => Value::Number(
                number.parse().map_err(|_| format!("`{}` is no literal", sanitize_truncated(number, 40)))?,
            ),
        };
        Ok(JsonPathOperand::Literal(literal))
    }

    fn parse_function(&mut self, name: &str) -> JsonPathResult<JsonPathOperand> {
        let operand = match name {
            "length" => {
                // The argument cannot be deeper than the text is long, but a stack has other limits.
                self.depth += 1;
                if self.depth > MAX_QUERY_DEPTH {
                    return Err(format!("the JSONPath query is nested deeper than {MAX_QUERY_DEPTH} levels"));
                }
                let inner = self.parse_operand()?;
                self.depth -= 1;
                JsonPathOperand::Length(Box::new(inner))
            }
            "count" => JsonPathOperand::Count(self.parse_query()?),
            "value" => JsonPathOperand::Query(self.parse_query()?),
            _ => return Err(format!("there is no function `{}`", sanitize_truncated(name, 40))),
        };
        self.expect(")")?;
        Ok(operand)
    }

    fn parse_pattern(&mut self, whole: bool) -> JsonPathResult<Regex> {
        if !self.rest.starts_with(['\'', '"']) {
            return Err("a pattern must be a literal".into());
        }
        let text = self.parse_quoted()?;
        compile_pattern(&if whole { format!("^(?:{text})$") } else { text })
    }

    fn parse_name(&mut self) -> JsonPathResult<String> {
        let name = self.take_word(|character| character.is_alphanumeric() || character == '_' || character == '-');
        if name.is_empty() { Err(self.unexpected_input()) } else { Ok(name) }
    }

    fn parse_index(&mut self) -> JsonPathResult<Option<i64>> {
        let word = self.take_word(|character| character.is_ascii_digit() || character == '-');
        if word.is_empty() {
            return Ok(None);
        }
        word.parse().map(Some).map_err(|_| format!("`{}` is no index", sanitize_truncated(&word, 40)))
    }

    fn parse_quoted(&mut self) -> JsonPathResult<String> {
        let mut characters = self.rest.char_indices();
        let quote = characters.next().map(|(_, quote)| quote);
        let mut text = String::new();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    // A pattern's own escapes, such as `\d`, stay: documents rarely write them twice.
                    Some((_, other)) if other.is_alphanumeric() => text.extend(['\\', other]),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                _ if Some(character) == quote => {
                    self.advance(at + 1);
                    return Ok(text);
                }
                _ => text.push(character),
            }
        }
        Err("the JSONPath query ends too early".into())
    }

    fn take_word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        word
    }

    fn expect(&mut self, sign: &str) -> JsonPathResult<()> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected_input()) }
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
            "" => "the JSONPath query ends too early".into(),
            rest => format!("`{}` is not expected there in a JSONPath query", sanitize_truncated(rest, 40)),
        }
    }
}
