//! Finding the tool somebody asked for by name, or saying which they may have meant.

use serde_json::json;

use super::{Catalog, State, ToolRef};
use crate::error::{Code, Error, Result};
use crate::policy::Verdict;
use crate::source::SourceId;
use crate::text::shown_short;
use crate::tool::{Asked, parse_name};

const MOST_NEAR: usize = 3;

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

    /// `TOOL_NOT_IMPLEMENTED`, with the names that come nearest.
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
        Error::new(Code::ToolNotImplemented, message).with_details(json!({ "near": near }))
    }

    fn qualified(&self, source: &str, tool: &str) -> Option<ToolRef<'_>> {
        let id = SourceId::from_name(source).ok()?;
        let placed = self.placed(&id)?;
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
        let wanted = name.to_lowercase();
        let seen = self
            .tools()
            .filter(|tool| tool.verdict() != Verdict::Hide && !tool.internal() && tool.state() == State::Active);
        let mut scored: Vec<(f64, &str)> = seen
            .map(|tool| {
                let full = closeness(&wanted, &tool.name().as_str().to_lowercase());
                let own = closeness(&wanted, &tool.original().to_lowercase());
                (full.max(own), tool.name().as_str())
            })
            .filter(|(score, _)| *score > 0.6)
            .collect();
        scored.sort_by(|(one, a), (other, b)| other.total_cmp(one).then(a.cmp(b)));
        scored.into_iter().take(MOST_NEAR).map(|(_, name)| name.to_owned()).collect()
    }
}

/// A slip of the finger is close; so is a name that holds all that was asked for.
fn closeness(wanted: &str, name: &str) -> f64 {
    let edits = strsim::normalized_damerau_levenshtein(wanted, name);
    if wanted.len() > 3 && name.contains(wanted) { edits.max(0.7) } else { edits }
}

fn ambiguous(tool: &str, several: &[ToolRef<'_>]) -> Error {
    let names: Vec<&str> = several.iter().map(|tool| tool.name().as_str()).collect();
    let message = format!("`{}` is offered by several sources: {}", shown_short(tool, 80), names.join(", "));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "candidates": names }))
}
