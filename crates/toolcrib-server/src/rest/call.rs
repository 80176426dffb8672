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

use super::body::JsonBody;
use super::error::ApiError;
use super::openapi_schema::{nullable, object_schema, partial_object, with_optional};
use super::query::PathParam;
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::{Permission, Principal};
use crate::state::AppState;

/// No call takes longer, whatever is asked for.
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new("POST", "/api/tools/{name}/call", "call_tool", post(call_tool))
            .summary("Call a tool, or read the next page of a large result")
            .requires(Permission::Use)
            .tool_param()
            .optional_body("Call")
            .json_response(200, "Result", "What the tool answered; its own failure too, as `is_error`")
            .error_responses(&[400, 404, 413, 415, 424, 429, 502, 503]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = |about: &str| json!({ "type": ["string", "null"], "description": about });
    let call = partial_object(&[
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
    let call = set_keyword(call, "additionalProperties", json!(false));
    let page = object_schema(&[
        ("number", json!({ "type": "integer", "minimum": 1 })),
        ("of", json!({ "type": "integer", "minimum": 1 })),
        ("next", nullable(json!({ "type": "string" }))),
        ("total_bytes", json!({ "type": "integer", "minimum": 0 })),
    ]);
    let result = object_schema(&[
        ("content", json!({ "type": "array", "items": { "type": "object" } })),
        ("structured", json!({ "description": "Structured content, where the tool has such" })),
        ("is_error", json!({ "type": "boolean" })),
        ("elapsed_ms", json!({ "type": "integer", "minimum": 0 })),
        ("source", json!({ "type": "string" })),
    ]);
    let result = with_optional(result, &[("meta", json!({ "type": "object" })), ("page", schema_ref("ResultPage"))]);
    vec![("Call", call), ("Result", result), ("ResultPage", page)]
}

fn set_keyword(mut shape: Value, key: &str, value: Value) -> Value {
    shape[key] = value;
    shape
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallToolBody {
    arguments: Option<Map<String, Value>>,
    timeout: Option<String>,
    yes: bool,
    whole: bool,
    page: Option<String>,
}

async fn call_tool(
    State(app): State<AppState>,
    Extension(principal): Extension<Principal>,
    trace: Option<Extension<Trace>>,
    PathParam(name): PathParam,
    JsonBody(wish): JsonBody<CallToolBody>,
) -> Result<Response, ApiError> {
    if let Some(cursor) = &wish.page {
        return Ok(response::json_response(StatusCode::OK, &app.registry.result_page(None, cursor)?)?);
    }
    let options = CallOptions { trace: trace.map(|Extension(trace)| trace), ..call_options(&wish, &principal)? };
    // A handler whose client goes away is dropped, and this with it. The call itself hears of it and ends in order.
    let _cancels = options.cancel.clone().drop_guard();
    let arguments = Value::Object(wish.arguments.unwrap_or_default());
    let (registry, caller) = (app.registry.clone(), principal.caller());
    let calling = async move { registry.call(&caller, &name, arguments, options).await };
    let output = tokio::spawn(calling.in_current_span()).await.context(Code::Internal, "a call broke off")?;
    Ok(response::json_response(StatusCode::OK, &output?)?)
}

fn call_options(wish: &CallToolBody, principal: &Principal) -> Result<CallOptions> {
    if wish.yes && !principal.role.has_permission(Permission::Manage) {
        let message = "only those who manage tools may consent to a call; leave out `yes`, or use their token";
        return Err(Error::new(Code::Forbidden, message));
    }
    let wrong = |text: &String| {
        let text = toolcrib::core::text::sanitize_truncated(text, 40);
        Error::new(Code::BadRequest, format!("`timeout` is a duration such as `30s` or `2m`, not `{text}`"))
    };
    let timeout = wish
        .timeout
        .as_ref()
        .map(|text| parse_duration(text).filter(|timeout| !timeout.is_zero()).ok_or_else(|| wrong(text)));
    Ok(CallOptions {
        timeout: timeout.transpose()?.map(|timeout| timeout.min(MAX_CALL_TIMEOUT)),
        consent: wish.yes,
        unpaged: wish.whole,
        stateless: true,
        cancel: CancellationToken::new(),
        ..CallOptions::default()
    })
}
