//! Binary content too large for a result, held for a while so that its client can read it as a resource.
//!
//! An embedded resource of more than 64 KiB, and an image or audio that does not fit into a result, becomes a link:
//!
//! ```json
//! { "type": "resource_link", "uri": "toolcrib-held://NODE-binary-ID", "name": "report.pdf", "size": 70000, … }
//! ```
//!
//! The node in the URI is the process that can serve it, the id is 128 random bits. What a client with a session was sent
//! can be read by that client alone and ends with it; what a client without one was sent can be read by the same
//! principal. Everything is in memory and bounded: ten minutes; 32 binaries and 64 MiB for each client; 256 and 128 MiB
//! for all.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use toolcrib_core::json::RawFields;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};

use crate::call::{CallContext, ClientId, ResultOwner};
use crate::connector::ToolResult;
use crate::node::{HandleOrigin, NodeId};

/// Larger binary content is held instead of included in the result.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// Time during which a binary can be read.
const BINARY_LIFETIME: Duration = Duration::from_secs(600);
/// Limits for the binaries of one client, and for all. The oldest are removed first.
const CLIENT_LIMITS: HoldLimits = HoldLimits { count: 32, bytes: 64 * 1024 * 1024 };
const TOTAL_LIMITS: HoldLimits = HoldLimits { count: 256, bytes: 128 * 1024 * 1024 };
/// Scheme of the URIs.
const URI_PREFIX: &str = "toolcrib-held://";

/// Held binaries, oldest first.
#[derive(Debug)]
pub(crate) struct BinaryStore {
    binaries: Mutex<Vec<StoredBinary>>,
    client_limits: HoldLimits,
    total_limits: HoldLimits,
    /// Handles begin with it.
    node: NodeId,
}

#[derive(Debug, Clone, Copy)]
struct HoldLimits {
    count: usize,
    bytes: usize,
}

#[derive(Debug)]
struct StoredBinary {
    owner: ResultOwner,
    binary: HeldBinary,
    expires_at: Instant,
}

/// Binary content that a result links to.
#[derive(Clone)]
#[non_exhaustive]
pub struct HeldBinary {
    /// URI of the link.
    pub uri: String,
    /// Media type that the source named.
    pub media_type: String,
    /// The content as Base64.
    pub base64: Arc<str>,
}

impl BinaryStore {
    pub(crate) fn new(node: NodeId) -> BinaryStore {
        BinaryStore { binaries: Mutex::default(), client_limits: CLIENT_LIMITS, total_limits: TOTAL_LIMITS, node }
    }

    /// Replaces large binary blocks of a result by links to what is held. A result without any is returned as it is.
    /// Images and audio are for the agent to see and hear, so they stay in the result up to `result_limit`.
    pub(crate) fn hold(&self, result: ToolResult, result_limit: u64, context: &CallContext) -> ToolResult {
        let replace = || {
            let blocks: Vec<&RawValue> = serde_json::from_str(result.layout.content(&result.raw)).ok()?;
            let links: Vec<Option<Box<RawValue>>> =
                blocks.iter().map(|block| self.hold_block(block, result_limit, context)).collect();
            if links.iter().all(Option::is_none) {
                return None;
            }
            let blocks: Vec<&RawValue> =
                blocks.into_iter().zip(&links).map(|(block, link)| link.as_deref().unwrap_or(block)).collect();
            let mut fields = RawFields::parse(&result.raw)?;
            fields.insert("content", to_raw_value(&blocks).ok()?);
            ToolResult::parse(to_raw_value(&fields).ok()?)
        };
        // Most results are too small to contain one.
        let is_large = result.raw.get().len() > MAX_INLINE_BYTES.min(result_limit as usize);
        is_large.then(replace).flatten().unwrap_or(result)
    }

    /// Holds the content of a block, if it is large, and returns the link.
    fn hold_block(&self, block: &RawValue, result_limit: u64, context: &CallContext) -> Option<Box<RawValue>> {
        if block.get().len() <= MAX_INLINE_BYTES.min(result_limit as usize) {
            return None;
        }
        let fields = RawFields::parse(block)?;
        let resource = fields.get("resource").and_then(RawFields::parse);
        let content = resource.as_ref().unwrap_or(&fields);
        let text = |name: &str| serde_json::from_str::<String>(content.get(name)?.get()).ok();
        let base64 = text(if resource.is_some() { "blob" } else { "data" })?;
        let size = decoded_size(&base64);
        let is_held =
            if resource.is_some() { size > MAX_INLINE_BYTES } else { block.get().len() as u64 > result_limit };
        if !is_held {
            return None;
        }
        let media_type = text("mimeType").unwrap_or_else(|| "application/octet-stream".to_owned());
        let name = resource_name(&text("uri").unwrap_or_default());
        let uri = format!("{URI_PREFIX}{}-binary-{:032x}", self.node.as_str(), rand::random::<u128>());
        let minutes = BINARY_LIFETIME.as_secs() / 60;
        let link = json!({
            "type": "resource_link",
            "uri": uri,
            "name": name,
            "description": format!("{size} bytes, to be read with `resources/read` within {minutes} minutes"),
            "mimeType": media_type,
            "size": size,
        });
        self.insert(StoredBinary {
            owner: context.result_owner(),
            binary: HeldBinary { uri, media_type, base64: base64.into() },
            expires_at: Instant::now() + BINARY_LIFETIME,
        });
        to_raw_value(&link).ok()
    }

