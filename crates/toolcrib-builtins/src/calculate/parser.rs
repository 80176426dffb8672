//! Recursive descent parser that evaluates an expression while parsing it. No syntax tree is built; the length and the
//! nesting of the input bound the work. Errors are messages for the model, with the position in characters.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = unary (("*" | "/" | "%") unary)*
//! unary   = ("-" | "+") unary | power
//! power   = atom ("^" unary)?
//! atom    = number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"
//! ```

use super::number::{Number, NumberResult};

/// Maximum length of an expression in bytes; also in the tool's input schema.
pub(super) const MAX_EXPRESSION_LEN: usize = 1000;
/// Maximum nesting, which bounds the recursion.
const MAX_NESTING_DEPTH: usize = 50;

/// Evaluates an expression. The error is a message for the agent.
pub(super) fn evaluate(expression: &str) -> NumberResult {
    if expression.len() > MAX_EXPRESSION_LEN {
        return Err(format!("the expression is longer than {MAX_EXPRESSION_LEN} characters"));
    }
    let mut parser = CalcParser { text: expression, position: 0, depth: 0 };
    let result = parser.parse_sum()?;
    match parser.peek() {
        None => Ok(result),
        Some(character) => Err(parser.unexpected_character(character)),
    }
}

/// Parser state.
struct CalcParser<'a> {
    text: &'a str,
    /// Byte offset of the next character.
    position: usize,
    /// Number of open calls of `parse_unary`, at most [`MAX_NESTING_DEPTH`].
    depth: usize,
}

impl CalcParser<'_> {
    /// Addition and subtraction. The typographic minus sign is accepted as well.
    fn parse_sum(&mut self) -> NumberResult {
        // Left-associative.
        let mut left = self.parse_product()?;
        loop {
            if self.consume('+') {
                left = left.add(self.parse_product()?)?;
            } else if self.consume('-') || self.consume('−') {
                left = left.subtract(self.parse_product()?)?;
            } else {
                return Ok(left);
            }
        }
    }

    /// Multiplication, division and remainder, left-associative.
    fn parse_product(&mut self) -> NumberResult {
        let mut left = self.parse_unary()?;
        loop {
            if self.consume('*') || self.consume('×') {
                left = left.multiply(self.parse_unary()?)?;
            } else if self.consume('/') || self.consume('÷') {
                left = left.divide(self.parse_unary()?)?;
            } else if self.consume('%') {
                left = left.remainder(self.parse_unary()?)?;
            } else {
                return Ok(left);
            }
        }
    }

    /// Every nesting passes through this method, so it counts the depth.
    fn parse_unary(&mut self) -> NumberResult {
        self.depth += 1;
        if self.depth > MAX_NESTING_DEPTH {
            return Err(format!("the expression is nested deeper than {MAX_NESTING_DEPTH} levels"));
        }
        let result = if self.consume('-') || self.consume('−') {
            self.parse_unary()?.negate()
        } else if self.consume('+') {
            self.parse_unary()
        } else {
            self.parse_power()
        };
        self.depth -= 1;
        result
    }

    /// Binds tighter than the sign on its left: `-2^2` is -4.
    fn parse_power(&mut self) -> NumberResult {
        // Right-associative, and a sign is allowed in the exponent: `2^-1`.
        let base = self.parse_atom()?;
        if self.consume_power_operator() { base.power(self.parse_unary()?) } else { Ok(base) }
    }

    /// Number, constant, function call or parenthesised expression.
    fn parse_atom(&mut self) -> NumberResult {
        match self.peek() {
            Some('(') => {
                self.consume('(');
                let inner = self.parse_sum()?;
                self.expect(')')?;
                Ok(inner)
            }
            // A sign is not part of a number: `parse_unary` has handled it.
            Some('0'..='9' | '.') => self.parse_number(),
            Some('π') => {
                self.consume('π');
                Number::from_f64(std::f64::consts::PI)
            }
            Some(character) if character.is_ascii_alphabetic() => self.parse_identifier(),
            Some(character) => Err(self.unexpected_character(character)),
            None => Err("the expression ends too early".into()),
        }
    }

    /// Decimal number with optional fraction and exponent.
    fn parse_number(&mut self) -> NumberResult {
        let rest = &self.text[self.position..];
        let count_digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = count_digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + count_digits(&rest[length + 1..]);
        }
        // `2e3` is a number; in `2e` the `e` is left over and reported as unexpected.
        if rest[length..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
            let exponent = count_digits(&rest[length + 1 + sign..]);
            length += if exponent > 0 { 1 + sign + exponent } else { 0 };
        }
        let text = &rest[..length];
        self.position += length;
        // Integers beyond 128 bits become floats.
        match (text.parse::<i128>(), text.parse::<f64>()) {
            (Ok(integer), _) => Ok(Number::Integer(integer)),
            (Err(_), Ok(float)) => Number::from_f64(float),
            (Err(_), Err(_)) => Err(format!("`{text}` is not a number")),
        }
    }

    /// Parses a constant or a function call.
    fn parse_identifier(&mut self) -> NumberResult {
        let rest = &self.text[self.position..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let name = rest[..length].to_ascii_lowercase();
        self.position += length;
        if self.consume('(') {
            let mut arguments = vec![self.parse_sum()?];
            while self.consume(',') {
                arguments.push(self.parse_sum()?);
            }
            self.expect(')')?;
            return call_function(&name, &arguments);
        }
        match name.as_str() {
            "pi" => Number::from_f64(std::f64::consts::PI),
            "e" => Number::from_f64(std::f64::consts::E),
            _ => Err(format!(
                "`{}` is unknown; there are the constants `pi` and `e`",
                super::super::sanitize_for_message(&name)
            )),
        }
    }

    /// Next character after white space.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.position..];
        self.position += rest.len() - rest.trim_start().len();
        self.text[self.position..].chars().next()
    }

    /// Consumes the character if it comes next.
    fn consume(&mut self, expected: char) -> bool {
        let matches = self.peek() == Some(expected);
        if matches {
            self.position += expected.len_utf8();
        }
        matches
    }

    /// Consumes `^` or `**`. A single `*` is left to `parse_product`.
    fn consume_power_operator(&mut self) -> bool {
        if self.peek() == Some('*') && self.text[self.position..].starts_with("**") {
            self.position += 2;
            return true;
        }
        self.consume('^')
    }

    /// Consumes a character that must come next.
    fn expect(&mut self, expected: char) -> Result<(), String> {
        if self.consume(expected) {
            return Ok(());
        }
        match self.peek() {
            Some(character) => Err(self.unexpected_character(character)),
            None => Err(format!("a `{expected}` is missing at the end")),
        }
    }

    /// Message with the position in characters.
    fn unexpected_character(&self, character: char) -> String {
        let before = self.text[..self.position].chars().count();
        format!("unexpected `{}` at position {}", character.escape_debug(), before + 1)
    }
}

