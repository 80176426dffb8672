//! Rewrites one server of another client to Toolcrib's keys, before it is read like any other source. Keys without an
//! equivalent stay as they are, and reading then warns about them by their original name.
//!
//! A key of Toolcrib that is already there takes precedence over one that would be renamed to it.
//!
//! ```text
//! Codex    { command = "npx", startup_timeout_sec = 20, enabled_tools = ["read"] }
//! becomes  { command: npx, discovery_timeout: 20s, connect_timeout: 20s, tools: { "*": hide, read: allow } }
//! ```

use super::super::reader::ConfigReader;
use super::super::syntax::{ConfigNode, NodeEntry, NodeValue, join_key};
use super::{McpClientKind, variables};

/// Rewrites the keys of a server. `client` is `None` for a file of an unknown client.
/// A value that is no map is returned unchanged; reading reports it.
pub(in super::super) fn rewrite(
    reader: &mut ConfigReader<'_>,
    client: Option<McpClientKind>,
    node: &ConfigNode,
    path: &str,
) -> ConfigNode {
    let NodeValue::Map(entries) = &node.value else { return node.clone() };
    let mut server = ServerEntry { entries: entries.clone(), line: node.line };
    if let Some(mut disabled) = server.take("disabled").filter(|disabled| !disabled.is_null()) {
        let path = join_key(path, "disabled");
        variables::replace_variables(reader, client, &mut disabled, &path);
        // A value that cannot be read fails the source: it must not start a server that the user has disabled.
        if let Some(is_disabled) = reader.read_flag(&disabled, &path) {
            server.set_if_absent("enabled", ConfigNode::flag(!is_disabled, disabled.line));
        }
    }
    match client {
        None | Some(McpClientKind::ClaudeDesktop | McpClientKind::ClaudeCode | McpClientKind::Cursor) => {}
        Some(McpClientKind::Vscode) => server.remove_ignored(&["gallery", "version", "dev"]),
        Some(McpClientKind::Windsurf) => {
            server.rename("serverUrl", "url");
            server.hide_tools("disabledTools");
        }
        Some(McpClientKind::Gemini) => rewrite_gemini(&mut server),
        Some(McpClientKind::Codex) => rewrite_codex(&mut server),
        Some(McpClientKind::Zed) => rewrite_zed(&mut server),
    }
    let mut node = ConfigNode { value: NodeValue::Map(server.entries), line: node.line };
    variables::replace_variables(reader, client, &mut node, path);
    node
}

/// Gemini CLI: two keys for URLs, timeouts in milliseconds, and lists of included and excluded tools.
fn rewrite_gemini(server: &mut ServerEntry) {
    // In Gemini's files `url` is legacy SSE and `httpUrl` is Streamable HTTP.
    if server.has("httpUrl") {
        server.take("url");
        server.rename("httpUrl", "url");
    } else if server.has("url") && !server.has("type") {
        let line = server.line;
        server.set_if_absent("transport", ConfigNode::text("sse", line));
    }
    server.rename_duration("timeout", "call_timeout", "ms");
    server.allow_only("includeTools");
    server.hide_tools("excludeTools");
    // `trust` skips confirmation of calls. Toolcrib's own rules decide that, so it is dropped.
    server.remove_ignored(&["trust", "description", "extensionName"]);
}

/// Codex: names of environment variables instead of references, timeouts in seconds, and lists of tools.
fn rewrite_codex(server: &mut ServerEntry) {
    if let Some(name) = server.take("bearer_token_env_var") {
        let value = name.as_text().map(|name| format!("Bearer ${{env:{name}}}")).unwrap_or_default();
        server.add_header("Authorization", ConfigNode::text(value, name.line));
    }
    server.merge_headers("http_headers", |value| value);
    server.merge_headers("env_http_headers", |value| match value.as_text() {
        Some(name) => ConfigNode::text(format!("${{env:{name}}}"), value.line),
        None => value,
    });
    server.rename("env_vars", "inherit_env");
    for (key, unit) in [("startup_timeout_sec", "s"), ("startup_timeout_ms", "ms")] {
        server.rename_duration(key, "discovery_timeout", unit);
    }
    // A startup timeout applies to connecting as well as to discovery.
    if let Some(timeout) = server.get("discovery_timeout").cloned() {
        server.set_if_absent("connect_timeout", timeout);
    }
    server.rename_duration("tool_timeout_sec", "call_timeout", "s");
    server.allow_only("enabled_tools");
    server.hide_tools("disabled_tools");
    server.remove_ignored(&["required"]);
}

