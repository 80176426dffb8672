//! `search_tools`: one line a tool, in as few words as will do.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::json::mistake;
use toolcrib::core::search::{Found, Hit, Query};

use super::Surface;
use super::answer::text;
use super::call::wrong_arguments;
use super::menu::SEARCH;

const USUAL: usize = 5;
/// Whoever asks for all gets so many; nobody reads on.
const MOST: usize = 200;

#[derive(Deserialize)]
struct Asked {
    query: String,
    /// Any form of a number: models write `5`, `5.0` and `"5"`.
    #[serde(default)]
    limit: Value,
}

impl Surface {
    pub(super) async fn search_tools(&self, arguments: Value) -> Box<RawValue> {
        let asked: Asked = match serde_json::from_value(arguments) {
            Ok(asked) => asked,
            Err(error) => return wrong_arguments(SEARCH, &mistake(&error)),
        };
        self.look_around().await;
        let limit = match number(&asked.limit) {
            None => USUAL,
            Some(0) => MOST,
            Some(limit) => limit.min(MOST),
        };
        let sight = self.sight();
        let query = Query::new(asked.query).limited(limit);
        // Postings are built by the first search, which may take a while; others want to be answered meanwhile.
        let searching = tokio::task::spawn_blocking(move || sight.view().search(&query));
        let found = searching.await.unwrap_or_default();
        text(&self.said(&found, limit))
    }

    /// Sources that a person has to allow first, and how.
    pub(super) fn unused(&self) -> Option<String> {
        let forbidden = self.registry.forbidden();
        let reason = forbidden.values().next()?;
        let what = if forbidden.len() == 1 { "1 source is" } else { &format!("{} sources are", forbidden.len()) };
        Some(format!("{what} not used: {reason}"))
    }

    fn said(&self, found: &Found, limit: usize) -> String {
        let mut lines: Vec<String> = found.hits.iter().map(Hit::line).collect();
        let sources = self.registry.sources();
        if sources.is_empty() {
            lines.push("There are no sources yet, so there are no tools; whoever runs this declares them.".into());
        } else if lines.is_empty() {
            lines.push(found.hint.clone().unwrap_or_else(|| "Nothing found.".into()));
        }
        if limit == MOST && found.total > MOST {
            lines.push(format!("({} more match; more words narrow it down)", found.total - MOST));
        }
        lines.extend(self.unused().map(|unused| format!("({unused})")));
        let forbidden = self.registry.forbidden();
        let missing = sources.into_iter().filter(|source| !forbidden.contains_key(&source.id));
        let missing = missing.filter(|source| source.enabled && source.freshness == Freshness::Missing);
        let missing = missing.filter(|source| source.last_error.is_none()).count();
        if missing > 0 {
            let what = if missing == 1 { "1 source is" } else { &format!("{missing} sources are") };
            lines.push(format!("({what} still being discovered; search again in a moment for more)"));
        }
        lines.join("\n")
    }
}

/// A whole number that is not negative.
fn number(value: &Value) -> Option<usize> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as usize)
}
