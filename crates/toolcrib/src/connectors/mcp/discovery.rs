//! Discovery of an MCP source: lists its tools over an open connection or a temporary one, and removes what must not reach
//! the manifest: secrets of the source, and execution specifications that a server made up. Prompts and resources follow
//! in `feature_lists`.

use serde_json::value::{RawValue, to_raw_value};
use toolcrib_connector::{CallFailure, Discovered, Discovery};
use toolcrib_core::features::OfferedFeatures;
use toolcrib_core::json::RawFields;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::{is_sanitized, sanitize_truncated};
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::EXECUTION_SPEC_KEY;
use toolcrib_core::{Code, Error, Result};
use toolcrib_mcp::{ConnectionEvent, Era, RequestOptions, ServerDescription};

use super::McpConnector;
use super::connection::Lifetime;
use super::connection_pool::EraChoice;
use super::feature_lists::{FeatureRequest, has_features};
use crate::call::format_extension;
use crate::clock::deadline_after;
use crate::redact::Redactor;
use crate::trace::Trace;

impl McpConnector {
    /// Lists the tools over the shared connection if one is open. Otherwise opens one: the shared one if a call follows
    /// (`keep_connection`), else a temporary one.
    pub(super) async fn discover_tools(&self, discovery: Discovery) -> Result<Discovered> {
        {
            // The version that the store remembers. That of a connection made in this process takes precedence.
            let mut era = self.era.lock();
            if era.is_none() {
                *era = discovery.era.as_ref().and_then(|era| era.parse().ok());
            }
        }
        // Reuse the open connection. Waiting for the lock counts against the timeout: it is held while connecting.
        let deadline = deadline_after(discovery.timeout);
        let existing = async { self.pool.shared.connection.lock().await.clone() };
        let existing = tokio::time::timeout_at(deadline, existing).await.map_err(|_| {
            let message = format!("no connection within {}", format_duration(discovery.timeout));
            Error::new(Code::ToolUnavailable, message)
        })?;
        let existing = existing.filter(|connection| connection.is_usable());
        // Per-client and transient sources have no connection that a later call could share.
        let keep = discovery.keep_connection && self.source.settings.lifecycle() == Lifecycle::Shared;
        // Otherwise connect: persistently if a call follows, else for this discovery only.
        let references = Some(&*discovery.references);
        let (connection, is_temporary) = match existing {
            Some(connection) => (connection, false),
            None if keep => {
                let connected = {
                    let any = EraChoice::default();
                    self.get_or_connect(&self.pool.shared, any, discovery.timeout, references).await
                };
                (connected.map_err(CallFailure::into_error)?, false)
            }
            None => {
                let connected = {
                    let any = EraChoice::default();
                    self.connect(any, discovery.timeout, Lifetime::Temporary, references, None).await
                };
                (connected.map_err(CallFailure::into_error)?, true)
            }
        };
        // List the tools, and once more if the server announced a change meanwhile.
        let mut options = RequestOptions::with_deadline(deadline);
        if let Some(trace) = &discovery.trace {
            trace.add_to_headers(&mut options.headers);
        }
        let meta = discovery.trace.as_ref().and_then(Trace::to_meta);
        let tool_list = {
            // Keeps the idle monitor from closing the connection meanwhile.
            let _in_flight = connection.begin_discovery();
            let mut events = connection.client.events();
            let tool_list = connection.client.list_tools_with(meta.as_deref(), &options).await;
            // A temporary connection has no listener later, so an announcement during the listing counts now.
            let mut announced = std::iter::from_fn(|| events.try_recv().ok());
            let is_outdated = is_temporary && announced.any(|event| matches!(event, ConnectionEvent::ToolsChanged));
            if tool_list.is_ok() && is_outdated {
                connection.client.list_tools_with(meta.as_deref(), &options).await
            } else {
                tool_list
            }
        };
        // Explain a failure before the connection is closed: that needs the process and its stderr.
        let tool_list = match tool_list {
            Ok(list) => Ok(list),
            Err(error) => Err(connection.explain_failure(self, "listing its tools", discovery.timeout, error).await),
        };
        // Everything that is read from the connection is read before a temporary one is closed.
        // A connection that a client of another era opened does not change what is remembered.
        let era = self.era.lock().unwrap_or_else(|| connection.client.era()).to_string();
        let redactor = self.references.redactor();
        let capabilities = capability_names(connection.client.server(), &redactor);
        let about = describe_server(connection.client.server());
        let instructions = connection.client.server().instructions.as_deref();
        let instructions = instructions.map(|text| redactor.redact(text).into_owned());
        // Only servers of the 2026 protocol declare whether a list is public.
        let modern = connection.client.era() == Era::Modern;
        // The other lists are read later, over the same connection: tools do not wait for them, and a list that fails
        // does not affect the tools.
        let reads_features = tool_list.is_ok() && has_features(&connection.client);
        if is_temporary && !reads_features {
            self.close_temporary(&connection, &tool_list).await;
        }
        // Fail only after the temporary connection is closed; nothing below the `?` can fail.
        let list = tool_list?;
        let (features, pending_features) = if reads_features {
            let request = FeatureRequest { connection, is_temporary, instructions, meta, headers: options.headers };
            (None, Some(self.read_features(request)))
        } else {
            (Some(OfferedFeatures { instructions, ..OfferedFeatures::default() }), None)
        };
        // Secrets of the source must not reach the manifest. What cannot be masked excludes the tool.
        let mut skipped = skipped_tools(&list.skipped, &redactor);
        let tools = list.tools.into_iter().map(|tool| redactor.redact_tool(strip_execution_spec(tool)));
        let (leaking, tools): (Vec<_>, Vec<_>) = tools.partition(|tool| redactor.is_leaked_by(tool));
        skipped.extend(leaking.iter().map(|tool| skip_leaking_tool(tool, &redactor)));
        let about = about.map(|about| redactor.redact(&about).into_owned());
        Ok(Discovered {
            tools,
            skipped,
            era: Some(era),
            capabilities,
            about,
            features,
            pending_features,
            ttl_ms: list.ttl_ms,
            private: modern && !list.public,
            ..Discovered::default()
        })
    }
}