/// Zed: a nested command in older versions.
fn rewrite_zed(server: &mut ServerEntry) {
    // Older versions of Zed have `path`, `args` and `env` in one map under `command`.
    if let Some(ConfigNode { value: NodeValue::Map(parts), .. }) = server.get("command").cloned() {
        server.take("command");
        for entry in parts {
            let key = if entry.key == "path" { "command".to_owned() } else { entry.key };
            server.set_if_absent(&key, entry.node);
        }
    }
    server.remove_ignored(&["source"]);
}

/// Keys of one server while they are rewritten.
struct ServerEntry {
    entries: Vec<NodeEntry>,
    line: usize,
}

impl ServerEntry {
    /// Returns the value of a key; null counts as absent.
    fn get(&self, key: &str) -> Option<&ConfigNode> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_null()).map(|entry| &entry.node)
    }

    /// Whether a key has a value other than null.
    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Removes a key and returns its value.
    fn take(&mut self, key: &str) -> Option<ConfigNode> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index).node)
    }

    /// Sets a key unless it has a value already.
    fn set_if_absent(&mut self, key: &str, node: ConfigNode) {
        if !self.has(key) {
            self.take(key);
            self.entries.push(NodeEntry { key: key.to_owned(), line: node.line, node });
        }
    }

    /// Moves a value to another key, unless that one has a value.
    fn rename(&mut self, from: &str, to: &str) {
        if !self.has(to)
            && let Some(node) = self.take(from)
        {
            self.set_if_absent(to, node);
        }
    }

    /// Moves a bare number of seconds or milliseconds to a duration with a unit.
    fn rename_duration(&mut self, from: &str, to: &str, unit: &str) {
        if let Some(ConfigNode { value: NodeValue::Number(number), line }) = self.get(from).cloned() {
            self.take(from);
            self.set_if_absent(to, ConfigNode::text(format!("{number}{unit}"), line));
        }
    }

    /// Moves a map of headers into `headers`, with each value changed by `change`.
    fn merge_headers(&mut self, key: &str, change: impl Fn(ConfigNode) -> ConfigNode) {
        if let Some(ConfigNode { value: NodeValue::Map(headers), .. }) = self.get(key).cloned() {
            self.take(key);
            for header in headers {
                self.add_header(&header.key, change(header.node));
            }
        }
    }

    /// Adds a header to `headers`.
    fn add_header(&mut self, name: &str, node: ConfigNode) {
        let line = node.line;
        self.set_if_absent("headers", ConfigNode { value: NodeValue::Map(Vec::new()), line });
        self.add_to_map("headers", name, node);
    }

    /// Turns a list of allowed tools into rules that hide all others.
    /// The names are more specific than `*`, so their rules decide.
    fn allow_only(&mut self, key: &str) {
        if let Some((names, line)) = self.take_names(key) {
            self.add_rule("*", "hide", line);
            for name in names {
                self.add_rule(&name, "allow", line);
            }
        }
    }

    /// Turns a list of disabled tools into rules that hide them.
    /// Called after [`Self::allow_only`] where a client has both lists, so that a tool in both is hidden.
    fn hide_tools(&mut self, key: &str) {
        if let Some((names, line)) = self.take_names(key) {
            for name in names {
                self.add_rule(&name, "hide", line);
            }
        }
    }

    /// Removes a list of tool names and returns it with its line.
    fn take_names(&mut self, key: &str) -> Option<(Vec<String>, usize)> {
        let ConfigNode { value: NodeValue::List(items), line } = self.get(key)?.clone() else { return None };
        self.take(key);
        // Gemini allows arguments behind a name, as in `name(first)`. Rules match on the name alone.
        let names =
            items.iter().filter_map(ConfigNode::as_text).map(|name| name.split('(').next().unwrap_or(name).to_owned());
        Some((names.collect(), line))
    }

    /// Adds a rule to `tools`.
    fn add_rule(&mut self, glob: &str, verdict: &str, line: usize) {
        self.set_if_absent("tools", ConfigNode { value: NodeValue::Map(Vec::new()), line });
        self.add_to_map("tools", glob, ConfigNode::text(verdict, line));
    }

    /// Sets a key in the map under `map`; a later value replaces an earlier one.
    fn add_to_map(&mut self, map: &str, key: &str, node: ConfigNode) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == map) else { return };
        if let NodeValue::Map(entries) = &mut entry.node.value {
            entries.retain(|entry| entry.key != key);
            entries.push(NodeEntry { key: key.to_owned(), line: node.line, node });
        }
    }

    /// Removes keys that are meaningless here and not worth a warning.
    fn remove_ignored(&mut self, keys: &[&str]) {
        self.entries.retain(|entry| !keys.contains(&entry.key.as_str()));
    }
}
