//! Prompts, resources and instructions of a fake server, from the file of `--features-file`. It is read for every request,
//! so that a test can change them:
//!
//! ```json
//! {"prompts": [{"name": "a"}], "resources": "broken", "resourceTemplates": "hang", "instructions": "Use it."}
//! ```
//!
//! A text instead of an array is the message of an error; with `hang` there is no response, with `late` none before the
//! file has another value (stdio only), and with `loop` a page whose cursor leads to itself. A list that is not in the file
//! is an unknown method. Listed prompts and resources can be read; their content is their key. Completions are empty.

use serde_json::{Value, json};

use super::ServerFlags;
use super::server::FakeReply;

/// Returns the response to a list method; `None` if it is not one of the file's.
pub(super) fn list(flags: &ServerFlags, method: &str, is_modern: bool) -> Option<FakeReply> {
    let key = list_key(method)?;
    let items = read(flags)?.get_mut(key)?.take();
    let mut result = match items.as_str() {
        Some("hang") => return Some(FakeReply::Hang),
        Some("loop") => json!({ key: [], "nextCursor": "again" }),
        Some(message) => return Some(FakeReply::Error(-32603, message.to_owned())),
        None => json!({ key: items }),
    };
    if is_modern {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("public");
    }
    Some(FakeReply::from_value(&result))
}

/// Returns the response to a request for a listed item; `None` if the file has none.
pub(super) fn read_item(flags: &ServerFlags, method: &str, params: &Value) -> Option<FakeReply> {
    let (list, key) = match method {
        "prompts/get" => ("prompts", "name"),
        "resources/read" => ("resources", "uri"),
        "completion/complete" => {
            read(flags)?;
            return Some(FakeReply::from_value(&json!({"completion": {"values": []}})));
        }
        _ => return None,
    };
    let features = read(flags)?;
    let item = features[list].as_array()?.iter().find(|item| item[key] == params[key])?;
    Some(FakeReply::from_value(&match method {
        "prompts/get" => json!({"messages": [{"role": "user", "content": {"type": "text", "text": item[key]}}]}),
        _ => json!({"contents": [{"uri": item[key], "text": item[key]}]}),
    }))
}

/// Whether a list has no response yet.
pub(super) fn is_late(flags: &ServerFlags, method: &str) -> bool {
    let list = list_key(method).and_then(|key| read(flags)?.get(key).cloned());
    list.is_some_and(|list| list == "late")
}

/// Name of a list in the file.
fn list_key(method: &str) -> Option<&'static str> {
    match method {
        "prompts/list" => Some("prompts"),
        "resources/list" => Some("resources"),
        "resources/templates/list" => Some("resourceTemplates"),
        _ => None,
    }
}

/// Adds the capabilities and the instructions of the file to the response to a handshake.
pub(super) fn add_to_handshake(flags: &ServerFlags, response: &mut Value) {
    let Some(features) = read(flags) else { return };
    if features.get("prompts").is_some() {
        response["capabilities"]["prompts"] = json!({"listChanged": true});
    }
    if features.get("resources").is_some() || features.get("resourceTemplates").is_some() {
        response["capabilities"]["resources"] = json!({"listChanged": true});
    }
    if let Some(instructions) = features.get("instructions") {
        response["instructions"] = instructions.clone();
    }
}

/// Reads the file; `None` without one.
fn read(flags: &ServerFlags) -> Option<Value> {
    let text = std::fs::read_to_string(flags.features_file.as_ref()?).ok()?;
    serde_json::from_str(&text).ok()
}