/// Redacts, sanitises and truncates a text for a message. Redacts first: the cut-off beginning of a secret is harder to
/// recognise.
pub(super) fn clean_reason(text: &str, redactor: &Redactor) -> String {
    sanitize_truncated(&redactor.redact(text), 512)
}

/// Removes Toolcrib's own execution specification from a tool of an MCP server. Without this a server could make
/// Toolcrib send HTTP requests elsewhere with the tool's name.
fn strip_execution_spec(tool: Box<RawValue>) -> Box<RawValue> {
    // The key may be written with JSON escapes, which a plain search does not see.
    if !tool.get().contains(EXECUTION_SPEC_KEY) && !tool.get().contains("\\u") {
        return tool;
    }
    let Some(mut fields) = RawFields::parse(&tool) else { return tool };
    match fields.remove(EXECUTION_SPEC_KEY) {
        Some(_) => to_raw_value(&fields).unwrap_or_default(),
        None => tool,
    }
}

/// Skipped tools with redacted, sanitised names and reasons.
fn skipped_tools(skipped: &[(String, String)], redactor: &Redactor) -> Vec<SkippedTool> {
    let clean = |text: &str| clean_reason(text, redactor);
    skipped.iter().map(|(name, reason)| SkippedTool { name: clean(name), reason: clean(reason) }).collect()
}

/// Entry for a tool that is skipped because it contains a secret of its source where it cannot be masked.
fn skip_leaking_tool(tool: &RawValue, redactor: &Redactor) -> SkippedTool {
    let name = RawFields::parse(tool).and_then(|fields| serde_json::from_str::<String>(fields.get("name")?.get()).ok());
    let name = sanitize_truncated(&redactor.redact(&name.unwrap_or_default()), 512);
    let reason = "it contains a secret value of its source in a name, an enumeration or a default";
    SkippedTool { name, reason: reason.into() }
}

/// Names of the capabilities that a server announced, bounded in number and length.
fn capability_names(server: &ServerDescription, redactor: &Redactor) -> Vec<String> {
    // Servers announce a handful; the bound protects the store.
    const MAX_CAPABILITIES: usize = 32;
    let capabilities = RawFields::parse(&server.capabilities).unwrap_or_default();
    let offered = capabilities.iter().filter(|(_, value)| !matches!(value.get(), "null" | "false"));
    let names = offered.map(|(name, _)| name.chars().take(64).collect()).take(MAX_CAPABILITIES);
    // Clients get extensions as they are, so one with a secret of the source is left out.
    let has_secret = |name: &String| redactor.redact(name) != *name;
    names.chain(extension_capabilities(&capabilities)).filter(|name| !has_secret(name)).collect()
}

