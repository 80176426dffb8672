//! Patterns plain enough to be run by a browser and to write an example for. They come from outside, and an expression
//! can be made that keeps a browser busy for ever: one that is taken here can be matched in one way only.

const LONGEST: usize = 200;
const MOST_TIMES: usize = 200;

/// `^…$`: characters and sets of characters, each so many times.
#[derive(Debug)]
pub(super) struct Pattern(Vec<Atom>);

#[derive(Debug)]
struct Atom {
    /// From one character to another, both included.
    any_of: Vec<(char, char)>,
    least: usize,
    most: Option<usize>,
}

impl Pattern {
    pub(super) fn read(text: &str) -> Option<Pattern> {
        let inner = text.strip_prefix('^')?.strip_suffix('$')?;
        if !inner.is_ascii() || inner.len() > LONGEST {
            return None;
        }
        let (mut rest, mut atoms) = (inner, Vec::new());
        while !rest.is_empty() {
            let (any_of, after) = set(rest)?;
            let (least, most, after) = times(after)?;
            atoms.push(Atom { any_of, least, most });
            rest = after;
        }
        let pattern = Pattern(atoms);
        pattern.is_plain().then_some(pattern)
    }

    /// Whether it is always clear from the next character which part of the pattern it belongs to.
    fn is_plain(&self) -> bool {
        self.0.iter().enumerate().filter(|(_, atom)| atom.most != Some(atom.least)).all(|(index, atom)| {
            let after = &self.0[index + 1..];
            let needed = after.iter().position(|next| next.least > 0).map_or(after.len(), |at| at + 1);
            after[..needed].iter().all(|next| !atom.overlaps(next))
        })
    }

    /// As an attribute of an input, in the dialect of browsers.
    pub(super) fn html(&self) -> String {
        let written = |(from, to): &(char, char)| match from == to {
            true => escaped(*from),
            false => format!("{}-{}", escaped(*from), escaped(*to)),
        };
        let one = |atom: &Atom| {
            let set: String = atom.any_of.iter().map(written).collect();
            match atom.most {
                Some(most) => format!("[{set}]{{{},{most}}}", atom.least),
                None => format!("[{set}]{{{},}}", atom.least),
            }
        };
        self.0.iter().map(one).collect()
    }

    /// A text that matches, of at least so many characters where it may have as many.
    pub(super) fn example(&self, least: usize) -> String {
        let mut counts: Vec<usize> = self.0.iter().map(|atom| atom.least).collect();
        let mut missing = least.saturating_sub(counts.iter().sum());
        for (atom, count) in self.0.iter().zip(&mut counts) {
            let more = atom.most.unwrap_or(MOST_TIMES).saturating_sub(*count).min(missing);
            (*count, missing) = (*count + more, missing - more);
        }
        let first = |atom: &Atom| atom.any_of.first().map_or(' ', |(from, _)| *from);
        self.0.iter().zip(counts).flat_map(|(atom, count)| std::iter::repeat_n(first(atom), count)).collect()
    }
}

impl Atom {
    fn overlaps(&self, other: &Atom) -> bool {
        self.any_of.iter().any(|(from, to)| other.any_of.iter().any(|(start, end)| from <= end && start <= to))
    }
}

/// One character or one set, and what follows it.
fn set(text: &str) -> Option<(Vec<(char, char)>, &str)> {
    let mut characters = text.chars();
    match characters.next()? {
        '[' => within(characters.as_str()),
        '\\' => Some((class(characters.next()?)?, characters.as_str())),
        '^' | '$' | '.' | '|' | '?' | '*' | '+' | '(' | ')' | ']' | '{' | '}' => None,
        plain => Some((vec![(plain, plain)], characters.as_str())),
    }
}

fn within(text: &str) -> Option<(Vec<(char, char)>, &str)> {
    let (mut any_of, mut rest) = (Vec::new(), text);
    loop {
        let mut characters = rest.chars();
        let from = match characters.next()? {
            ']' if !any_of.is_empty() => return Some((any_of, characters.as_str())),
            ']' | '^' | '[' => return None,
            '\\' => class(characters.next()?)?,
            plain => vec![(plain, plain)],
        };
        rest = characters.as_str();
        let to = rest.strip_prefix('-').and_then(|after| after.chars().next()).filter(|to| *to != ']');
        match (&from[..], to) {
            ([(from, _)], Some(to)) if to.is_ascii_alphanumeric() && *from <= to => {
                any_of.push((*from, to));
                rest = &rest[2..];
            }
            (_, Some(_)) => return None,
            (_, None) => any_of.extend(from),
        }
    }
}

fn class(escaped: char) -> Option<Vec<(char, char)>> {
    match escaped {
        'd' => Some(vec![('0', '9')]),
        'w' => Some(vec![('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')]),
        sign if sign.is_ascii_punctuation() => Some(vec![(sign, sign)]),
        _ => None,
    }
}

/// How many times, and what follows.
fn times(text: &str) -> Option<(usize, Option<usize>, &str)> {
    let (least, most, rest) = match text.chars().next() {
        Some('?') => (0, Some(1), &text[1..]),
        Some('*') => (0, None, &text[1..]),
        Some('+') => (1, None, &text[1..]),
        Some('{') => {
            let (inner, rest) = text[1..].split_once('}')?;
            let number = |text: &str| text.parse().ok().filter(|number| *number <= MOST_TIMES);
            match inner.split_once(',') {
                None => (number(inner)?, Some(number(inner)?), rest),
                Some((least, "")) => (number(least)?, None, rest),
                Some((least, most)) => (number(least)?, Some(number(most)?), rest),
            }
        }
        Some(_) | None => (1, Some(1), text),
    };
    (!rest.starts_with(['?', '+', '*', '{']) || rest.len() == text.len()).then_some(())?;
    most.is_none_or(|most| least <= most).then_some((least, most, rest))
}

/// In a set, in the dialect of browsers, where nearly every sign may mean something.
fn escaped(character: char) -> String {
    match character.is_ascii_punctuation() && !matches!(character, '_' | '\'' | '"') {
        true => format!("\\{character}"),
        false => character.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_pattern_has_an_example_and_others_are_left_alone() {
        let check = |text: &str, example: &str, html: &str| {
            let pattern = Pattern::read(text).unwrap();
            assert_eq!((pattern.example(0).as_str(), pattern.html().as_str()), (example, html), "{text}");
        };
        check("^[A-Z]{3}-[0-9]+$", "AAA-0", r"[A-Z]{3,3}[\-]{1,1}[0-9]{1,}");
        check(r"^v?\d+\.\d{2,4}$", "0.00", r"[v]{0,1}[0-9]{1,}[\.]{1,1}[0-9]{2,4}");
        check("^[a-z][a-z0-9_-]*$", "a", r"[a-z]{1,1}[a-z0-9_\-]{0,}");
        assert_eq!(Pattern::read("^a[0-9]{2,}$").unwrap().example(6), "a00000");
        for other in [
            "a",
            "^a",
            "^(a+)+$",
            "^a*a*$",
            "^a?b?a$",
            "^.$",
            "^a|b$",
            "^[^a]$",
            "^a{2}{3}$",
            "^a+?$",
            r"^\bx$",
            "^é$",
            "^[z-a]$",
        ] {
            assert!(Pattern::read(other).is_none(), "{other}");
        }
    }
}
