//! `search_tools`: one line a tool, in as few words as will do.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::core::freshness::Freshness;
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
    #[serde(default)]
    limit: Option<i64>,
}

impl Surface {
    pub(super) async fn search_tools(&self, arguments: Value) -> Box<RawValue> {
        let asked: Asked = match serde_json::from_value(arguments) {
            Ok(asked) => asked,
            Err(error) => return wrong_arguments(SEARCH, &error.to_string()),
        };
        self.look_around().await;
        let limit = match asked.limit.map(usize::try_from) {
            None | Some(Err(_)) => USUAL,
            Some(Ok(0)) => MOST,
            Some(Ok(limit)) => limit.min(MOST),
        };
        let sight = self.sight();
        let query = Query::new(asked.query).limited(limit);
        // Postings are built by the first search, which may take a while; others want to be answered meanwhile.
        let searching = tokio::task::spawn_blocking(move || sight.view().search(&query));
        let found = searching.await.unwrap_or_default();
        text(&self.said(&found))
    }

    fn said(&self, found: &Found) -> String {
        let mut lines: Vec<String> = found.hits.iter().map(Hit::line).collect();
        if lines.is_empty() {
            lines.push(found.hint.clone().unwrap_or_else(|| "Nothing found.".into()));
        }
        let missing = self.registry.sources().into_iter();
        let missing = missing.filter(|source| source.enabled && source.freshness == Freshness::Missing);
        let missing = missing.filter(|source| source.last_error.is_none()).count();
        if missing > 0 {
            let what = if missing == 1 { "1 source is" } else { &format!("{missing} sources are") };
            lines.push(format!("({what} still being discovered; search again in a moment for more)"));
        }
        lines.join("\n")
    }
}