/// Extensions that a server announced, with their settings, as further capability names. Those that are too many or too
/// large are left out, and those that have a meaning between Toolcrib and the server alone.
fn extension_capabilities(capabilities: &RawFields) -> Vec<String> {
    const MAX_EXTENSIONS: usize = 16;
    const MAX_EXTENSION_BYTES: usize = 1024;
    let extensions = capabilities.get("extensions").and_then(RawFields::parse).unwrap_or_default();
    let passed_on = extensions.iter().filter(|(id, settings)| {
        // Toolcrib waits for tasks itself, and logs in for itself.
        let is_internal = ["/tasks", "auth", "identity", "dpop"].iter().any(|part| id.to_lowercase().contains(part));
        !is_internal && !id.contains('=') && is_sanitized(id) && id.len() + settings.get().len() <= MAX_EXTENSION_BYTES
    });
    passed_on.map(|(id, settings)| format_extension(id, settings)).take(MAX_EXTENSIONS).collect()
}

/// Self-description of a server for search: title, description and instructions.
fn describe_server(server: &ServerDescription) -> Option<String> {
    let info = server.info.as_deref().and_then(RawFields::parse).unwrap_or_default();
    let text_field = |key: &str| info.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let texts = [text_field("title"), text_field("description"), server.instructions.clone()];
    Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tools_show_no_secrets() {
        let redactor = Redactor::new(&["hunter2".to_owned()].into());
        let skipped = [("read_hunter2".to_owned(), "its schema has `hunter2`".to_owned())];
        let expected = SkippedTool { name: "read_***".into(), reason: "its schema has `***`".into() };
        assert_eq!(skipped_tools(&skipped, &redactor), [expected]);
    }

    #[test]
    fn a_tool_that_repeats_a_secret_where_calls_depend_on_it_is_skipped() {
        let redactor = Redactor::new(&["hunter2-hunter2".to_owned(), "europe".to_owned()].into());
        for (tool, repeats) in [
            (r#"{"name":"read","description":"with hunter2-hunter2","_meta":{"k":"hunter2-hunter2"}}"#, false),
            (r#"{"name":"read_hunter2-hunter2"}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"hunter2-hunter2":{}}}}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"a":{"enum":["x","hunter2-hunter2"]}}}}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"a":{"examples":["hunter2-hunter2"]}}}}"#, false),
            (r#"{"name":"list_europe"}"#, false),
        ] {
            let redacted = redactor.redact_tool(RawValue::from_string(tool.to_owned()).unwrap());
            assert_eq!(redactor.is_leaked_by(&redacted), repeats, "{tool}");
            let skipped = skip_leaking_tool(&redacted, &redactor);
            assert!(!skipped.name.contains("hunter2"), "{}", skipped.name);
        }
    }

    #[test]
    fn extensions_are_kept_unless_they_concern_the_connection_or_have_a_secret() {
        let capabilities = r#"{"tools":{},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["a/b"]},
            "io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/oauth-client-credentials":{},
            "com.example/key":{"key":"hunter2-hunter2"}}}"#;
        let server = ServerDescription {
            info: None,
            capabilities: RawValue::from_string(capabilities.to_owned()).unwrap(),
            instructions: None,
        };
        let ui = r#"extensions/io.modelcontextprotocol/ui={"mimeTypes":["a/b"]}"#;
        let redactor = Redactor::new(&["hunter2-hunter2".to_owned()].into());
        assert_eq!(capability_names(&server, &redactor), ["tools", "extensions", ui]);
    }

    #[test]
    fn an_execution_spec_sent_by_a_server_is_removed() {
        for (tool, expected) in [
            (r#"{"name":"a","x-toolcrib-backing":{"execution":{}},"z":1.50}"#, r#"{"name":"a","z":1.50}"#),
            (r#"{"name":"a","x-toolcrib-\u0062acking":{}}"#, r#"{"name":"a"}"#),
            (r#"{"name":"x-toolcrib-backing", "z":"\u00e9"}"#, r#"{"name":"x-toolcrib-backing", "z":"\u00e9"}"#),
            ("5", "5"),
        ] {
            let tool = RawValue::from_string(tool.to_owned()).unwrap();
            assert_eq!(strip_execution_spec(tool).get(), expected);
        }
    }
}
