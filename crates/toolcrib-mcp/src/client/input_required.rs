//! `input_required` results of 2026-07-28: a server that needs input returns what it asks for, and the client repeats
//! the request with the answers and the server's `requestState`.
//!
//! ```json
//! {"resultType":"input_required","inputRequests":{"how":{"method":"elicitation/create"}},"requestState":"…"}
//! ```
//!
//! The repeated request has the same parameters plus `"inputResponses":{"how":{}}` and `"requestState":"…"`. Each round
//! is a new request with a new id; the deadline covers all rounds together. Legacy servers ask with requests of their
//! own, which `connection::server_requests` answers with the same handler.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    connection::{OutgoingRequest, WireConnection, server_requests},
    era::Era,
    error::{WireError, sanitize_excerpt},
    message::{JsonString, RawObject},
    options::{RequestOptions, ServerRequest, ServerRequestHandler},
};

/// Maximum number of `input_required` rounds of one request; a further one fails the request. A dialogue of several
/// steps fits, and a server that asks for ever does not.
const MAX_INPUT_ROUNDS: usize = 10;

/// Sends a request and answers `input_required` results with `handler` until the result is complete. Without a handler,
/// a result that only carries a `requestState` is still repeated: the server asks for nothing but to be called again.
pub(super) async fn request_with_input(
    connection: &Arc<WireConnection>,
    request: &OutgoingRequest<'_>,
    options: &RequestOptions<'_>,
    handler: Option<&ServerRequestHandler>,
) -> Result<Box<RawValue>, WireError> {
    let is_modern = connection.era() == Era::Modern || options.modern;
    let mut result = connection.request(request, options).await?;
    for _ in 0..MAX_INPUT_ROUNDS {
        let Some(required) = parse_input_required(is_modern, request, &result)? else { return Ok(result) };
        // When relaying, the downstream client answers: return `input_required` to it unchanged.
        if options.relay.is_some() || (handler.is_none() && required.input_requests.is_some()) {
            return Ok(result);
        }
        let params = next_round_params(request, &required, options, handler).await?;
        let next_round = OutgoingRequest { params: Some(&params), ..request.clone() };
        result = connection.request(&next_round, options).await?;
    }
    match parse_input_required(is_modern, request, &result)? {
        None => Ok(result),
        Some(_) => Err(WireError::Protocol(format!("it asked for input more than {MAX_INPUT_ROUNDS} times"))),
    }
}

/// The protocol's own fields of a result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequiredResult<'a> {
    #[serde(borrow, default)]
    result_type: Option<JsonString<'a>>,
    #[serde(borrow, default, rename = "inputRequests")]
    input_requests: Option<RawObject<'a>>,
    /// Opaque to the client; sent back unchanged.
    #[serde(borrow, default, rename = "requestState")]
    request_state: Option<&'a RawValue>,
}

/// Parses a result that requires input; `None` for a complete one.
fn parse_input_required<'a>(
    is_modern: bool,
    request: &OutgoingRequest<'_>,
    result: &'a RawValue,
) -> Result<Option<InputRequiredResult<'a>>, WireError> {
    // The specification allows `input_required` for these methods only; other results are not parsed at all.
    let may_require_input = matches!(request.method, "tools/call" | "prompts/get" | "resources/read");
    if !may_require_input || !is_modern {
        return Ok(None);
    }
    let fields: InputRequiredResult<'a> = serde_json::from_str(result.get())
        .map_err(|_| WireError::Protocol(format!("the result of `{}` is not an object", request.method)))?;
    match fields.result_type.as_ref().map(|JsonString(kind)| kind.as_ref()) {
        None | Some("complete") => Ok(None),
        Some("input_required") if fields.input_requests.is_none() && fields.request_state.is_none() => {
            let message = "an `input_required` result has neither `inputRequests` nor `requestState`";
            Err(WireError::Protocol(message.to_owned()))
        }
        Some("input_required") => Ok(Some(fields)),
        // The caller waits for it; see `tasks`.
        Some("task") if request.method == "tools/call" => Ok(None),
        Some(other) => Err(WireError::Protocol(format!("unknown result type `{}`", sanitize_excerpt(other)))),
    }
}

/// Builds the parameters of the next round: those of the request, the handler's answers and the server's state.
async fn next_round_params(
    request: &OutgoingRequest<'_>,
    required: &InputRequiredResult<'_>,
    options: &RequestOptions<'_>,
    handler: Option<&ServerRequestHandler>,
) -> Result<Box<RawValue>, WireError> {
    let mut params = request.params.and_then(RawObject::parse).unwrap_or_default();
    // Answers and state of an earlier round are not valid in this one.
    params.retain(|key| !matches!(key, "inputResponses" | "requestState"));
    if required.input_requests.is_some() && handler.is_some() {
        params.set("inputResponses", answer_requests(&required.input_requests, options, handler).await?);
    }
    if let Some(state) = required.request_state {
        params.set("requestState", state.to_owned());
    }
    params.to_raw()
}

/// Returns the handler's answers to the requests of a server, by key; an empty object without a handler.
pub(super) async fn answer_requests(
    inputs: &Option<RawObject<'_>>,
    options: &RequestOptions<'_>,
    handler: Option<&ServerRequestHandler>,
) -> Result<Box<RawValue>, WireError> {
    let mut responses = RawObject::default();
    if let (Some(inputs), Some(handler)) = (inputs, handler) {
        // One after the other, because a handler may ask a person.
        for (key, input) in inputs.iter() {
            let input = RawObject::parse(input).unwrap_or_default();
            let method = input.get_string("method").unwrap_or_default();
            let input = ServerRequest { method, params: input.get("params").map(ToOwned::to_owned) };
            // The handler may wait for a person, so it runs under the deadline of the whole request.
            let response = tokio::select! {
                biased;
                () = options.cancelled() => return Err(WireError::Cancelled { sent: true }),
                () = tokio::time::sleep_until(options.deadline) => return Err(WireError::Timeout { sent: true }),
                response = server_requests::call_handler(handler, input) => response.map_err(WireError::Rpc)?,
            };
            responses.set(key, response);
        }
    }
    responses.to_raw()
}
