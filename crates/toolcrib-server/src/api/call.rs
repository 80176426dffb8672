//! Calls. Whoever goes away cancels what they asked for.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolcrib::core::ResultExt;
use toolcrib::core::time::parse_duration;
use toolcrib::{CallOptions, Code, Error, Result, Trace};
use tracing::Instrument;

use super::asked::Named;
use super::body::Json;
use super::fault::Fault;
use super::reply;
use super::route::{Route, reference};
use super::shape::{and_perhaps, nullable, object, partial};
use crate::access::{Needs, Visitor};
use crate::house::House;

/// No call takes longer, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new("POST", "/api/tools/{name}/call", "call_tool", post(call))
            .about("Call a tool, or read the next page of a large result")
            .needs(Needs::Using)
            .tool_path()
            .may_take("Call")
            .answers(200, "Result", "What the tool answered; its own failure too, as `is_error`")
            .refuses(&[400, 404, 413, 415, 424, 429, 502, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = |about: &str| json!({ "type": ["string", "null"], "description": about });
    let call = partial(&[
        ("arguments", json!({ "type": ["object", "null"], "description": "By the tool's `input_schema`" })),
        ("timeout", text("How long it may take, such as `30s`; the source's `call_timeout` otherwise")),
        (
            "yes",
            json!({ "type": "boolean", "description": "Consent to a call that a policy asks about; for those who manage" }),
        ),
        (
            "whole",
            json!({ "type": "boolean", "description": "All of a large result at once instead of its first page" }),
        ),
        ("page", text("`page.next` of the result before: reads on, and calls nothing")),
    ]);
    let call = with(call, "additionalProperties", json!(false));
    let page = object(&[
        ("number", json!({ "type": "integer", "minimum": 1 })),
        ("of", json!({ "type": "integer", "minimum": 1 })),
        ("next", nullable(json!({ "type": "string" }))),
        ("total_bytes", json!({ "type": "integer", "minimum": 0 })),
    ]);
    let result = object(&[
        ("content", json!({ "type": "array", "items": { "type": "object" } })),
        ("structured", json!({ "description": "Structured content, where the tool has such" })),
        ("is_error", json!({ "type": "boolean" })),
        ("elapsed_ms", json!({ "type": "integer", "minimum": 0 })),
        ("source", json!({ "type": "string" })),
    ]);
    let result = and_perhaps(result, &[("meta", json!({ "type": "object" })), ("page", reference("ResultPage"))]);
    vec![("Call", call), ("Result", result), ("ResultPage", page)]
}

fn with(mut shape: Value, key: &str, value: Value) -> Value {
    shape[key] = value;
    shape
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    arguments: Option<Map<String, Value>>,
    timeout: Option<String>,
    yes: bool,
    whole: bool,
    page: Option<String>,
}

async fn call(
    State(house): State<House>,
    Extension(visitor): Extension<Visitor>,
    trace: Option<Extension<Trace>>,
    Named(name): Named,
    Json(wish): Json<Wish>,
) -> Result<Response, Fault> {
    if let Some(cursor) = &wish.page {
        return Ok(reply::json(StatusCode::OK, &house.registry.page(None, cursor)?)?);
    }
    let options = CallOptions { trace: trace.map(|Extension(trace)| trace), ..options(&wish, &visitor)? };
    // A handler whose client goes away is dropped, and this with it. The call itself hears of it and ends in order.
    let _cancels = options.cancel.clone().drop_guard();
    let arguments = Value::Object(wish.arguments.unwrap_or_default());
    let (registry, caller) = (house.registry.clone(), visitor.caller());
    let calling = async move { registry.call(&caller, &name, arguments, options).await };
    let output = tokio::spawn(calling.in_current_span()).await.context(Code::Internal, "a call broke off")?;
    Ok(reply::json(StatusCode::OK, &output?)?)
}

fn options(wish: &Wish, visitor: &Visitor) -> Result<CallOptions> {
    if wish.yes && !visitor.role.may(Needs::Managing) {
        let message = "only those who manage tools may consent to a call; leave out `yes`, or use their token";
        return Err(Error::new(Code::Forbidden, message));
    }
    let wrong = |text: &String| {
        let text = toolcrib::core::text::shown_short(text, 40);
        Error::new(Code::BadRequest, format!("`timeout` is a duration such as `30s` or `2m`, not `{text}`"))
    };
    let timeout = wish
        .timeout
        .as_ref()
        .map(|text| parse_duration(text).filter(|timeout| !timeout.is_zero()).ok_or_else(|| wrong(text)));
    Ok(CallOptions {
        timeout: timeout.transpose()?.map(|timeout| timeout.min(LONGEST)),
        consent: wish.yes,
        whole: wish.whole,
        fleeting: true,
        cancel: CancellationToken::new(),
        ..CallOptions::default()
    })
}
