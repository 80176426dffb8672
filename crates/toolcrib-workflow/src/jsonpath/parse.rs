//! Recursive descent parser of JSONPath queries.
//!
//! The text is parsed as a query first. Real documents also write comparisons (`$.token != null`) and JavaScript's
//! `$.list.length`, which is a member name here. Messages name the input that was not expected, at most 40 characters.

use regex::Regex;
use toolcrib_core::text::sanitize_truncated;

use super::{JsonPathCondition, JsonPathOperand, JsonPathQuery, JsonPathSegment, JsonPathSelector, LogicalExpression};
use crate::criterion::compile_pattern;
use crate::lexer::{Lexer, parse_literal};

/// Parses a query, or a comparison that is not a query by the standard.
pub(super) fn parse_condition(text: &str) -> Result<JsonPathCondition, String> {
    let mut lexer = Lexer::new("JSONPath query", text, MAX_QUERY_DEPTH)?;
    // A query that ends early may be the left side of a comparison; an error inside it is final.
    if lexer.rest().starts_with('$') {
        let mut query_lexer = lexer.clone();
        let query = parse_query(&mut query_lexer)?;
        if query_lexer.rest().is_empty() {
            return Ok(JsonPathCondition::Query(query));
        }
    }
    // Input follows the query: it is the left side of a comparison.
    let comparison = parse_or(&mut lexer)?;
    if lexer.rest().is_empty() { Ok(JsonPathCondition::Comparison(comparison)) } else { Err(lexer.unexpected_input()) }
}

/// Maximum nesting; bounds the recursion of parser and evaluation. Nested filters multiply the work of a query, and
/// each level of one takes several stack frames.
const MAX_QUERY_DEPTH: usize = 16;

/// Result with a message for people.
type JsonPathResult<T> = Result<T, String>;

/// `$` or `@`, followed by segments.
fn parse_query(lexer: &mut Lexer<'_>) -> JsonPathResult<JsonPathQuery> {
    let relative = lexer.take("@");
    if !relative && !lexer.take("$") {
        return Err(lexer.unexpected_input());
    }
    // `.name`, `.*`, `..name`, `[…]`, `..[…]`, until something else follows.
    let mut segments = Vec::new();
    loop {
        let descendants = lexer.take("..");
        // `..` may be followed by brackets or by a name without another dot.
        let selectors = if lexer.take("[") {
            parse_selectors(lexer)?
        } else if descendants || lexer.take(".") {
            vec![if lexer.take("*") { JsonPathSelector::Wildcard } else { JsonPathSelector::Name(parse_name(lexer)?) }]
        } else {
            return Ok(JsonPathQuery { relative, segments });
        };
        segments.push(JsonPathSegment { descendants, selectors });
    }
}

/// Selectors in brackets, after the opening one.
fn parse_selectors(lexer: &mut Lexer<'_>) -> JsonPathResult<Vec<JsonPathSelector>> {
    // At least one: `[]` is an error.
    let selectors = lexer.parse_separated(",", parse_selector)?;
    lexer.expect("]")?;
    Ok(selectors)
}

/// One selector in brackets.
fn parse_selector(lexer: &mut Lexer<'_>) -> JsonPathResult<JsonPathSelector> {
    if lexer.take("*") {
        return Ok(JsonPathSelector::Wildcard);
    }
    if lexer.take("?") {
        return Ok(JsonPathSelector::Filter(parse_or(lexer)?));
    }
    if lexer.quote().is_some() {
        return Ok(JsonPathSelector::Name(parse_quoted(lexer)?));
    }
    // An index alone, or a slice with up to three parts, each of which may be empty: `[::-1]`.
    let start = parse_index(lexer)?;
    if !lexer.take(":") {
        return start.map(JsonPathSelector::Index).ok_or_else(|| lexer.unexpected_input());
    }
    let end = parse_index(lexer)?;
    let step = if lexer.take(":") { parse_index(lexer)?.unwrap_or(1) } else { 1 };
    Ok(JsonPathSelector::Slice { start, end, step })
}

/// `a || b`
fn parse_or(lexer: &mut Lexer<'_>) -> JsonPathResult<LogicalExpression> {
    // A single part stays wrapped; evaluation treats it the same.
    lexer.parse_separated("||", parse_and).map(LogicalExpression::Any)
}

/// `a && b`
fn parse_and(lexer: &mut Lexer<'_>) -> JsonPathResult<LogicalExpression> {
    lexer.parse_separated("&&", parse_unary).map(LogicalExpression::All)
}

