//! Negotiates the protocol era with a server: `initialize` (legacy) or `server/discover` (2026-07-28).
//!
//! Over stdio the client sends `initialize` first: nearly all stdio servers are legacy, and many start so slowly that a
//! probe with a deadline would misjudge them. Over HTTP it sends `server/discover` first. It falls back to the other
//! request when the server answers with an error, or does not answer `server/discover` within half of the time; never
//! when the connection fails. An era that is known from an earlier connection decides which request comes first, but
//! not the result, because servers are upgraded.
//!
//! ```text
//! stdio:  initialize ── error ──▶ server/discover
//! HTTP:   server/discover ── error, timeout, other result ──▶ initialize ── 400, 404, 405 ──▶ GET (HTTP+SSE)
//! ```

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::ServerDescription;
use crate::{
    connection::{ClientTransport, OutgoingRequest, WireConnection},
    era::{Era, LegacyVersion, MODERN_VERSION},
    error::{RpcError, WireError, sanitize_excerpt},
    message::{self, RawObject, to_raw},
    options::RequestOptions,
};

/// Maximum time to wait for the legacy GET event stream to open before the first request is sent. Each
/// connection to a server that holds back its response headers waits this long, so it is short.
const LISTEN_START_TIMEOUT: Duration = Duration::from_millis(250);

/// Handshake request to try first. The other one remains the fallback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstProbe {
    Initialize,
    Discover,
}

/// Negotiated era and the server's self-description.
pub(crate) struct HandshakeResult {
    pub(crate) era: Era,
    pub(crate) server: ServerDescription,
    /// False when the server has rejected the request of the other era.
    pub(crate) may_speak_other_era: bool,
}

/// Tries `first`, then the request of the other era if the server answered with an error. Afterwards the connection is
/// in the negotiated era; after an error it must not be used.
pub(crate) async fn negotiate(
    connection: &Arc<WireConnection>,
    first: FirstProbe,
    deadline: Instant,
) -> Result<HandshakeResult, WireError> {
    let fallback = |handshake: HandshakeResult| HandshakeResult { may_speak_other_era: false, ..handshake };
    match connection.options.protocol {
        Some(Era::Legacy(_)) => return initialize(connection, deadline).await,
        Some(Era::Modern) => {
            let unsupported = || WireError::Protocol(format!("it does not support version `{MODERN_VERSION}`"));
            return discover(connection, deadline).await?.ok_or_else(unsupported);
        }
        None => {}
    }
    match first {
        FirstProbe::Initialize => match initialize(connection, deadline).await {
            Err(error) if suggests_other_era(&error) => match discover(connection, deadline).await {
                Ok(Some(handshake)) => Ok(fallback(handshake)),
                // Report the error of `initialize`: most servers are legacy, so it names the actual problem.
                Ok(None) | Err(_) => Err(error),
            },
            outcome => outcome,
        },
        FirstProbe::Discover => {
            // Some servers never answer unknown methods; half of the time remains for `initialize`.
            let now = Instant::now();
            let probe_deadline = now + deadline.saturating_duration_since(now) / 2;
            match discover(connection, probe_deadline).await? {
                Some(handshake) => Ok(handshake),
                None => initialize(connection, deadline).await.map(fallback),
            }
        }
    }
}

/// Performs the legacy handshake: `initialize`, `notifications/initialized`, and over HTTP the GET event stream. Also
/// called to begin a new session after the server lost the old one.
pub(crate) async fn initialize(
    connection: &Arc<WireConnection>,
    deadline: Instant,
) -> Result<HandshakeResult, WireError> {
    let options = &connection.options;
    let offered = match options.protocol {
        Some(Era::Legacy(version)) => version,
        Some(Era::Modern) | None => LegacyVersion::LATEST,
    };
    let params = to_raw(&json!({
        "protocolVersion": offered.as_str(),
        "capabilities": &options.capabilities,
        "clientInfo": { "name": options.client_name, "version": options.client_version },
    }))?;
    // Set before the request, whose encoding and headers depend on it; `discover` may have left the modern era.
    connection.set_era(Era::Legacy(offered));
    let result = send_request(connection, "initialize", Some(&params), deadline).await?;
    let fields = RawObject::parse(&result).ok_or_else(|| not_mcp_error("initialize", &result))?;
    // The version is the only required field; others may be missing.
    let version = fields.get_string("protocolVersion").ok_or_else(|| not_mcp_error("initialize", &result))?;
    if version == MODERN_VERSION {
        // 2026-07-28 has no `initialize`, so the server confuses the eras; the error makes `negotiate` try `discover`.
        let error =
            RpcError::new(RpcError::UNSUPPORTED_VERSION, format!("`initialize` was answered with `{MODERN_VERSION}`"));
        return Err(WireError::Rpc(error));
    }
    let era = Era::Legacy(LegacyVersion::nearest(&version));
    connection.set_era(era);
    let initialized = message::encode_notification("notifications/initialized", None)?;
    if let Err(error) = connection.send_message("notifications/initialized", initialized).await {
        // Some servers reject every notification and work all the same; a dead server fails at the next request.
        tracing::debug!(error = error.kind(), "the server did not accept `notifications/initialized`");
    }
    if let ClientTransport::Http(http) = &connection.transport
        && options.listen
        && http.try_start_listening()
    {
        let listening = connection.clone();
        let (opened, wait_opened) = oneshot::channel();
        connection.spawn(async move {
            if let ClientTransport::Http(http) = &listening.transport {
                http.run_listen_stream(&listening, opened).await;
            }
        });
        // A request that the server sends before the stream is open gets lost, and the server waits for a response
        // that never comes. Some servers send no response headers before their first message, so the wait is short
        // and a timeout is no error.
        let _ = timeout(LISTEN_START_TIMEOUT, wait_opened).await;
    }
    let server = describe_server(&fields, fields.get("serverInfo"));
    Ok(HandshakeResult { era, server, may_speak_other_era: true })
}

