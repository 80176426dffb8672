//! Finds out which era a server lives in, and begins the conversation accordingly.
//!
//! A byte stream is asked to `initialize` first: nearly all servers there are legacy, and many start slowly, so that a
//! probe with a deadline would misjudge them. HTTP is asked `server/discover` first. Either falls over to the other on
//! an answer, never on a broken network.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::ServerDescription;
use crate::{
    connection::{ClientTransport, OutgoingRequest, RequestContext, WireConnection},
    era::{Era, LegacyVersion, MODERN_VERSION},
    error::{RpcError, WireError, sanitize_excerpt},
    message::{self, RawObject, to_raw},
};

/// How long the first request waits for the stream of what a server says by itself.
const LISTEN_START_TIMEOUT: Duration = Duration::from_millis(250);

/// What to try first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstProbe {
    Initialize,
    Discover,
}

pub(crate) struct HandshakeResult {
    pub(crate) era: Era,
    pub(crate) server: ServerDescription,
}

pub(crate) async fn negotiate(
    connection: &Arc<WireConnection>,
    first: FirstProbe,
    deadline: Instant,
) -> Result<HandshakeResult, WireError> {
    match first {
        FirstProbe::Initialize => match initialize(connection, deadline).await {
            Err(error) if suggests_other_era(&error) => match discover(connection, deadline).await {
                Ok(Some(greeting)) => Ok(greeting),
                // The answer to the first question is the one people can act on.
                Ok(None) | Err(_) => Err(error),
            },
            outcome => outcome,
        },
        FirstProbe::Discover => {
            // A server that swallows what it does not know must leave time for `initialize`.
            let now = Instant::now();
            let probing = now + deadline.saturating_duration_since(now) / 2;
            match discover(connection, probing).await? {
                Some(greeting) => Ok(greeting),
                None => initialize(connection, deadline).await,
            }
        }
    }
}

/// The handshake of the legacy era, also used to begin a new session in the middle.
pub(crate) async fn initialize(
    connection: &Arc<WireConnection>,
    deadline: Instant,
) -> Result<HandshakeResult, WireError> {
    let options = &connection.options;
    let params = to_raw(&json!({
        "protocolVersion": LegacyVersion::LATEST.as_str(),
        "capabilities": &options.capabilities,
        "clientInfo": { "name": options.client_name, "version": options.client_version },
    }))?;
    connection.set_era(Era::Legacy(LegacyVersion::LATEST));
    let result = send_request(connection, "initialize", Some(&params), deadline).await?;
    let said = RawObject::parse(&result).ok_or_else(|| not_mcp_error("initialize", &result))?;
    let version = said.get_string("protocolVersion").ok_or_else(|| not_mcp_error("initialize", &result))?;
    if version == MODERN_VERSION {
        let error =
            RpcError::new(RpcError::UNSUPPORTED_VERSION, format!("`initialize` was answered with `{MODERN_VERSION}`"));
        return Err(WireError::Rpc(error));
    }
    let era = Era::Legacy(LegacyVersion::nearest(&version));
    connection.set_era(era);
    let initialized = message::encode_notification("notifications/initialized", None)?;
    if let Err(error) = connection.send_message("notifications/initialized", initialized).await {
        // Some servers refuse every notification and work all the same; a dead one shows at the next request.
        tracing::debug!(error = error.kind(), "the server did not take `notifications/initialized`");
    }
    if let ClientTransport::Http(http) = &connection.transport
        && options.listen
        && http.try_start_listening()
    {
        let listening = connection.clone();
        let (asked, heard) = oneshot::channel();
        connection.spawn(async move {
            if let ClientTransport::Http(http) = &listening.transport {
                http.run_listen_stream(&listening, asked).await;
            }
        });
        // What a server asks or says before somebody listens is lost on both sides: it waits for an answer that
        // never comes. Some send nothing back before they have something to say, so this wait is short.
        let _either_way = timeout(LISTEN_START_TIMEOUT, heard).await;
    }
    Ok(HandshakeResult { era, server: describe_server(&said, said.get("serverInfo")) })
}

