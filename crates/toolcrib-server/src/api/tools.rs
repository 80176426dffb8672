//! Tools, a page at a time or one in full, in our own form or a provider's. Reads contact nobody.

mod gone;
mod page;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};

use super::asked::{Asked, Named};
use super::fault::Fault;
use super::reply::{Tagged, written};
use super::route::{Route, reference};
use super::shape::{and_perhaps, nullable, object, one_of, strings};
use crate::access::Needs;
use crate::house::House;

const FORMATS: [&str; 6] = ["json", "mcp", "anthropic", "openai", "openai-strict", "gemini"];

pub(super) fn routes() -> Vec<Route> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": page::MOST });
    vec![
        Route::new("GET", "/api/tools", "list_tools", get(list))
            .about("Tools in the order of their names, a page at a time; contacts nobody")
            .needs(Needs::Reading)
            .query("source", json!({ "type": "string" }), "Only those of one source")
            .query("format", one_of(&FORMATS), "`json` is our own; another is the array that a provider takes")
            .query(
                "state",
                one_of(&page::STATES),
                "Only those in this state; `deprecated` ones are gone from their source",
            )
            .query("limit", limit, "How many; 100 unless told, and all in a provider's format")
            .query("cursor", json!({ "type": "string" }), "`next_cursor` of the page before")
            .query("group", json!({ "type": "string" }), "There are no groups in this version")
            .answers_any(200, &["Tools", "Provided"], "A page; a provider's array names the next one in `Link`")
            .may_be_unchanged()
            .refuses(&[400, 404]),
        Route::new("GET", "/api/tools/{name}", "get_tool", get(one))
            .about("One tool in full: schemas, how it is carried out, how it fares")
            .needs(Needs::Reading)
            .tool_path()
            .query("at", json!({ "type": "string" }), "As it was then: `7d`, `2026-11-15`, `2026-11-15T20:00:00Z`")
            .answers_any(200, &["ToolDetail", "PastTool"], "What is known of it, or what it was")
            .may_be_unchanged()
            .refuses(&[400, 403, 404, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let time = || json!({ "type": "string", "format": "date-time" });
    let anything = |kinds: &[&str]| json!({ "type": kinds });
    let tool = object(&[
        ("id", json!({ "type": "string", "description": "`source:tool`" })),
        ("name", json!({ "type": "string", "description": "As agents know it: `source__tool`" })),
        ("source", text()),
        ("original_name", text()),
        ("kind", text()),
        ("title", nullable(text())),
        ("description", nullable(text())),
        ("input_schema", anything(&["object", "null"])),
        ("annotations", anything(&["object", "null"])),
        ("tags", strings()),
        ("policy", one_of(&["allow", "ask", "deny", "hide"])),
        ("enabled", json!({ "type": "boolean" })),
        ("state", one_of(&["active", "disabled", "deprecated", "held"])),
        ("fingerprint", nullable(text())),
        ("created_at", time()),
        ("updated_at", time()),
    ]);
    let tools = object(&[
        ("tools", json!({ "type": "array", "items": reference("Tool") })),
        ("inventory_hash", text()),
        ("next_cursor", nullable(text())),
    ]);
    let execution = object(&[
        ("mode", text()),
        ("method", nullable(text())),
        ("path", nullable(text())),
        ("url_template", nullable(text())),
        ("security", json!({ "type": "array", "items": { "type": "object", "additionalProperties": strings() } })),
    ]);
    let more = object(&[
        ("output_schema", anything(&["object", "boolean", "null"])),
        ("execution", execution),
        ("notes", strings()),
        ("calls", json!({ "type": "integer", "minimum": 0 })),
        ("errors", json!({ "type": "integer", "minimum": 0 })),
        ("last_called", nullable(time())),
        ("last_error", nullable(reference("Failure"))),
    ]);
    let more = and_perhaps(more, &[("deprecated", json!({ "type": "boolean" }))]);
    let provided = json!({ "type": "array", "items": { "type": "object" } });
    vec![
        ("Tool", tool),
        ("Tools", tools),
        ("ToolDetail", json!({ "allOf": [reference("Tool"), more] })),
        ("Provided", provided),
    ]
}

async fn list(State(house): State<House>, uri: Uri, headers: HeaderMap) -> Result<Response, Fault> {
    let (registry, query) = (house.registry.clone(), uri.query().unwrap_or_default().to_owned());
    let make = move |view: &_| page::Wanted::read(&registry, &Asked::read(&query)?)?.written(&registry, view);
    house.kept(&uri, &headers, make).await
}

/// Its counters change with every call, so that it is written anew each time.
async fn one(
    State(house): State<House>,
    headers: HeaderMap,
    Named(name): Named,
    asked: Asked,
) -> Result<Response, Fault> {
    if let Some(at) = asked.moment("at", house.registry.now())? {
        let past = house.registry.tool_at(&name, at).await?;
        return Ok(Tagged::of(written(&past)?).answer(&headers));
    }
    let detail = house.registry.tool_detail(&name)?.json()?;
    Ok(Tagged::of(String::from(Box::<str>::from(detail)).into()).answer(&headers))
}
