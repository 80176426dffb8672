//! From text to a number, by recursive descent, evaluated on the way.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = unary (("*" | "/" | "%") unary)*
//! unary   = ("-" | "+") unary | power
//! power   = atom ("^" unary)?
//! atom    = number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"
//! ```

use super::number::{Number, Outcome};

pub(super) const LONGEST: usize = 1000;
const DEEPEST: usize = 50;

/// The value of an expression, or what is wrong with it.
pub(super) fn evaluate(expression: &str) -> Outcome {
    if expression.len() > LONGEST {
        return Err(format!("the expression is longer than {LONGEST} characters"));
    }
    let mut parser = Parser { text: expression, position: 0, depth: 0 };
    let result = parser.sum()?;
    match parser.peek() {
        None => Ok(result),
        Some(character) => Err(parser.unexpected(character)),
    }
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Outcome {
        let mut left = self.product()?;
        loop {
            if self.take('+') {
                left = left.add(self.product()?)?;
            } else if self.take('-') || self.take('−') {
                left = left.subtract(self.product()?)?;
            } else {
                return Ok(left);
            }
        }
    }

    fn product(&mut self) -> Outcome {
        let mut left = self.unary()?;
        loop {
            if self.take('*') || self.take('×') {
                left = left.multiply(self.unary()?)?;
            } else if self.take('/') || self.take('÷') {
                left = left.divide(self.unary()?)?;
            } else if self.take('%') {
                left = left.remainder(self.unary()?)?;
            } else {
                return Ok(left);
            }
        }
    }

    /// Every nesting goes through here, so the depth is counted here.
    fn unary(&mut self) -> Outcome {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the expression is nested deeper than {DEEPEST} levels"));
        }
        let result = if self.take('-') || self.take('−') {
            self.unary()?.negate()
        } else if self.take('+') {
            self.unary()
        } else {
            self.power()
        };
        self.depth -= 1;
        result
    }

    fn power(&mut self) -> Outcome {
        let base = self.atom()?;
        if self.take_power() { base.power(self.unary()?) } else { Ok(base) }
    }

    fn atom(&mut self) -> Outcome {
        match self.peek() {
            Some('(') => {
                self.take('(');
                let inner = self.sum()?;
                self.expect(')')?;
                Ok(inner)
            }
            Some('0'..='9' | '.') => self.number(),
            Some('π') => {
                self.take('π');
                Number::of(std::f64::consts::PI)
            }
            Some(character) if character.is_ascii_alphabetic() => self.word(),
            Some(character) => Err(self.unexpected(character)),
            None => Err("the expression ends too early".into()),
        }
    }

    fn number(&mut self) -> Outcome {
        let rest = &self.text[self.position..];
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        // `2e3` is a number, `2e` is not, and says so by what follows.
        if rest[length..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
            let exponent = digits(&rest[length + 1 + sign..]);
            length += if exponent > 0 { 1 + sign + exponent } else { 0 };
        }
        let text = &rest[..length];
        self.position += length;
        match (text.parse::<i128>(), text.parse::<f64>()) {
            (Ok(integer), _) => Ok(Number::Integer(integer)),
            (Err(_), Ok(real)) => Number::of(real),
            (Err(_), Err(_)) => Err(format!("`{text}` is not a number")),
        }
    }

    /// A constant or a function.
    fn word(&mut self) -> Outcome {
        let rest = &self.text[self.position..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let name = rest[..length].to_ascii_lowercase();
        self.position += length;
        if self.take('(') {
            let mut arguments = vec![self.sum()?];
            while self.take(',') {
                arguments.push(self.sum()?);
            }
            self.expect(')')?;
            return call(&name, &arguments);
        }
        match name.as_str() {
            "pi" => Number::of(std::f64::consts::PI),
            "e" => Number::of(std::f64::consts::E),
            _ => Err(format!("`{}` is unknown; there are the constants `pi` and `e`", super::super::shown(&name))),
        }
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.position..];
        self.position += rest.len() - rest.trim_start().len();
        self.text[self.position..].chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.position += wanted.len_utf8();
        }
        found
    }

    /// `^`, and `**` as many write it. A single `*` is left to the product.
    fn take_power(&mut self) -> bool {
        if self.peek() == Some('*') && self.text[self.position..].starts_with("**") {
            self.position += 2;
            return true;
        }
        self.take('^')
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        if self.take(wanted) {
            return Ok(());
        }
        match self.peek() {
            Some(character) => Err(self.unexpected(character)),
            None => Err(format!("a `{wanted}` is missing at the end")),
        }
    }

    fn unexpected(&self, character: char) -> String {
        let before = self.text[..self.position].chars().count();
        format!("unexpected `{}` at position {}", character.escape_debug(), before + 1)
    }
}

fn call(name: &str, arguments: &[Number]) -> Outcome {
    let real = |function: fn(f64) -> f64, argument: &Number| Number::of(function(argument.real()));
    // Integers stay exact, however large.
    let whole = |function: fn(f64) -> f64, argument: &Number| match argument {
        Number::Integer(_) => Ok(*argument),
        Number::Real(number) => Number::of(function(*number)),
    };
    match (name, arguments) {
        ("sqrt", [x]) if x.real() < 0.0 => Err("the square root of a negative number is not real".into()),
        ("ln" | "log" | "log2" | "log10", [x, ..]) if x.real() <= 0.0 => {
            Err("a logarithm needs a number above zero".into())
        }
        ("sqrt", [x]) => real(f64::sqrt, x),
        ("abs", [x]) => x.absolute(),
        ("floor", [x]) => whole(f64::floor, x),
        ("ceil", [x]) => whole(f64::ceil, x),
        ("round", [x]) => whole(f64::round, x),
        ("round", [x, digits]) => x.round(*digits),
        ("sin", [x]) => real(f64::sin, x),
        ("cos", [x]) => real(f64::cos, x),
        ("tan", [x]) => real(f64::tan, x),
        ("exp", [x]) => real(f64::exp, x),
        ("ln", [x]) => real(f64::ln, x),
        ("log" | "log10", [x]) => real(f64::log10, x),
        ("log2", [x]) => real(f64::log2, x),
        ("log", [x, base]) => Number::of(x.real().ln()).and_then(|x| x.divide(Number::of(base.real().ln())?)),
        ("pow", [x, exponent]) => x.power(*exponent),
        ("min", [first, rest @ ..]) => {
            Ok(rest.iter().fold(*first, |least, x| if x.real() < least.real() { *x } else { least }))
        }
        ("max", [first, rest @ ..]) => {
            Ok(rest.iter().fold(*first, |most, x| if x.real() > most.real() { *x } else { most }))
        }
        (
            "sqrt" | "abs" | "floor" | "ceil" | "round" | "sin" | "cos" | "tan" | "exp" | "ln" | "log" | "log2"
            | "log10" | "pow",
            _,
        ) => Err(format!("`{name}` does not take {} arguments", arguments.len())),
        _ => Err(format!(
            "no function named `{}`; there are sqrt, abs, min, max, round, floor, ceil, sin, cos, tan, ln, log, \
             log2, log10, exp, pow",
            super::super::shown(name)
        )),
    }
}
