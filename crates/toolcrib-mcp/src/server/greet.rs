//! What a client is told first.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use serde_json::{json, value::RawValue};
use tokio::time::timeout;

use super::{Greeting, Peer, exchange::Exchange, shared::Shared};
use crate::{
    era::{Era, Version},
    error::RpcError,
    message::{RawObject, raw},
};

/// The client of an `initialize`, in the version it will be spoken to.
pub(super) fn newcomer(params: Option<&RawValue>, query: &str) -> Peer {
    let params = params.and_then(RawObject::open).unwrap_or_default();
    let asked = params.text("protocolVersion").and_then(|version| version.parse().ok());
    let version = match asked {
        Some(Era::Legacy(version)) => version,
        // What is newer than the handshake, or unknown, is offered the newest with one.
        Some(Era::Modern) | None => Version::LATEST,
    };
    let name = params.get("clientInfo").and_then(RawObject::open).and_then(|client| client.text("name"));
    let capabilities = params.get("capabilities").map_or_else(nothing, ToOwned::to_owned);
    Peer::new(Era::Legacy(version), name, capabilities, query)
}

/// The result of `initialize`.
pub(super) async fn initialize(shared: &Shared, peer: &Arc<Peer>) -> Result<Box<RawValue>, RpcError> {
    let mut result = RawObject::default();
    result.set("protocolVersion", raw(peer.era.as_str())?);
    result.lend("serverInfo", &shared.info);
    greeting(shared, peer).await?.write(&mut result)?;
    Ok(result.close()?)
}

/// The result of `server/discover`.
pub(super) async fn discover(exchange: Arc<Exchange>) -> Result<Box<RawValue>, RpcError> {
    let mut result = RawObject::default();
    result.set("supportedVersions", raw(&supported())?);
    greeting(&exchange.shared, &exchange.peer).await?.write(&mut result)?;
    // It tells what this client may see, and may change at any time.
    result.set("ttlMs", raw(&0)?);
    result.set("cacheScope", raw("private")?);
    Ok(result.close()?)
}

impl Greeting {
    fn write(self, result: &mut RawObject<'_>) -> Result<(), RpcError> {
        result.set("capabilities", self.capabilities);
        if let Some(instructions) = &self.instructions {
            result.set("instructions", raw(instructions)?);
        }
        Ok(())
    }
}

pub(super) async fn greeting(shared: &Shared, peer: &Arc<Peer>) -> Result<Greeting, RpcError> {
    let asking = AssertUnwindSafe(async { shared.service.greeting(peer).await }).catch_unwind();
    let greeting = shared.stopping.run_until_cancelled(timeout(shared.options.greeting_timeout, asking)).await;
    match greeting {
        Some(Ok(Ok(greeting))) => Ok(greeting),
        Some(Ok(Err(_)) | Err(_)) => Err(RpcError::new(RpcError::INTERNAL, "the server is not ready")),
        None => Err(RpcError::new(RpcError::INTERNAL, "the server is stopping; try again")),
    }
}

/// The versions that are spoken here, newest first.
pub(super) fn supported() -> Vec<&'static str> {
    let legacy = Version::ALL.into_iter().rev().map(Version::as_str);
    std::iter::once(Era::Modern.as_str()).chain(legacy).collect()
}

pub(super) fn unsupported(version: &str) -> RpcError {
    let data = raw(&json!({ "supported": supported(), "requested": version })).ok();
    let message = format!("version `{}` is not spoken here", crate::error::shortened(version));
    RpcError { code: RpcError::UNSUPPORTED_VERSION, message, data }
}

pub(super) fn nothing() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}
