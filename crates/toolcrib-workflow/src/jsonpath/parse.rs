//! Recursive descent parser of JSONPath queries.
//!
//! The text is parsed as a query first. Real documents also write comparisons (`$.token != null`) and JavaScript's
//! `$.list.length`, which is a member name here. Messages name the input that was not expected, at most 40 characters.

use regex::Regex;
use toolcrib_core::text::sanitize_truncated;

use super::{
    JsonPathCondition, JsonPathConditionKind, JsonPathOperand, JsonPathQuery, JsonPathSegment, JsonPathSelector,
    LogicalExpression,
};
use crate::criterion::compile_pattern;
use crate::lexer::{Lexer, parse_literal};

/// Parses a query, or a comparison that is not a query by the standard.
pub(super) fn parse_condition(text: &str) -> Result<JsonPathCondition, String> {
    let lexer = Lexer::new("JSONPath query", text, MAX_QUERY_DEPTH)?;
    // A query that ends early may be the left side of a comparison; an error inside it is final.
    let mut parser = JsonPathParser { lexer: lexer.clone() };
    if lexer.rest().starts_with('$') {
        let query = parser.parse_query()?;
        if parser.lexer.rest().is_empty() {
            return Ok(JsonPathCondition(JsonPathConditionKind::Query(query)));
        }
    }
    // Input follows the query: it is the left side of a comparison.
    parser = JsonPathParser { lexer };
    let comparison = parser.parse_or()?;
    if parser.lexer.rest().is_empty() {
        Ok(JsonPathCondition(JsonPathConditionKind::Comparison(comparison)))
    } else {
        Err(parser.lexer.unexpected_input())
    }
}

/// Maximum nesting; bounds the recursion of parser and evaluation. Nested filters multiply the work of a query, and
/// each level of one takes several stack frames.
const MAX_QUERY_DEPTH: usize = 16;

/// Recursive descent parser.
struct JsonPathParser<'a> {
    lexer: Lexer<'a>,
}

/// Result with a message for people.
type JsonPathResult<T> = Result<T, String>;