/// Sends `server/discover`; returns `None` when the server turns out to be a legacy one. An error means that
/// `initialize` would fail as well: the server speaks 2026-07-28 and rejects the request, cannot be reached, or needs a
/// token.
async fn discover(connection: &Arc<WireConnection>, deadline: Instant) -> Result<Option<HandshakeResult>, WireError> {
    connection.set_era(Era::Modern);
    let result = match send_request(connection, "server/discover", None, deadline).await {
        // The server rejects the version and offers the same one, for example during a rolling upgrade: retry once.
        Err(WireError::Rpc(error)) if offers_modern(&error)? => {
            send_request(connection, "server/discover", None, deadline).await
        }
        outcome => outcome,
    };
    let result = match result {
        Ok(result) => result,
        Err(WireError::Rpc(error))
            // Only a modern server uses these codes, so its error is the result.
            if is_modern_error_code(error.code) && error.code != RpcError::UNSUPPORTED_VERSION =>
        {
            return Err(WireError::Rpc(error));
        }
        // Legacy servers may ignore unknown methods.
        Err(WireError::Timeout { .. }) => return Ok(None),
        Err(error) if suggests_other_era(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Some legacy servers answer any method with an empty result.
    let Some(fields) = RawObject::parse(&result) else { return Ok(None) };
    if !supports_modern(&fields) {
        return Ok(None);
    }
    // The specification puts `serverInfo` into `_meta`; the top level, where `initialize` has it, is accepted too.
    let meta = fields.get("_meta").and_then(RawObject::parse).unwrap_or_default();
    let info = meta.get("io.modelcontextprotocol/serverInfo").or_else(|| fields.get("serverInfo"));
    let server = describe_server(&fields, info);
    Ok(Some(HandshakeResult { era: Era::Modern, server, may_speak_other_era: true }))
}

/// Whether the result of `server/discover` names 2026-07-28 as supported.
pub(super) fn supports_modern(fields: &RawObject<'_>) -> bool {
    let versions = fields.get("supportedVersions");
    let versions: Option<Vec<String>> = versions.and_then(|versions| serde_json::from_str(versions.get()).ok());
    versions.is_some_and(|versions| versions.iter().any(|version| version == MODERN_VERSION))
}

/// Sends one handshake request without session renewal, which would call the handshake again.
async fn send_request(
    connection: &Arc<WireConnection>,
    method: &str,
    params: Option<&RawValue>,
    deadline: Instant,
) -> Result<Box<RawValue>, WireError> {
    let request = OutgoingRequest::new(method, params);
    let response = connection.request_once(&request, &RequestOptions::with_deadline(deadline)).await?;
    response.ok_or_else(|| WireError::Protocol(format!("it answered `{method}` with a lost session")))
}

/// Whether an `UNSUPPORTED_VERSION` error offers 2026-07-28. An error that offers no version known here is final.
fn offers_modern(error: &RpcError) -> Result<bool, WireError> {
    /// Data of an `UNSUPPORTED_VERSION` error.
    #[derive(Deserialize)]
    struct VersionErrorData {
        supported: Vec<String>,
    }
    if error.code != RpcError::UNSUPPORTED_VERSION {
        return Ok(false);
    }
    let data = error.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok());
    let Some(VersionErrorData { supported }) = data else { return Ok(false) };
    if supported.iter().any(|version| version == MODERN_VERSION) {
        return Ok(true);
    }
    if supported.iter().any(|version| version.parse::<Era>().is_ok()) {
        return Ok(false);
    }
    let versions = sanitize_excerpt(&supported.join("`, `"));
    Err(WireError::Protocol(format!("it supports only `{versions}`, none of which is known here; update this program")))
}

/// Whether only servers of 2026-07-28 use this error code.
fn is_modern_error_code(code: i64) -> bool {
    matches!(code, RpcError::HEADER_MISMATCH | RpcError::MISSING_CAPABILITY | RpcError::UNSUPPORTED_VERSION)
}

/// Whether an error came from a server that may support the other era, and not from the network or a missing token.
/// Trying the other era after a network failure would only double the time until the failure is reported.
fn suggests_other_era(error: &WireError) -> bool {
    match error {
        WireError::Rpc(_) | WireError::NotMcp(_) | WireError::Protocol(_) => true,
        // Rate limits (429) and gateway errors (502 to 504) say nothing about the era.
        WireError::Status { status, .. } => matches!(status, 400..=501) && *status != 429,
        WireError::Connect(_)
        | WireError::Unauthorized { .. }
        | WireError::Timeout { .. }
        | WireError::Closed { .. }
        | WireError::TooLarge { .. }
        | WireError::Cancelled { .. } => false,
    }
}

/// Builds the description from the result of `initialize` or `server/discover`, which share these fields.
fn describe_server(fields: &RawObject<'_>, info: Option<&RawValue>) -> ServerDescription {
    ServerDescription {
        info: info.map(ToOwned::to_owned),
        capabilities: fields.get("capabilities").map_or_else(message::empty_object, ToOwned::to_owned),
        instructions: fields.get_string("instructions"),
    }
}

/// The error for a result that lacks the required fields.
fn not_mcp_error(method: &str, result: &RawValue) -> WireError {
    WireError::NotMcp(format!("it answered `{method}` with `{}`", sanitize_excerpt(result.get())))
}