/// `!a`, `(a)` or a test. All recursion through filters passes here.
fn parse_unary(lexer: &mut Lexer<'_>) -> JsonPathResult<LogicalExpression> {
    lexer.enter()?;
    // `!=` here has no left side; left in the input, it is reported as unexpected.
    let expression = if !lexer.rest().starts_with("!=") && lexer.take("!") {
        LogicalExpression::Not(Box::new(parse_unary(lexer)?))
    } else if lexer.take("(") {
        let inner = parse_or(lexer)?;
        lexer.expect(")")?;
        inner
    } else {
        parse_test(lexer)?
    };
    lexer.leave();
    Ok(expression)
}

/// `match`, `search`, a comparison, or a query that tests existence.
fn parse_test(lexer: &mut Lexer<'_>) -> JsonPathResult<LogicalExpression> {
    for (name, is_whole_text) in [("match(", true), ("search(", false)] {
        if lexer.take(name) {
            let operand = parse_operand(lexer)?;
            lexer.expect(",")?;
            let pattern = parse_pattern(lexer, is_whole_text)?;
            lexer.expect(")")?;
            return Ok(LogicalExpression::Matches(operand, pattern));
        }
    }
    let left = parse_operand(lexer)?;
    match lexer.take_comparison() {
        Some(operator) => Ok(LogicalExpression::Compare(left, operator, parse_operand(lexer)?)),
        None => match left {
            JsonPathOperand::Query(query) => Ok(LogicalExpression::Exists(query)),
            JsonPathOperand::Literal(_) | JsonPathOperand::Length(_) | JsonPathOperand::Count(_) => {
                Err("a literal alone is not a condition".into())
            }
        },
    }
}

/// A query, a literal or a function.
fn parse_operand(lexer: &mut Lexer<'_>) -> JsonPathResult<JsonPathOperand> {
    if lexer.rest().starts_with(['@', '$']) {
        return Ok(JsonPathOperand::Query(parse_query(lexer)?));
    }
    if lexer.quote().is_some() {
        return Ok(JsonPathOperand::Literal(parse_quoted(lexer)?.into()));
    }
    let word = lexer.take_word(|character| character.is_ascii_alphanumeric() || "_.+-".contains(character));
    if lexer.take("(") {
        return parse_function(lexer, word);
    }
    if word.is_empty() {
        return Err(lexer.unexpected_input());
    }
    let not_literal = || format!("`{}` is not a literal", sanitize_truncated(word, 40));
    parse_literal(word).map(JsonPathOperand::Literal).ok_or_else(not_literal)
}

/// Arguments of a function, after the opening parenthesis.
fn parse_function(lexer: &mut Lexer<'_>, name: &str) -> JsonPathResult<JsonPathOperand> {
    let operand = match name {
        "length" => {
            // Nested calls recurse without passing `parse_unary`.
            lexer.enter()?;
            let inner = parse_operand(lexer)?;
            lexer.leave();
            JsonPathOperand::Length(Box::new(inner))
        }
        "count" => JsonPathOperand::Count(parse_query(lexer)?),
        // A query operand takes the value of the only node already, which is what `value` does.
        "value" => JsonPathOperand::Query(parse_query(lexer)?),
        _ => return Err(format!("unknown function `{}`", sanitize_truncated(name, 40))),
    };
    lexer.expect(")")?;
    Ok(operand)
}

/// Literal pattern; `match` tests the whole text.
fn parse_pattern(lexer: &mut Lexer<'_>, is_whole_text: bool) -> JsonPathResult<Regex> {
    if lexer.quote().is_none() {
        return Err("a pattern must be a literal".into());
    }
    let text = parse_quoted(lexer)?;
    // The group keeps alternatives of the pattern together: `^a|b$` would match more.
    compile_pattern(&if is_whole_text { format!("^(?:{text})$") } else { text })
}

/// Member name after a dot.
fn parse_name(lexer: &mut Lexer<'_>) -> JsonPathResult<String> {
    let name = lexer.take_word(|character| character.is_alphanumeric() || character == '_' || character == '-');
    if name.is_empty() { Err(lexer.unexpected_input()) } else { Ok(name.to_owned()) }
}

/// Integer, or nothing.
fn parse_index(lexer: &mut Lexer<'_>) -> JsonPathResult<Option<i64>> {
    let word = lexer.take_word(|character| character.is_ascii_digit() || character == '-');
    if word.is_empty() {
        return Ok(None);
    }
    word.parse().map(Some).map_err(|_| format!("`{}` is not an index", sanitize_truncated(word, 40)))
}

/// Quoted string with backslash escapes.
fn parse_quoted(lexer: &mut Lexer<'_>) -> JsonPathResult<String> {
    let mut characters = lexer.rest().char_indices();
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
                lexer.advance(position + 1);
                return Ok(text);
            }
            _ => text.push(character),
        }
    }
    Err(lexer.unexpected_end())
}
