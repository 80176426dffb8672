//! Requests in several rounds (2026-07-28): a server that needs input says so in its result, and the same request is
//! made again with the input and the state the server wants to see again.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    connection::{Ask, Connection, Terms, serve},
    era::Era,
    error::{WireError, shortened},
    message::{Key, RawObject},
    options::{Handler, ServerRequest},
};

/// How often one request may ask for more.
const ROUNDS: usize = 10;

pub(super) async fn request(
    connection: &Arc<Connection>,
    ask: &Ask<'_>,
    terms: &Terms,
    handler: Option<&Handler>,
) -> Result<Box<RawValue>, WireError> {
    let mut result = connection.request(ask, terms).await?;
    for _ in 0..ROUNDS {
        let Some(wanted) = wanted(connection, ask, &result)? else { return Ok(result) };
        // Who asked for somebody else hands the question on.
        if ask.relay.is_some() || (handler.is_none() && wanted.inputs.is_some()) {
            return Ok(result);
        }
        let params = again(ask, &wanted, terms, handler).await?;
        let ask = Ask { params: Some(&params), ..ask.clone() };
        result = connection.request(&ask, terms).await?;
    }
    match wanted(connection, ask, &result)? {
        None => Ok(result),
        Some(_) => Err(WireError::Protocol(format!("it asked for input more than {ROUNDS} times"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow, default)]
    result_type: Option<Key<'a>>,
    #[serde(borrow, default, rename = "inputRequests")]
    inputs: Option<RawObject<'a>>,
    #[serde(borrow, default, rename = "requestState")]
    state: Option<&'a RawValue>,
}

/// What a result still wants before it is one.
fn wanted<'a>(connection: &Connection, ask: &Ask<'_>, result: &'a RawValue) -> Result<Option<Head<'a>>, WireError> {
    let may_ask = matches!(ask.method, "tools/call" | "prompts/get" | "resources/read");
    if !may_ask || connection.speaking() != Era::Modern {
        return Ok(None);
    }
    let head: Head<'a> = serde_json::from_str(result.get())
        .map_err(|_| WireError::Protocol(format!("the result of `{}` is no object", ask.method)))?;
    match head.result_type.as_ref().map(|Key(kind)| kind.as_ref()) {
        None | Some("complete") => Ok(None),
        Some("input_required") if head.inputs.is_none() && head.state.is_none() => {
            Err(WireError::Protocol("it asks for input without saying for which".to_owned()))
        }
        Some("input_required") => Ok(Some(head)),
        Some(other) => Err(WireError::Protocol(format!("`{}` is no known type of result", shortened(other)))),
    }
}

/// The parameters of the next round.
async fn again(
    ask: &Ask<'_>,
    wanted: &Head<'_>,
    terms: &Terms,
    handler: Option<&Handler>,
) -> Result<Box<RawValue>, WireError> {
    let mut params = ask.params.and_then(RawObject::open).unwrap_or_default();
    params.retain(|key| !matches!(key, "inputResponses" | "requestState"));
    if let (Some(inputs), Some(handler)) = (&wanted.inputs, handler) {
        let mut responses = RawObject::default();
        for (key, request) in inputs.iter() {
            let request = RawObject::open(request).unwrap_or_default();
            let method = request.text("method").unwrap_or_default();
            let request = ServerRequest { method, params: request.get("params").map(ToOwned::to_owned) };
            let answer = tokio::select! {
                biased;
                () = terms.cancel.cancelled() => return Err(WireError::Cancelled { sent: true }),
                () = tokio::time::sleep_until(terms.deadline) => return Err(WireError::Timeout { sent: true }),
                answer = serve::answer(handler, request) => answer.map_err(WireError::Rpc)?,
            };
            responses.set(key, answer);
        }
        params.set("inputResponses", responses.close()?);
    }
    if let Some(state) = wanted.state {
        params.set("requestState", state.to_owned());
    }
    params.close()
}
