//! `POST /api/tools/{name}/call`. A client that disconnects cancels its call.
//!
//! ```json
//! { "arguments": { "path": "/tmp" }, "timeout": "30s" }
//! ```
//!
//! An error that the tool itself reports is a result with `is_error` and status 200; only a call that could not be made
//! or finished has an error status.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolcrib::call::CallDeadline;
use toolcrib::core::ResultExt;
use toolcrib::core::json::Exact;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::time::parse_duration;
use toolcrib::{CallContext, Code, Error, Result, ResultPaging};
use tracing::Instrument;

use super::body::JsonBody;
use super::error::ApiResult;
use super::openapi_schema::{
    array_of, boolean, closed, count, described, nullable, object_schema, partial_object, text, with_optional,
};
use super::query::PathParam;
use super::response::ok_json;
use super::route::{ApiRoute, schema_ref};
use crate::auth::{AuthenticatedClient, AuthorizedRequest, Permission};

/// Upper bound for the `timeout` of a request. Longer ones are shortened to it without an error.
const MAX_CALL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// 424 stands for `AUTH_REQUIRED`, 502 for a tool that failed, 503 for a source that could not be reached.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::post("/api/tools/{name}/call", "call_tool", call_tool)
            .summary("Call a tool, or read the next page of a large result")
            .requires(Permission::Use)
            .tool_param()
            .optional_body("Call")
            .json_response(200, "Result", "Result of the tool; an error reported by the tool has `is_error`")
            .error_responses(&[400, 404, 413, 415, 424, 429, 502, 503]),
    ]
}

/// The body is optional, because many tools take no arguments; unknown fields are refused.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let optional_text = |about: &str| described(nullable(text()), about);
    let call = closed(partial_object(&[
        ("arguments", json!({ "type": ["object", "null"], "description": "Arguments by the tool's `input_schema`" })),
        ("timeout", optional_text("Timeout of the call, such as `30s`; default: the `call_timeout` of the source")),
        ("yes", described(boolean(), "Consent to a call whose policy is `ask`; needs the role admin")),
        ("whole", described(boolean(), "Return a large result at once instead of its first page")),
        ("page", optional_text("Cursor from `page.next` of an earlier result: returns that page without a call")),
    ]));
    let page = object_schema(&[
        ("number", json!({ "type": "integer", "minimum": 1 })),
        ("of", json!({ "type": "integer", "minimum": 1 })),
        ("next", nullable(text())),
        ("total_bytes", count()),
    ]);
    let result = object_schema(&[
        ("content", array_of(json!({ "type": "object" }))),
        ("structured", json!({ "description": "Structured content, if the tool returns it" })),
        ("is_error", boolean()),
        ("elapsed_ms", count()),
        ("source", text()),
    ]);
    let result = with_optional(result, &[("meta", json!({ "type": "object" })), ("page", schema_ref("ResultPage"))]);
    vec![("Call", call), ("Result", result), ("ResultPage", page)]
}

/// Body of a call; see [`schemas`] for its fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CallToolBody {
    arguments: Option<Exact<Map<String, Value>>>,
    timeout: Option<String>,
    yes: bool,
    whole: bool,
    page: Option<String>,
}

/// `POST /api/tools/{name}/call`. A request with `page` calls nothing.
async fn call_tool(
    request: AuthorizedRequest,
    PathParam(name): PathParam,
    JsonBody(body): JsonBody<CallToolBody>,
) -> ApiResult {
    let registry = request.app.registry.clone();
    let context = CallContext { trace: request.trace, ..call_context(&body, &request.client)? };
    if let Some(cursor) = &body.page {
        return ok_json(&registry.result_page(cursor, &context)?);
    }
    // hyper drops this handler when the client disconnects. The call runs in a task of its own, so that it is cancelled by
    // the token and not by being dropped, and the connector can cancel it at the source.
    let _cancel_guard = context.cancel.clone().drop_guard();
    let arguments = Value::Object(body.arguments.unwrap_or_default().0);
    let paging = if body.whole { ResultPaging::Whole } else { ResultPaging::Pages };
    let call = async move { registry.call(&name, arguments).paging(paging).context(context).await };
    let output = tokio::spawn(call.in_current_span()).await.context(Code::Internal, "run the call")?;
    ok_json(&output?)
}

/// Translates the body of the request. Only administrators may consent to a call.
fn call_context(body: &CallToolBody, client: &AuthenticatedClient) -> Result<CallContext> {
    if body.yes && !client.principal.role().has_permission(Permission::Manage) {
        let message = "only the role admin may consent to a call; omit `yes`, or use the token of an administrator";
        return Err(Error::new(Code::Forbidden, message));
    }
    let invalid = |text: &String| {
        let text = sanitize_truncated(text, 40);
        Error::new(Code::BadRequest, format!("`timeout` is a duration such as `30s` or `2m`, not `{text}`"))
    };
    let timeout = body
        .timeout
        .as_ref()
        .map(|text| parse_duration(text).filter(|timeout| !timeout.is_zero()).ok_or_else(|| invalid(text)));
    Ok(CallContext {
        caller: client.caller(),
        actor: Some(client.actor()),
        deadline: timeout.transpose()?.map(|timeout| CallDeadline::after(timeout.min(MAX_CALL_TIMEOUT))),
        consent: body.yes,
        // Clients of REST have no session, so the pages of a result belong to their principal.
        stateless: true,
        ..CallContext::default()
    })
}
