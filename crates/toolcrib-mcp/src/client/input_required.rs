//! Requests in several rounds (2026-07-28): a server that needs input says so in its result, and the same request is
//! made again with the input and the state the server wants to see again.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    connection::{OutgoingRequest, RequestContext, WireConnection, server_requests},
    era::Era,
    error::{WireError, sanitize_excerpt},
    message::{JsonString, RawObject},
    options::{ServerRequest, ServerRequestHandler},
};

/// How often one request may ask for more.
const MAX_INPUT_ROUNDS: usize = 10;

pub(super) async fn request_with_input(
    connection: &Arc<WireConnection>,
    ask: &OutgoingRequest<'_>,
    terms: &RequestContext,
    handler: Option<&ServerRequestHandler>,
) -> Result<Box<RawValue>, WireError> {
    let mut result = connection.request(ask, terms).await?;
    for _ in 0..MAX_INPUT_ROUNDS {
        let Some(wanted) = parse_input_required(connection, ask, &result)? else { return Ok(result) };
        // Who asked for somebody else hands the question on.
        if ask.relay.is_some() || (handler.is_none() && wanted.input_requests.is_some()) {
            return Ok(result);
        }
        let params = next_round_params(ask, &wanted, terms, handler).await?;
        let ask = OutgoingRequest { params: Some(&params), ..ask.clone() };
        result = connection.request(&ask, terms).await?;
    }
    match parse_input_required(connection, ask, &result)? {
        None => Ok(result),
        Some(_) => Err(WireError::Protocol(format!("it asked for input more than {MAX_INPUT_ROUNDS} times"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequiredResult<'a> {
    #[serde(borrow, default)]
    result_type: Option<JsonString<'a>>,
    #[serde(borrow, default, rename = "inputRequests")]
    input_requests: Option<RawObject<'a>>,
    #[serde(borrow, default, rename = "requestState")]
    request_state: Option<&'a RawValue>,
}

/// What a result still wants before it is one.
fn parse_input_required<'a>(
    connection: &WireConnection,
    ask: &OutgoingRequest<'_>,
    result: &'a RawValue,
) -> Result<Option<InputRequiredResult<'a>>, WireError> {
    let may_ask = matches!(ask.method, "tools/call" | "prompts/get" | "resources/read");
    if !may_ask || connection.era() != Era::Modern {
        return Ok(None);
    }
    let head: InputRequiredResult<'a> = serde_json::from_str(result.get())
        .map_err(|_| WireError::Protocol(format!("the result of `{}` is no object", ask.method)))?;
    match head.result_type.as_ref().map(|JsonString(kind)| kind.as_ref()) {
        None | Some("complete") => Ok(None),
        Some("input_required") if head.input_requests.is_none() && head.request_state.is_none() => {
            Err(WireError::Protocol("it asks for input without saying for which".to_owned()))
        }
        Some("input_required") => Ok(Some(head)),
        Some(other) => Err(WireError::Protocol(format!("`{}` is no known type of result", sanitize_excerpt(other)))),
    }
}

/// The parameters of the next round.
async fn next_round_params(
    ask: &OutgoingRequest<'_>,
    wanted: &InputRequiredResult<'_>,
    terms: &RequestContext,
    handler: Option<&ServerRequestHandler>,
) -> Result<Box<RawValue>, WireError> {
    let mut params = ask.params.and_then(RawObject::parse).unwrap_or_default();
    params.retain(|key| !matches!(key, "inputResponses" | "requestState"));
    if let (Some(inputs), Some(handler)) = (&wanted.input_requests, handler) {
        let mut responses = RawObject::default();
        for (key, request) in inputs.iter() {
            let request = RawObject::parse(request).unwrap_or_default();
            let method = request.get_string("method").unwrap_or_default();
            let request = ServerRequest { method, params: request.get("params").map(ToOwned::to_owned) };
            let answer = tokio::select! {
                biased;
                () = terms.cancel.cancelled() => return Err(WireError::Cancelled { sent: true }),
                () = tokio::time::sleep_until(terms.deadline) => return Err(WireError::Timeout { sent: true }),
                answer = server_requests::call_handler(handler, request) => answer.map_err(WireError::Rpc)?,
            };
            responses.set(key, answer);
        }
        params.set("inputResponses", responses.to_raw()?);
    }
    if let Some(state) = wanted.request_state {
        params.set("requestState", state.to_owned());
    }
    params.to_raw()
}
