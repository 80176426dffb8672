//! From the text of a query to its parts.

use regex::Regex;
use serde_json::Value;

use super::{Comparison, Kind, Logical, Operand, Query, Question, Segment, Selector};
use crate::arazzo::criterion::pattern;
use crate::text::shown_short;

pub(super) fn question(text: &str) -> Result<Question, String> {
    if text.len() > LONGEST {
        return Err(format!("the JSONPath query is longer than {LONGEST} characters"));
    }
    let mut parser = Parser { rest: text.trim(), depth: 0 };
    if parser.rest.starts_with('$') {
        let query = parser.query()?;
        if parser.rest.is_empty() {
            return Ok(Question(Kind::Query(query)));
        }
    }
    parser = Parser { rest: text.trim(), depth: 0 };
    let comparison = parser.any()?;
    if parser.rest.is_empty() { Ok(Question(Kind::Comparison(comparison))) } else { Err(parser.unexpected()) }
}

const LONGEST: usize = 2000;
const DEEPEST: usize = 16;

/// Spaces after each token are skipped as it is taken.
struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser<'_> {
    fn query(&mut self) -> Parsed<Query> {
        let relative = self.take("@");
        if !relative && !self.take("$") {
            return Err(self.unexpected());
        }
        let mut segments = Vec::new();
        loop {
            let descendants = self.take("..");
            let selectors = if self.take("[") {
                self.selectors()?
            } else if descendants || self.take(".") {
                vec![if self.take("*") { Selector::Wildcard } else { Selector::Name(self.name()?) }]
            } else {
                return Ok(Query { relative, segments });
            };
            segments.push(Segment { descendants, selectors });
        }
    }

    fn selectors(&mut self) -> Parsed<Vec<Selector>> {
        let mut selectors = vec![self.selector()?];
        while self.take(",") {
            selectors.push(self.selector()?);
        }
        self.expect("]")?;
        Ok(selectors)
    }

    fn selector(&mut self) -> Parsed<Selector> {
        if self.take("*") {
            return Ok(Selector::Wildcard);
        }
        if self.take("?") {
            return Ok(Selector::Filter(self.any()?));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(Selector::Name(self.quoted()?));
        }
        let start = self.index()?;
        if !self.take(":") {
            return start.map(Selector::Index).ok_or_else(|| self.unexpected());
        }
        let end = self.index()?;
        let step = if self.take(":") { self.index()?.unwrap_or(1) } else { 1 };
        Ok(Selector::Slice { start, end, step })
    }

    fn any(&mut self) -> Parsed<Logical> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        Ok(Logical::Any(parts))
    }

    fn all(&mut self) -> Parsed<Logical> {
        let mut parts = vec![self.single()?];
        while self.take("&&") {
            parts.push(self.single()?);
        }
        Ok(Logical::All(parts))
    }

    /// Everything that nests passes here.
    fn single(&mut self) -> Parsed<Logical> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("the JSONPath query is nested deeper than {DEEPEST} levels"));
        }
        let logical = if !self.rest.starts_with("!=") && self.take("!") {
            Logical::Not(Box::new(self.single()?))
        } else if self.take("(") {
            let inner = self.any()?;
            self.expect(")")?;
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(logical)
    }

    fn test(&mut self) -> Parsed<Logical> {
        for (name, whole) in [("match(", true), ("search(", false)] {
            if self.take(name) {
                let operand = self.operand()?;
                self.expect(",")?;
                let pattern = self.pattern(whole)?;
                self.expect(")")?;
                return Ok(Logical::Matches(operand, pattern));
            }
        }
        const COMPARISONS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let left = self.operand()?;
        match COMPARISONS.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, comparison)) => Ok(Logical::Compare(left, comparison, self.operand()?)),
            None => match left {
                Operand::Query(query) => Ok(Logical::Exists(query)),
                Operand::Literal(_) | Operand::Length(_) | Operand::Count(_) => {
                    Err("a literal alone is no condition".into())
                }
            },
        }
    }

    fn operand(&mut self) -> Parsed<Operand> {
        if self.rest.starts_with(['@', '$']) {
            return Ok(Operand::Query(self.query()?));
        }
        if self.rest.starts_with(['\'', '"']) {
            return Ok(Operand::Literal(self.quoted()?.into()));
        }
        let word = self.word(|character| character.is_ascii_alphanumeric() || "_.+-".contains(character));
        if self.take("(") {
            return self.function(&word);
        }
        let literal = match word.as_str() {
            "" => return Err(self.unexpected()),
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number => {
                Value::Number(number.parse().map_err(|_| format!("`{}` is no literal", shown_short(number, 40)))?)
            }
        };
        Ok(Operand::Literal(literal))
    }

    fn function(&mut self, name: &str) -> Parsed<Operand> {
        let operand = match name {
            "length" => {
                // The argument cannot be deeper than the text is long, but a stack has other limits.
                self.depth += 1;
                if self.depth > DEEPEST {
                    return Err(format!("the JSONPath query is nested deeper than {DEEPEST} levels"));
                }
                let inner = self.operand()?;
                self.depth -= 1;
                Operand::Length(Box::new(inner))
            }
            "count" => Operand::Count(self.query()?),
            "value" => Operand::Query(self.query()?),
            _ => return Err(format!("there is no function `{}`", shown_short(name, 40))),
        };
        self.expect(")")?;
        Ok(operand)
    }

    fn pattern(&mut self, whole: bool) -> Parsed<Regex> {
        if !self.rest.starts_with(['\'', '"']) {
            return Err("a pattern must be a literal".into());
        }
        let text = self.quoted()?;
        pattern(&if whole { format!("^(?:{text})$") } else { text })
    }

    fn name(&mut self) -> Parsed<String> {
        let name = self.word(|character| character.is_alphanumeric() || character == '_' || character == '-');
        if name.is_empty() { Err(self.unexpected()) } else { Ok(name) }
    }

    fn index(&mut self) -> Parsed<Option<i64>> {
        let word = self.word(|character| character.is_ascii_digit() || character == '-');
        if word.is_empty() {
            return Ok(None);
        }
        word.parse().map(Some).map_err(|_| format!("`{}` is no index", shown_short(&word, 40)))
    }

    fn quoted(&mut self) -> Parsed<String> {
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

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let end = self.rest.find(|character| !belongs(character)).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_owned();
        self.advance(end);
        word
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected()) }
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
            "" => "the JSONPath query ends too early".into(),
            rest => format!("`{}` is not expected there in a JSONPath query", shown_short(rest, 40)),
        }
    }
}
