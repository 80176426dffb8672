//! Input of the recursive descent parsers of conditions and JSONPath queries: symbols, words, and bounds on length and
//! nesting. White space after each token is skipped.

use serde_json::Value;
use toolcrib_core::json::parse_integer;
use toolcrib_core::text::sanitize_truncated;

/// Maximum length of a condition or query in bytes. A workflow with a longer one is skipped when the document is parsed.
const MAX_TEXT_LEN: usize = 2000;

/// Comparison operator of simple conditions and JSONPath filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparisonOperator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// A position in a text.
#[derive(Clone)]
pub(super) struct Lexer<'a> {
    /// `condition` or `JSONPath query`, for messages.
    language: &'static str,
    rest: &'a str,
    depth: usize,
    max_depth: usize,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of a text. Fails if it is too long.
    pub(super) fn new(language: &'static str, text: &'a str, max_depth: usize) -> Result<Lexer<'a>, String> {
        if text.len() > MAX_TEXT_LEN {
            return Err(format!("the {language} is longer than {MAX_TEXT_LEN} bytes"));
        }
        Ok(Lexer { language, rest: text.trim(), depth: 0, max_depth })
    }

    /// Returns the text that is not parsed yet.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Returns the quote that a string at the current position begins with.
    pub(super) fn quote(&self) -> Option<char> {
        self.rest.chars().next().filter(|first| matches!(first, '\'' | '"'))
    }

    /// Consumes a symbol if it is next.
    pub(super) fn take(&mut self, symbol: &str) -> bool {
        let is_next = self.rest.starts_with(symbol);
        if is_next {
            self.advance(symbol.len());
        }
        is_next
    }

    /// Consumes a symbol; fails if another input is next.
    pub(super) fn expect(&mut self, symbol: &str) -> Result<(), String> {
        if self.take(symbol) { Ok(()) } else { Err(self.unexpected_input()) }
    }

    /// Parses parts with a symbol between them; at least one.
    pub(super) fn parse_separated<T>(
        &mut self,
        symbol: &str,
        parse_part: fn(&mut Lexer<'a>) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut parts = vec![parse_part(self)?];
        while self.take(symbol) {
            parts.push(parse_part(self)?);
        }
        Ok(parts)
    }

    /// Consumes a comparison operator if one is next.
    pub(super) fn take_comparison(&mut self) -> Option<ComparisonOperator> {
        // Longer operators come first, so `<=` is not read as `<`.
        const COMPARISONS: [(&str, ComparisonOperator); 6] = [
            ("==", ComparisonOperator::Equal),
            ("!=", ComparisonOperator::NotEqual),
            ("<=", ComparisonOperator::LessOrEqual),
            (">=", ComparisonOperator::GreaterOrEqual),
            ("<", ComparisonOperator::Less),
            (">", ComparisonOperator::Greater),
        ];
        COMPARISONS.into_iter().find(|(symbol, _)| self.take(symbol)).map(|(_, operator)| operator)
    }

    /// Consumes the longest run of characters that `is_part` accepts.
    pub(super) fn take_word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|character| !is_part(character)).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.advance(end);
        word
    }

    /// Skips this many bytes and the white space after them.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// Begins a level of nesting. Every recursion passes here, so the depth of the stack is bounded.
    pub(super) fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return Err(format!("the {} is nested deeper than {} levels", self.language, self.max_depth));
        }
        Ok(())
    }

    /// Ends the level that [`Lexer::enter`] began. An error ends the parser, so that no level need be left then.
    pub(super) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns the message for input that ends where more is needed.
    pub(super) fn unexpected_end(&self) -> String {
        format!("the {} ends too early", self.language)
    }

    /// Returns the message for the input at the current position.
    pub(super) fn unexpected_input(&self) -> String {
        match self.rest {
            "" => self.unexpected_end(),
            rest => format!("unexpected `{}` in the {}", sanitize_truncated(rest, 40), self.language),
        }
    }
}

/// Parses a number, `true`, `false` or `null`.
pub(super) fn parse_literal(word: &str) -> Option<Value> {
    match word {
        "true" => Some(Value::Bool(true)),
        "false" => Some(Value::Bool(false)),
        "null" => Some(Value::Null),
        number => parse_integer(number).or_else(|| number.parse().ok().map(Value::Number)),
    }
}
