//! Server side of the handshake: the results of `initialize` and `server/discover`.
//!
//! A legacy client describes itself once, and the description lives with its session; a client of 2026-07-28 describes
//! itself in each request, and `server/discover` is an ordinary request.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{McpPeer, ServiceDescription, request::Request, shared::ServerShared};
use crate::{
    era::{Era, LegacyVersion},
    error::RpcError,
    message::{RawObject, empty_object, to_raw},
};

/// Builds the peer of an `initialize` request, with the negotiated version. MCP requires `protocolVersion`,
/// `capabilities` and `clientInfo`; missing or malformed ones get defaults, since the server can work without them.
pub(super) fn legacy_peer(params: Option<&RawValue>, query: &str) -> McpPeer {
    let params = params.and_then(RawObject::parse).unwrap_or_default();
    let requested = params.get_string("protocolVersion").and_then(|version| version.parse().ok());
    let version = match requested {
        Some(Era::Legacy(version)) => version,
        // An unknown version, or one without `initialize`, is answered with the newest that has it.
        Some(Era::Modern) | None => LegacyVersion::LATEST,
    };
    let name = params.get("clientInfo").and_then(RawObject::parse).and_then(|client| client.get_string("name"));
    let capabilities = params.get("capabilities").map_or_else(empty_object, ToOwned::to_owned);
    McpPeer::new(Era::Legacy(version), name, capabilities, query)
}

/// Builds the result of `initialize`.
pub(super) async fn initialize_result(shared: &ServerShared, peer: &Arc<McpPeer>) -> Result<Box<RawValue>, RpcError> {
    let mut result = RawObject::default();
    result.set("protocolVersion", to_raw(peer.era.as_str())?);
    result.set_borrowed("serverInfo", &shared.server_info);
    describe_service(shared, peer).await?.write_to(&mut result)?;
    Ok(result.to_raw()?)
}

/// Builds the result of `server/discover`.
pub(super) async fn discover_result(request: Arc<Request>) -> Result<Box<RawValue>, RpcError> {
    let mut result = RawObject::default();
    result.set("supportedVersions", to_raw(&supported_versions())?);
    describe_service(request.shared(), request.peer()).await?.write_to(&mut result)?;
    // The description depends on the client's permissions and may change at any time, so it must not be cached.
    result.set("ttlMs", to_raw(&0)?);
    result.set("cacheScope", to_raw("private")?);
    Ok(result.to_raw()?)
}

impl ServiceDescription {
    /// Adds the fields that both results share.
    fn write_to(self, result: &mut RawObject<'_>) -> Result<(), RpcError> {
        result.set("capabilities", self.capabilities);
        if let Some(instructions) = &self.instructions {
            result.set("instructions", to_raw(instructions)?);
        }
        Ok(())
    }
}

/// Asks the service for its description, with a timeout. A panic of the service becomes an error.
pub(super) async fn describe_service(
    shared: &ServerShared,
    peer: &Arc<McpPeer>,
) -> Result<ServiceDescription, RpcError> {
    let describing = AssertUnwindSafe(async { shared.service.describe(peer).await }).catch_unwind();
    let description = shared.stopping.run_until_cancelled(timeout(shared.options.describe_timeout, describing)).await;
    match description {
        Some(Ok(Ok(description))) => Ok(description),
        Some(Ok(Err(_)) | Err(_)) => Err(RpcError::new(RpcError::INTERNAL, "the server is not ready")),
        None => Err(RpcError::new(RpcError::INTERNAL, "the server is stopping; try again")),
    }
}

/// Returns the supported protocol versions, newest first.
pub(super) fn supported_versions() -> Vec<&'static str> {
    let legacy = LegacyVersion::ALL.into_iter().rev().map(LegacyVersion::as_str);
    std::iter::once(Era::Modern.as_str()).chain(legacy).collect()
}

/// The error for an unsupported version, with the supported ones as its data, from which a client chooses another.
pub(super) fn unsupported_version(version: &str) -> RpcError {
    let data = to_raw(&json!({ "supported": supported_versions(), "requested": version })).ok();
    let message = format!("unsupported protocol version `{}`", crate::error::sanitize_excerpt(version));
    RpcError { code: RpcError::UNSUPPORTED_VERSION, message, data }
}