impl JsonPathParser<'_> {
    /// `$` or `@`, followed by segments.
    fn parse_query(&mut self) -> JsonPathResult<JsonPathQuery> {
        let relative = self.lexer.take("@");
        if !relative && !self.lexer.take("$") {
            return Err(self.lexer.unexpected_input());
        }
        // `.name`, `.*`, `..name`, `[…]`, `..[…]`, until something else follows.
        let mut segments = Vec::new();
        loop {
            let descendants = self.lexer.take("..");
            // `..` may be followed by brackets or by a name without another dot.
            let selectors = if self.lexer.take("[") {
                self.parse_selectors()?
            } else if descendants || self.lexer.take(".") {
                vec![if self.lexer.take("*") {
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

    /// Selectors in brackets, after the opening one.
    fn parse_selectors(&mut self) -> JsonPathResult<Vec<JsonPathSelector>> {
        // At least one: `[]` is an error.
        let mut selectors = vec![self.parse_selector()?];
        while self.lexer.take(",") {
            selectors.push(self.parse_selector()?);
        }
        self.lexer.expect("]")?;
        Ok(selectors)
    }

    /// One selector in brackets.
    fn parse_selector(&mut self) -> JsonPathResult<JsonPathSelector> {
        if self.lexer.take("*") {
            return Ok(JsonPathSelector::Wildcard);
        }
        if self.lexer.take("?") {
            return Ok(JsonPathSelector::Filter(self.parse_or()?));
        }
        if self.lexer.quote().is_some() {
            return Ok(JsonPathSelector::Name(self.parse_quoted()?));
        }
        // An index alone, or a slice with up to three parts, each of which may be empty: `[::-1]`.
        let start = self.parse_index()?;
        if !self.lexer.take(":") {
            return start.map(JsonPathSelector::Index).ok_or_else(|| self.lexer.unexpected_input());
        }
        let end = self.parse_index()?;
        let step = if self.lexer.take(":") { self.parse_index()?.unwrap_or(1) } else { 1 };
        Ok(JsonPathSelector::Slice { start, end, step })
    }

    /// `a || b`
    fn parse_or(&mut self) -> JsonPathResult<LogicalExpression> {
        let mut parts = vec![self.parse_and()?];
        while self.lexer.take("||") {
            parts.push(self.parse_and()?);
        }
        // A single part stays wrapped; evaluation treats it the same.
        Ok(LogicalExpression::Any(parts))
    }

    /// `a && b`
    fn parse_and(&mut self) -> JsonPathResult<LogicalExpression> {
        let mut parts = vec![self.parse_unary()?];
        while self.lexer.take("&&") {
            parts.push(self.parse_unary()?);
        }
        Ok(LogicalExpression::All(parts))
    }

    /// `!a`, `(a)` or a test. All recursion through filters passes here.
    fn parse_unary(&mut self) -> JsonPathResult<LogicalExpression> {
        self.lexer.enter()?;
        // `!=` here has no left side; left in the input, it is reported as unexpected.
        let expression = if !self.lexer.rest().starts_with("!=") && self.lexer.take("!") {
            LogicalExpression::Not(Box::new(self.parse_unary()?))
        } else if self.lexer.take("(") {
            let inner = self.parse_or()?;
            self.lexer.expect(")")?;
            inner
        } else {
            self.parse_test()?
        };
        self.lexer.leave();
        Ok(expression)
    }

    /// `match`, `search`, a comparison, or a query that tests existence.
    fn parse_test(&mut self) -> JsonPathResult<LogicalExpression> {
        for (name, is_whole_text) in [("match(", true), ("search(", false)] {
            if self.lexer.take(name) {
                let operand = self.parse_operand()?;
                self.lexer.expect(",")?;
                let pattern = self.parse_pattern(is_whole_text)?;
                self.lexer.expect(")")?;
                return Ok(LogicalExpression::Matches(operand, pattern));
            }
        }
        let left = self.parse_operand()?;
        match self.lexer.take_comparison() {
            Some(operator) => Ok(LogicalExpression::Compare(left, operator, self.parse_operand()?)),
            None => match left {
                JsonPathOperand::Query(query) => Ok(LogicalExpression::Exists(query)),
                JsonPathOperand::Literal(_) | JsonPathOperand::Length(_) | JsonPathOperand::Count(_) => {
                    Err("a literal alone is not a condition".into())
                }
            },
        }
    }

    /// A query, a literal or a function.
    fn parse_operand(&mut self) -> JsonPathResult<JsonPathOperand> {
        if self.lexer.rest().starts_with(['@', '$']) {
            return Ok(JsonPathOperand::Query(self.parse_query()?));
        }
        if self.lexer.quote().is_some() {
            return Ok(JsonPathOperand::Literal(self.parse_quoted()?.into()));
        }
        let word = self.lexer.take_word(|character| character.is_ascii_alphanumeric() || "_.+-".contains(character));
        if self.lexer.take("(") {
            return self.parse_function(word);
        }
        if word.is_empty() {
            return Err(self.lexer.unexpected_input());
        }
        let not_literal = || format!("`{}` is not a literal", sanitize_truncated(word, 40));
        parse_literal(word).map(JsonPathOperand::Literal).ok_or_else(not_literal)
    }

    /// Arguments of a function, after the opening parenthesis.
    fn parse_function(&mut self, name: &str) -> JsonPathResult<JsonPathOperand> {
        let operand = match name {
            "length" => {
                // Nested calls recurse without passing `parse_unary`.
                self.lexer.enter()?;
                let inner = self.parse_operand()?;
                self.lexer.leave();
                JsonPathOperand::Length(Box::new(inner))
            }
            "count" => JsonPathOperand::Count(self.parse_query()?),
            // A query operand takes the value of the only node already, which is what `value` does.
            "value" => JsonPathOperand::Query(self.parse_query()?),
            _ => return Err(format!("unknown function `{}`", sanitize_truncated(name, 40))),
        };
        self.lexer.expect(")")?;
        Ok(operand)
    }

    /// Literal pattern; `match` tests the whole text.
    fn parse_pattern(&mut self, is_whole_text: bool) -> JsonPathResult<Regex> {
        if self.lexer.quote().is_none() {
            return Err("a pattern must be a literal".into());
        }
        let text = self.parse_quoted()?;
        // The group keeps alternatives of the pattern together: `^a|b$` would match more.
        compile_pattern(&if is_whole_text { format!("^(?:{text})$") } else { text })
    }

    /// Member name after a dot.
    fn parse_name(&mut self) -> JsonPathResult<String> {
        let name =
            self.lexer.take_word(|character| character.is_alphanumeric() || character == '_' || character == '-');
        if name.is_empty() { Err(self.lexer.unexpected_input()) } else { Ok(name.to_owned()) }
    }

    /// Integer, or nothing.
    fn parse_index(&mut self) -> JsonPathResult<Option<i64>> {
        let word = self.lexer.take_word(|character| character.is_ascii_digit() || character == '-');
        if word.is_empty() {
            return Ok(None);
        }
        word.parse().map(Some).map_err(|_| format!("`{}` is not an index", sanitize_truncated(word, 40)))
    }

    /// Quoted string with backslash escapes.
    fn parse_quoted(&mut self) -> JsonPathResult<String> {
        let mut characters = self.lexer.rest().char_indices();
        let quote = characters.next().map(|(_, quote)| quote);
        let mut text = String::new();
        while let Some((position, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    // Escapes of patterns, such as `\d`, are kept: real documents rarely double the backslash.
                    Some((_, other)) if other.is_alphanumeric() => text.extend(['\\', other]),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                _ if Some(character) == quote => {
                    self.lexer.advance(position + 1);
                    return Ok(text);
                }
                _ => text.push(character),
            }
        }
        Err(self.lexer.unexpected_end())
    }
}
