//! Finding the tool somebody asked for by name, or saying which they may have meant.

use serde_json::json;

use super::{Catalog, State, ToolRef};
use crate::error::{Code, Error, Result};
use crate::policy::Verdict;
use crate::source::SourceId;
use crate::text::shown_short;
use crate::tool::{Asked, parse_name};

const MOST_NEAR: usize = 3;
/// How close a name must be to be worth mentioning, from 0 to 1.
const NEAR: f64 = 0.6;

impl Catalog {
    /// By the name agents see, by `source__tool`, `source/tool` or `source:tool`, or bare when it is unique.
    pub fn find(&self, name: &str) -> Result<ToolRef<'_>> {
        let found = match parse_name(name)? {
            Asked::Qualified { source, tool } => self.qualified(source, tool),
            Asked::Bare(tool) => match &self.bare(tool)[..] {
                [] => None,
                [only] => Some(*only),
                several => return Err(ambiguous(tool, several)),
            },
        };
        // A tool's own name may hold a separator too.
        let found = found.or_else(|| match &self.bare(name)[..] {
            [only] => Some(*only),
            _ => None,
        });
        found.ok_or_else(|| self.unknown(name))
    }

    /// `TOOL_NOT_IMPLEMENTED`, with the names that come nearest; what can be no name at all is a wrong one.
    pub fn unknown(&self, name: &str) -> Error {
        let near = self.near(name);
        let shown = shown_short(name, 80);
        let message = match &near[..] {
            [] => format!("no tool named `{shown}`"),
            names => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("no tool named `{shown}`; did you mean {}?", names.join(" or "))
            }
        };
        let odd = |letter: char| letter.is_whitespace() || (letter.is_ascii_punctuation() && !"_-.:/".contains(letter));
        let code = if name.contains(odd) { Code::ToolInvalidInput } else { Code::ToolNotImplemented };
        Error::new(code, message).with_details(json!({ "near": near }))
    }

    fn qualified(&self, source: &str, tool: &str) -> Option<ToolRef<'_>> {
        // Most write the id as it is; any other spelling is made one first.
        let placed = self.placed(source).or_else(|| self.placed(SourceId::made_of(source).ok()?.as_str()))?;
        let segment = &placed.part.segment;
        let name = format!("{}{tool}", segment.prefix());
        let position = segment.position_of_name(&name).or_else(|| segment.position_of_original(tool))?;
        let entry = &segment.entries()[position];
        placed.masked.binary_search(&position).is_err().then_some(ToolRef { part: &placed.part, entry })
    }

    /// Every tool whose own name this is; a built-in goes before all others.
    fn bare(&self, tool: &str) -> Vec<ToolRef<'_>> {
        let mut found = Vec::new();
        for placed in self.all() {
            let segment = &placed.part.segment;
            let name = format!("{}{tool}", segment.prefix());
            let position = segment.position_of_original(tool).or_else(|| segment.position_of_name(&name));
            let Some(position) = position.filter(|position| placed.masked.binary_search(position).is_err()) else {
                continue;
            };
            let entry = &segment.entries()[position];
            let tool = ToolRef { part: &placed.part, entry };
            if placed.part.manner.builtin {
                return vec![tool];
            }
            if tool.verdict() != Verdict::Hide {
                found.push(tool);
            }
        }
        found
    }

    fn near(&self, name: &str) -> Vec<String> {
        let wanted = Wanted::new(name);
        let seen = self
            .tools()
            .filter(|tool| tool.verdict() != Verdict::Hide && !tool.internal() && tool.state() == State::Active);
        let mut nearest: Vec<(f64, &str)> = Vec::with_capacity(MOST_NEAR + 1);
        for tool in seen {
            // Whoever is farther than the last of a full list need not be measured.
            let floor = nearest.get(MOST_NEAR - 1).map_or(NEAR, |(score, _)| *score);
            let full = wanted.closeness(tool.name().as_str(), floor);
            let score = full.max(wanted.closeness(tool.original(), floor));
            if score > NEAR {
                let place = nearest.partition_point(|(better, name)| {
                    better.total_cmp(&score).reverse().then((*name).cmp(tool.name().as_str())).is_lt()
                });
                nearest.insert(place, (score, tool.name().as_str()));
                nearest.truncate(MOST_NEAR);
            }
        }
        nearest.into_iter().map(|(_, name)| name.to_owned()).collect()
    }
}

/// A name that somebody asked for, to be compared with every name there is: hence the quick look before the exact one.
struct Wanted {
    text: String,
    length: usize,
    letters: [i32; BUCKETS],
}

const BUCKETS: usize = 128;

impl Wanted {
    fn new(name: &str) -> Wanted {
        let text = name.to_lowercase();
        let mut letters = [0; BUCKETS];
        text.chars().for_each(|letter| letters[letter as usize % BUCKETS] += 1);
        Wanted { length: text.chars().count(), text, letters }
    }

    /// A slip of the finger is close; so is a name that holds all that was asked for. Below `floor` it may be any less.
    fn closeness(&self, name: &str, floor: f64) -> f64 {
        let name = name.to_lowercase();
        let held = if self.length > 3 && name.contains(&self.text) { 0.7 } else { 0.0 };
        if self.closest(&name) < floor {
            return held;
        }
        strsim::normalized_damerau_levenshtein(&self.text, &name).max(held)
    }

    /// No edit makes up for more than one letter too many and one too few.
    fn closest(&self, name: &str) -> f64 {
        let (mut letters, mut length) = (self.letters, 0);
        for letter in name.chars() {
            letters[letter as usize % BUCKETS] -= 1;
            length += 1;
        }
        let too_many: i32 = letters.iter().map(|surplus| (*surplus).max(0)).sum();
        let too_few: i32 = letters.iter().map(|surplus| (-surplus).max(0)).sum();
        1.0 - f64::from(too_many.max(too_few)) / self.length.max(length).max(1) as f64
    }
}

fn ambiguous(tool: &str, several: &[ToolRef<'_>]) -> Error {
    let names: Vec<&str> = several.iter().map(|tool| tool.name().as_str()).collect();
    let message = format!("`{}` is offered by several sources: {}", shown_short(tool, 80), names.join(", "));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "candidates": names }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_quick_look_never_rules_out_what_is_close(wanted in "[a-cé_]{0,12}", name in "[A-Ca-cé_]{0,12}") {
            let exact = strsim::normalized_damerau_levenshtein(&wanted, &name.to_lowercase());
            let wanted = Wanted::new(&wanted);
            prop_assert!(wanted.closest(&name.to_lowercase()) >= exact);
            prop_assert!(wanted.closeness(&name, exact) >= exact);
        }
    }
}