/// The modern greeting; `None` when the server turns out to be a legacy one.
async fn discover(connection: &Arc<WireConnection>, deadline: Instant) -> Result<Option<HandshakeResult>, WireError> {
    connection.set_era(Era::Modern);
    let result = match send_request(connection, "server/discover", None, deadline).await {
        // Named once more although it is the version we asked with: a server may have been in between versions.
        Err(WireError::Rpc(error)) if offers_modern(&error)? => {
            send_request(connection, "server/discover", None, deadline).await
        }
        outcome => outcome,
    };
    let result = match result {
        Ok(result) => result,
        Err(WireError::Rpc(error))
            if is_modern_error_code(error.code) && error.code != RpcError::UNSUPPORTED_VERSION =>
        {
            return Err(WireError::Rpc(error));
        }
        Err(WireError::Timeout { .. }) => return Ok(None),
        Err(error) if suggests_other_era(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Some old servers answer any method with an empty success.
    let Some(said) = RawObject::parse(&result) else { return Ok(None) };
    let versions: Vec<String> = said
        .get("supportedVersions")
        .and_then(|versions| serde_json::from_str(versions.get()).ok())
        .unwrap_or_default();
    if !versions.iter().any(|version| version == MODERN_VERSION) {
        return Ok(None);
    }
    let meta = said.get("_meta").and_then(RawObject::parse).unwrap_or_default();
    let info = meta.get("io.modelcontextprotocol/serverInfo").or_else(|| said.get("serverInfo"));
    Ok(Some(HandshakeResult { era: Era::Modern, server: describe_server(&said, info) }))
}

async fn send_request(
    connection: &Arc<WireConnection>,
    method: &str,
    params: Option<&RawValue>,
    deadline: Instant,
) -> Result<Box<RawValue>, WireError> {
    let ask = OutgoingRequest { method, params, headers: http::HeaderMap::new(), relay: None };
    let answer = connection.request_once(&ask, &RequestContext::with_deadline(deadline)).await?;
    answer.ok_or_else(|| WireError::Protocol(format!("it lost a session before `{method}`")))
}

/// Whether this refusal of a version offers ours. One that offers nothing we speak is final.
fn offers_modern(error: &RpcError) -> Result<bool, WireError> {
    #[derive(Deserialize)]
    struct VersionErrorData {
        supported: Vec<String>,
    }
    if error.code != RpcError::UNSUPPORTED_VERSION {
        return Ok(false);
    }
    let offer = error.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok());
    let Some(VersionErrorData { supported }) = offer else { return Ok(false) };
    if supported.iter().any(|version| version == MODERN_VERSION) {
        return Ok(true);
    }
    if supported.iter().any(|version| version.parse::<Era>().is_ok()) {
        return Ok(false);
    }
    let versions = sanitize_excerpt(&supported.join("`, `"));
    Err(WireError::Protocol(format!("it speaks only `{versions}`, none of which is known here; update this program")))
}

fn is_modern_error_code(code: i64) -> bool {
    matches!(code, RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION)
}

/// Whether an error is an answer, from a server that may speak the other way; not a broken network or a missing token.
fn suggests_other_era(error: &WireError) -> bool {
    match error {
        WireError::Rpc(_) | WireError::NotMcp(_) | WireError::Protocol(_) => true,
        // A server that is asked too often answers 429 to any version.
        WireError::Status { status, .. } => matches!(status, 400..=501) && *status != 429,
        WireError::Connect(_)
        | WireError::Unauthorized { .. }
        | WireError::Timeout { .. }
        | WireError::Closed { .. }
        | WireError::TooLarge { .. }
        | WireError::Cancelled { .. } => false,
    }
}

fn describe_server(said: &RawObject<'_>, info: Option<&RawValue>) -> ServerDescription {
    let nothing = || RawValue::from_string("{}".to_owned()).unwrap_or_default();
    ServerDescription {
        info: info.map(ToOwned::to_owned),
        capabilities: said.get("capabilities").map_or_else(nothing, ToOwned::to_owned),
        instructions: said.get_string("instructions"),
    }
}

fn not_mcp_error(method: &str, result: &RawValue) -> WireError {
    WireError::NotMcp(format!("it answered `{method}` with `{}`", sanitize_excerpt(result.get())))
}