    /// Adds a binary; removes expired ones, and the oldest of the client or of all while a limit is exceeded.
    fn insert(&self, stored: StoredBinary) {
        let owner = stored.owner.clone();
        let mut binaries = self.binaries.lock();
        binaries.retain(|other| other.expires_at > Instant::now());
        binaries.push(stored);
        remove_oldest(&mut binaries, self.client_limits, |stored| stored.owner == owner);
        remove_oldest(&mut binaries, self.total_limits, |_| true);
    }

    /// Returns the binary of a URI, if the client may read it. Unknown, expired and foreign ones get the same error, so
    /// that it reveals nothing.
    pub(crate) fn read(&self, uri: &str, context: &CallContext) -> Result<HeldBinary> {
        let owner = context.result_owner();
        let binaries = self.binaries.lock();
        let now = Instant::now();
        let mut readable = binaries.iter().filter(|stored| stored.owner == owner && stored.expires_at > now);
        if let Some(stored) = readable.find(|stored| stored.binary.uri == uri) {
            return Ok(stored.binary.clone());
        }
        let handle = uri.strip_prefix(URI_PREFIX).unwrap_or_default();
        if self.node.classify(handle) == HandleOrigin::OtherProcess {
            let message = "this content was held in another process and is lost; call the tool again";
            return Err(Error::new(Code::ToolUnavailable, message));
        }
        let message = format!(
            "nothing is held at `{}`: content is held for {} minutes, for the client that made the call; call the tool again",
            sanitize_truncated(uri, 100),
            BINARY_LIFETIME.as_secs() / 60
        );
        Err(Error::new(Code::NotFound, message))
    }

    /// Removes the binaries of a client that has disconnected.
    pub(crate) fn remove_client(&self, client: ClientId) {
        self.binaries.lock().retain(|stored| stored.owner != ResultOwner::Session(client));
    }

    pub(crate) fn remove_expired(&self) {
        self.binaries.lock().retain(|stored| stored.expires_at > Instant::now());
    }
}

/// Whether a URI has the scheme of held binaries, known or not.
pub fn is_held_uri(uri: &str) -> bool {
    uri.starts_with(URI_PREFIX)
}

/// Removes the oldest of the selected binaries until they are within the limits.
fn remove_oldest(binaries: &mut Vec<StoredBinary>, limits: HoldLimits, is_selected: impl Fn(&StoredBinary) -> bool) {
    let selected = || binaries.iter().filter(|stored| is_selected(stored));
    let mut count = selected().count();
    let mut bytes: usize = selected().map(|stored| stored.binary.base64.len()).sum();
    binaries.retain(|stored| {
        let is_within_limits = count <= limits.count && bytes <= limits.bytes;
        if is_within_limits || !is_selected(stored) {
            return true;
        }
        count -= 1;
        bytes -= stored.binary.base64.len();
        false
    });
}

/// Number of bytes that a text in base64 stands for.
fn decoded_size(base64: &str) -> usize {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    base64.len() / 4 * 3 - padding
}