/// Calls a function by name.
fn call_function(name: &str, arguments: &[Number]) -> NumberResult {
    let float_function = |function: fn(f64) -> f64, argument: &Number| Number::from_f64(function(argument.to_f64()));
    // Integers stay exact, however large they are.
    let integer_preserving = |function: fn(f64) -> f64, argument: &Number| match argument {
        Number::Integer(_) => Ok(*argument),
        Number::Real(number) => Number::from_f64(function(*number)),
    };
    // Arguments out of range first, then the functions, then wrong counts, and at last unknown names.
    match (name, arguments) {
        ("sqrt", [x]) if x.to_f64() < 0.0 => Err("the square root of a negative number is not real".into()),
        ("ln" | "log" | "log2" | "log10", [x, ..]) if x.to_f64() <= 0.0 => {
            Err("a logarithm needs a number above zero".into())
        }
        ("sqrt", [x]) => float_function(f64::sqrt, x),
        ("abs", [x]) => x.absolute(),
        ("floor", [x]) => integer_preserving(f64::floor, x),
        ("ceil", [x]) => integer_preserving(f64::ceil, x),
        ("round", [x]) => integer_preserving(f64::round, x),
        ("round", [x, places]) => x.round(*places),
        ("sin", [x]) => float_function(f64::sin, x),
        ("cos", [x]) => float_function(f64::cos, x),
        ("tan", [x]) => float_function(f64::tan, x),
        ("exp", [x]) => float_function(f64::exp, x),
        ("ln", [x]) => float_function(f64::ln, x),
        ("log" | "log10", [x]) => float_function(f64::log10, x),
        ("log2", [x]) => float_function(f64::log2, x),
        ("log", [x, base]) => {
            Number::from_f64(x.to_f64().ln()).and_then(|x| x.divide(Number::from_f64(base.to_f64().ln())?))
        }
        ("pow", [x, exponent]) => x.power(*exponent),
        ("min", [first, rest @ ..]) => {
            Ok(rest.iter().fold(*first, |smallest, x| if x.to_f64() < smallest.to_f64() { *x } else { smallest }))
        }
        ("max", [first, rest @ ..]) => {
            Ok(rest.iter().fold(*first, |largest, x| if x.to_f64() > largest.to_f64() { *x } else { largest }))
        }
        (
            "sqrt" | "abs" | "floor" | "ceil" | "round" | "sin" | "cos" | "tan" | "exp" | "ln" | "log" | "log2"
            | "log10" | "pow",
            _,
        ) => {
            let count = arguments.len();
            Err(format!("`{name}` does not take {count} argument{}", if count == 1 { "" } else { "s" }))
        }
        _ => Err(format!(
            "no function named `{}`; there are sqrt, abs, min, max, round, floor, ceil, sin, cos, tan, ln, log, \
             log2, log10, exp, pow",
            super::super::sanitize_for_message(name)
        )),
    }
}
