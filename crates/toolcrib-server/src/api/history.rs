//! The journal over HTTP, and the life of one tool. What is recent is in memory; who asks for what lies further back, or
//! for definitions that are gone, makes the store read.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::core::compare::Class;
use toolcrib::core::text::shown_short;
use toolcrib::registry::Wanted;
use toolcrib::{Error, Result, SourceId};

use super::asked::{Asked, Named};
use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{nullable, object, one_of, strings};
use crate::access::Needs;
use crate::house::House;

const MOST_RECORDS: u64 = 1_000;
const RECORDS: usize = 100;
const MOST_VERSIONS: u64 = 100;
const VERSIONS: usize = 20;

pub(super) fn routes() -> Vec<Route> {
    let number = |least: u64, most: u64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let text = || json!({ "type": "string" });
    vec![
        Route::new("GET", "/api/history", "list_history", get(list))
            .about("What changed, when, and by whom, oldest first")
            .needs(Needs::Reading)
            .query("source", text(), "Only what concerns one source, removed ones included")
            .query("tool", text(), "Only what touches one tool, by its own or its full name")
            .query("after", number(0, i64::MAX as u64), "Those that follow this record; without it, the newest")
            .query("since", text(), "Only what is not older: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`")
            .query("limit", number(1, MOST_RECORDS), "At most so many; 100 unless told")
            .answers(200, "History", "Records; `next_after` is the next `after` while there may be more")
            .refuses(&[400, 404, 503]),
        Route::new("GET", "/api/tools/{name}/history", "get_tool_history", get(versions))
            .about("Every version of one tool, newest first, with its definition before and after")
            .needs(Needs::Reading)
            .tool_path()
            .query("limit", number(1, MOST_VERSIONS), "At most so many; 20 unless told")
            .answers(200, "Versions", "What became of it, step by step")
            .refuses(&[400, 404, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let time = || json!({ "type": "string", "format": "date-time" });
    let definition = || json!({ "type": ["object", "null"] });
    let record = object(&[
        ("seq", number()),
        ("at", time()),
        ("actor", text()),
        ("type", text()),
        ("source", nullable(text())),
        ("tool", nullable(text())),
        ("data", json!({ "type": "object" })),
        ("text", json!({ "type": "string", "description": "What happened, in one line" })),
    ]);
    let classes = Class::ALL.map(Class::as_str);
    let version = object(&[
        ("seq", number()),
        ("at", time()),
        ("actor", text()),
        ("source", text()),
        ("what", one_of(&["added", "changed", "removed"])),
        ("class", nullable(reference("Class"))),
        ("notes", strings()),
        ("fields", strings()),
        ("text", text()),
        ("before", definition()),
        ("after", definition()),
    ]);
    let past = object(&[
        ("id", text()),
        ("name", text()),
        ("source", text()),
        ("original_name", text()),
        ("title", nullable(text())),
        ("description", text()),
        ("input_schema", json!({ "type": "object" })),
        ("output_schema", definition()),
        ("annotations", definition()),
        ("fingerprint", text()),
        ("at", time()),
        ("updated_at", time()),
        ("definition", json!({ "type": "object" })),
    ]);
    let several = |name: &str, item: &str| object(&[(name, json!({ "type": "array", "items": reference(item) }))]);
    let next =
        json!({ "type": "integer", "minimum": 0, "description": "What to go on after; nothing when that was all" });
    let records = json!({ "type": "array", "items": reference("Record") });
    let history = object(&[("records", records), ("next_after", nullable(next))]);
    vec![
        ("Class", one_of(&classes)),
        ("Record", record),
        ("History", history),
        ("Version", version),
        ("Versions", several("versions", "Version")),
        ("PastTool", past),
    ]
}

async fn list(State(house): State<House>, asked: Asked) -> Result<Response, Fault> {
    let registry = &house.registry;
    let wanted = Wanted {
        after: asked.number("after", 0..=i64::MAX as u64)?,
        source: asked.text("source").map(|name| remembered(&house, name)).transpose()?,
        tool: asked.text("tool").map(str::to_owned),
        since: asked.moment("since", registry.now())?,
        limit: Some(asked.number("limit", 1..=MOST_RECORDS)?.map_or(RECORDS, |limit| limit as usize)),
    };
    Ok(reply::json(StatusCode::OK, &registry.history_page(&wanted).await?)?)
}

/// A source that there is, or was.
fn remembered(house: &House, name: &str) -> Result<SourceId, Error> {
    let inventory = house.registry.inventory();
    let id = SourceId::from_name(name).ok().filter(|id| inventory.remembered().any(|known| known == id));
    id.ok_or_else(|| house.registry.unknown_source(&shown_short(name, 80)))
}

async fn versions(State(house): State<House>, Named(name): Named, asked: Asked) -> Result<Response, Fault> {
    let limit = asked.number("limit", 1..=MOST_VERSIONS)?.map_or(VERSIONS, |limit| limit as usize);
    let versions = house.registry.tool_history(&name, limit).await?;
    #[derive(serde::Serialize)]
    struct Versions {
        versions: Vec<toolcrib::registry::Version>,
    }
    Ok(reply::json(StatusCode::OK, &Versions { versions })?)
}
