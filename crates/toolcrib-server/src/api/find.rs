//! What agents ask first: which tool fits, and what there is at all.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::core::catalog::View;
use toolcrib::core::search::Query;
use toolcrib::core::summary::Budget;
use toolcrib::{Code, Error, Result};

use super::asked::Asked;
use super::fault::Fault;
use super::kept::Made;
use super::reply;
use super::route::{Route, reference};
use super::shape::{and_perhaps, object, strings};
use crate::access::Needs;
use crate::house::House;

/// Nobody reads on.
const MOST_HITS: u64 = 200;
/// How many characters a question may have; a task in full has room.
const LONGEST: usize = 2_000;
const LARGEST_BUDGET: u64 = 100_000;
/// How long counts of tokens are waited for that may be on their way to the store.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<Route> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": Query::DEFAULT_LIMIT });
    let budget = json!({ "type": "integer", "minimum": 1, "maximum": LARGEST_BUDGET, "default": Budget::DEFAULT });
    vec![
        Route::new("GET", "/api/search", "search_tools", get(search))
            .about("The tools that fit a task, a question or a name")
            .needs(Needs::Reading)
            .query_required(
                "q",
                json!({ "type": "string", "minLength": 1, "maxLength": LONGEST }),
                "What the tool is for, or its name in any spelling",
            )
            .query("limit", limit, "At most so many hits")
            .query("source", json!({ "type": "string" }), "Only the tools of one source")
            .query("tag", json!({ "type": "string" }), "Only the tools of sources with this tag")
            .query("group", json!({ "type": "string" }), "There are no groups in this version")
            .answers(200, "Found", "The best first")
            .may_be_unchanged()
            .refuses(&[400, 404]),
        Route::new("GET", "/api/context", "get_context", get(context))
            .about("The summary for a system prompt: some of the tools there are, and how to find the others")
            .needs(Needs::Reading)
            .query("budget", budget, "The most tokens it may have")
            .answers(200, "Context", "The text and what it saves")
            .may_be_unchanged()
            .refuses(&[400]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let hit = object(&[
        ("name", text()),
        ("score", json!({ "type": "number" })),
        ("signature", json!({ "type": "string", "description": "`name(required*: type, optional: type)`" })),
        ("summary", text()),
    ]);
    let hit = and_perhaps(hit, &[("also", strings())]);
    let found = object(&[
        ("hits", json!({ "type": "array", "items": reference("Hit") })),
        ("total", count()),
        ("tokens", json!({ "type": "integer", "minimum": 0, "description": "What the hits cost an agent to read" })),
    ]);
    let found = and_perhaps(found, &[("hint", text())]);
    let context = object(&[("text", text()), ("tokens", count()), ("tokens_full", count()), ("tools", count())]);
    vec![("Hit", hit), ("Found", found), ("Context", context)]
}

async fn search(State(house): State<House>, uri: Uri, headers: HeaderMap) -> Result<Response, Fault> {
    let (registry, query) = (house.registry.clone(), uri.query().unwrap_or_default().to_owned());
    let make = move |view: &View| {
        let asked = Asked::read(&query)?;
        asked.no_group()?;
        let query = Query {
            text: question(&asked)?,
            limit: asked.number("limit", 1..=MOST_HITS)?.map_or(Query::DEFAULT_LIMIT, |limit| limit as usize),
            source: asked.source(&registry)?,
            tag: asked.text("tag").map(str::to_owned),
        };
        written(&view.search(&query).answer())
    };
    house.kept(&uri, &headers, make).await
}

fn question(asked: &Asked) -> Result<String> {
    match asked.text("q") {
        None => Err(Error::new(Code::BadRequest, "`q` says what to look for, such as `q=create+an+issue`")),
        Some(text) if text.chars().count() > LONGEST => {
            Err(Error::new(Code::BadRequest, "`q` is too long; a few sentences will do"))
        }
        Some(text) => Ok(text.to_owned()),
    }
}

async fn context(State(house): State<House>, uri: Uri, headers: HeaderMap) -> Result<Response, Fault> {
    let catalog = house.registry.catalog();
    if catalog.parts().any(|part| !part.segment.is_counted()) {
        // Counts are stored for the next start; a store that hangs must not keep a reader waiting.
        let _late = tokio::time::timeout(PATIENCE, house.registry.count_tokens()).await;
    }
    let query = uri.query().unwrap_or_default().to_owned();
    let make = move |view: &View| {
        let asked = Asked::read(&query)?;
        let budget = asked.number("budget", 1..=LARGEST_BUDGET)?.map_or(Budget::DEFAULT, |budget| budget as usize);
        written(&view.summary(Budget::of_tokens(budget)?))
    };
    house.kept(&uri, &headers, make).await
}

fn written(answer: &impl serde::Serialize) -> Result<Made> {
    Ok(Made { body: reply::written(answer)?, link: None })
}