/// Name for a link: the last segment of the path.
fn resource_name(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let path = path.split_once("://").map_or(path, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let name = sanitize_truncated(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default(), 100);
    if name.is_empty() { "content".to_owned() } else { name }
}

/// Without the content.
impl std::fmt::Debug for HeldBinary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldBinary")
            .field("uri", &self.uri)
            .field("media_type", &self.media_type)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use toolcrib_core::principal::{Principal, PrincipalIdentity};

    use super::*;

    fn client(id: u64) -> CallContext {
        CallContext { client: Some(ClientId(id)), ..CallContext::default() }
    }

    const RESULT_LIMIT: u64 = 256 * 1024;

    fn hold(store: &BinaryStore, blob_len: usize, context: &CallContext) -> Value {
        hold_base64(store, &"A".repeat(blob_len), context)
    }

    fn hold_base64(store: &BinaryStore, blob: &str, context: &CallContext) -> Value {
        let resource = json!({ "uri": "http://h/files/report.pdf?key=1", "mimeType": "application/pdf", "blob": blob });
        hold_content(store, json!({ "type": "resource", "resource": resource }), context)
    }

    fn hold_content(store: &BinaryStore, block: Value, context: &CallContext) -> Value {
        let result = json!({ "content": [{ "type": "text", "text": "200 OK" }, block], "_meta": { "a": 1 } });
        let result = ToolResult::parse(to_raw_value(&result).unwrap()).unwrap();
        serde_json::from_str(store.hold(result, RESULT_LIMIT, context).raw.get()).unwrap()
    }

    #[test]
    fn the_limit_counts_the_bytes_and_not_their_base64() {
        let store = BinaryStore::new(NodeId::random(&[0; 32]));
        // 65,536, 65,537 and 65,538 bytes have the same length as base64.
        for (padding, expected) in [("==", "resource"), ("=", "resource_link"), ("", "resource_link")] {
            let blob = format!("{}{padding}", "A".repeat(87_384 - padding.len()));
            assert_eq!(hold_base64(&store, &blob, &client(1))["content"][1]["type"], expected, "{padding}");
        }
    }

    #[test]
    fn an_image_is_held_if_it_does_not_fit_into_a_result() {
        let store = BinaryStore::new(NodeId::random(&[0; 32]));
        let image = |len: usize| json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(len) });
        assert_eq!(hold_content(&store, image(200_000), &client(1))["content"][1]["type"], "image");
        let link = &hold_content(&store, image(300_000), &client(1))["content"][1];
        assert_eq!((&link["type"], &link["size"]), (&json!("resource_link"), &json!(225_000)));
        let binary = store.read(link["uri"].as_str().unwrap(), &client(1)).unwrap();
        assert_eq!((binary.media_type.as_str(), binary.base64.len()), ("image/png", 300_000));
        // A long text has no content to hold.
        let text = json!({ "type": "text", "text": "A".repeat(300_000) });
        assert_eq!(hold_content(&store, text, &client(1))["content"][1]["type"], "text");
    }

    fn uri(result: &Value) -> &str {
        result["content"][1]["uri"].as_str().unwrap()
    }

    #[tokio::test]
    async fn large_content_becomes_a_link_that_its_client_can_read() {
        let store = BinaryStore::new(NodeId::random(&[0; 32]));
        assert_eq!(hold(&store, 80_000, &client(1))["content"][1]["type"], "resource");
        let result = hold(&store, 100_000, &client(1));
        let link = &result["content"][1];
        assert_eq!(
            (&link["type"], &link["name"], &link["size"]),
            (&json!("resource_link"), &json!("report.pdf"), &json!(75_000))
        );
        assert_eq!((&result["content"][0]["text"], &result["_meta"]), (&json!("200 OK"), &json!({ "a": 1 })));
        let binary = store.read(uri(&result), &client(1)).unwrap();
        assert_eq!((binary.media_type.as_str(), binary.base64.len()), ("application/pdf", 100_000));
        assert_eq!(store.read(uri(&result), &client(2)).unwrap_err().code, Code::NotFound);
        assert_eq!(store.read("toolcrib-held://x", &client(1)).unwrap_err().code, Code::NotFound);
        let restarted = BinaryStore::new(NodeId::random(&[0; 32]));
        assert_eq!(restarted.read(uri(&result), &client(1)).unwrap_err().code, Code::ToolUnavailable);
        store.remove_client(ClientId(1));
        assert!(store.read(uri(&result), &client(1)).is_err());

        // Without a session the principal counts.
        let stateless = |caller: Principal, id| CallContext { caller, stateless: true, ..client(id) };
        let token = |id: &str| {
            let identity = PrincipalIdentity::Token { id: id.into() };
            Principal::new(identity, id, toolcrib_core::access::Role::Agent)
        };
        let result = hold(&store, 100_000, &stateless(token("a"), 1));
        assert!(store.read(uri(&result), &stateless(token("a"), 2)).is_ok());
        assert!(store.read(uri(&result), &stateless(token("b"), 1)).is_err());
        assert!(store.read(uri(&result), &client(1)).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_bounded_and_expires() {
        let store = BinaryStore {
            client_limits: HoldLimits { count: 3, bytes: 350_000 },
            total_limits: HoldLimits { count: 4, bytes: 1_000_000 },
            ..BinaryStore::new(NodeId::random(&[0; 32]))
        };
        let mut held: Vec<(u64, Value)> = Vec::new();
        let mut hold_for = |id: u64, len: usize| {
            held.push((id, hold(&store, len, &client(id))));
            held.iter().map(|(id, result)| store.read(uri(result), &client(*id)).is_ok()).collect::<Vec<_>>()
        };
        hold_for(2, 100_000);
        hold_for(1, 100_000);
        hold_for(1, 100_000);
        assert_eq!(hold_for(1, 100_000), [true, true, true, true]);
        assert_eq!(hold_for(1, 100_000), [true, false, true, true, true], "three for a client");
        assert_eq!(hold_for(1, 200_000), [true, false, false, false, true, true], "bytes of a client");
        hold_for(3, 100_000);
        assert_eq!(hold_for(4, 100_000), [false, false, false, false, true, true, true, true], "four for all");
        tokio::time::advance(BINARY_LIFETIME).await;
        assert!(held.iter().all(|(id, result)| store.read(uri(result), &client(*id)).is_err()));
        store.remove_expired();
        assert!(store.binaries.lock().is_empty());
    }
}
