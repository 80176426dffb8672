//! One server of another client, rewritten into our keys before it is read like any other. What cannot be said in our
//! keys is left as it is, and reading then warns of it by its own name.

use super::super::node::{Entry, Node, Value};
use super::super::reader::Reader;
use super::{Client, variables};

pub(in super::super) fn rewrite(reader: &mut Reader<'_>, client: Option<Client>, node: &Node, path: &str) -> Node {
    let Value::Map(entries) = &node.value else { return node.clone() };
    let mut server = Server { entries: entries.clone(), line: node.line };
    server.rename_flag("disabled", "enabled");
    match client {
        None | Some(Client::ClaudeDesktop | Client::ClaudeCode | Client::Cursor) => {}
        Some(Client::Vscode) => server.drop_silently(&["gallery", "version", "dev"]),
        Some(Client::Windsurf) => {
            server.rename("serverUrl", "url");
            server.hide("disabledTools");
        }
        Some(Client::Gemini) => gemini(&mut server),
        Some(Client::Codex) => codex(&mut server),
        Some(Client::Zed) => zed(&mut server),
    }
    let mut node = Node { value: Value::Map(server.entries), line: node.line };
    variables::replace(reader, client, &mut node, path);
    node
}

fn gemini(server: &mut Server) {
    // There, `url` alone is the old transport and `httpUrl` the new one.
    if server.has("httpUrl") {
        server.take("url");
        server.rename("httpUrl", "url");
    } else if server.has("url") && !server.has("type") {
        let line = server.line;
        server.put("transport", Node::text("sse", line));
    }
    server.rename_time("timeout", "call_timeout", "ms");
    server.only("includeTools");
    server.hide("excludeTools");
    // `trust` says who is asked before a call: that is for our own rules to say.
    server.drop_silently(&["trust", "description", "extensionName"]);
}

fn codex(server: &mut Server) {
    if let Some(name) = server.take("bearer_token_env_var") {
        let value = name.as_text().map(|name| format!("Bearer ${{env:{name}}}")).unwrap_or_default();
        server.add_header("Authorization", Node::text(value, name.line));
    }
    server.merge_headers("http_headers", |value| value);
    server.merge_headers("env_http_headers", |value| match value.as_text() {
        Some(name) => Node::text(format!("${{env:{name}}}"), value.line),
        None => value,
    });
    server.rename("env_vars", "inherit_env");
    for (key, unit) in [("startup_timeout_sec", "s"), ("startup_timeout_ms", "ms")] {
        server.rename_time(key, "discovery_timeout", unit);
    }
    if let Some(timeout) = server.get("discovery_timeout").cloned() {
        server.put("connect_timeout", timeout);
    }
    server.rename_time("tool_timeout_sec", "call_timeout", "s");
    server.only("enabled_tools");
    server.hide("disabled_tools");
    server.drop_silently(&["required"]);
}

fn zed(server: &mut Server) {
    // Older files put the whole command into one map.
    if let Some(Node { value: Value::Map(parts), .. }) = server.get("command").cloned() {
        server.take("command");
        for part in parts {
            let key = if part.key == "path" { "command".to_owned() } else { part.key };
            server.put(&key, part.node);
        }
    }
    server.drop_silently(&["source"]);
}

struct Server {
    entries: Vec<Entry>,
    line: usize,
}

impl Server {
    fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key && !entry.node.is_null()).map(|entry| &entry.node)
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn take(&mut self, key: &str) -> Option<Node> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index).node)
    }

    /// Sets a key that is not set yet.
    fn put(&mut self, key: &str, node: Node) {
        if !self.has(key) {
            self.take(key);
            self.entries.push(Entry { key: key.to_owned(), line: node.line, node });
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        if !self.has(to)
            && let Some(node) = self.take(from)
        {
            self.put(to, node);
        }
    }

    /// A flag under the opposite name.
    fn rename_flag(&mut self, from: &str, to: &str) {
        if let Some(Node { value: Value::Bool(flag, _), line }) = self.get(from).cloned() {
            self.take(from);
            self.put(to, Node { value: Value::Bool(!flag, (!flag).to_string()), line });
        }
    }

    /// A bare number of seconds or milliseconds.
    fn rename_time(&mut self, from: &str, to: &str, unit: &str) {
        if let Some(Node { value: Value::Number(number), line }) = self.get(from).cloned() {
            self.take(from);
            self.put(to, Node::text(format!("{number}{unit}"), line));
        }
    }

    /// Takes a map of headers into `headers`.
    fn merge_headers(&mut self, key: &str, change: impl Fn(Node) -> Node) {
        if let Some(Node { value: Value::Map(headers), .. }) = self.get(key).cloned() {
            self.take(key);
            for header in headers {
                self.add_header(&header.key, change(header.node));
            }
        }
    }

    fn add_header(&mut self, name: &str, node: Node) {
        let line = node.line;
        self.put("headers", Node { value: Value::Map(Vec::new()), line });
        self.add_to_map("headers", name, node);
    }

    /// Only the listed tools: all others are hidden.
    fn only(&mut self, key: &str) {
        if let Some((names, line)) = self.take_names(key) {
            self.rule("*", "hide", line);
            for name in names {
                self.rule(&name, "allow", line);
            }
        }
    }

    fn hide(&mut self, key: &str) {
        if let Some((names, line)) = self.take_names(key) {
            for name in names {
                self.rule(&name, "hide", line);
            }
        }
    }

    fn take_names(&mut self, key: &str) -> Option<(Vec<String>, usize)> {
        let Node { value: Value::List(items), line } = self.get(key)?.clone() else { return None };
        self.take(key);
        // Gemini may narrow a name to arguments, `name(first)`: the name is what counts here.
        let names =
            items.iter().filter_map(Node::as_text).map(|name| name.split('(').next().unwrap_or(name).to_owned());
        Some((names.collect(), line))
    }

    fn rule(&mut self, glob: &str, verdict: &str, line: usize) {
        self.put("tools", Node { value: Value::Map(Vec::new()), line });
        self.add_to_map("tools", glob, Node::text(verdict, line));
    }

    /// Sets a key in a map that is one of our values; the later wins.
    fn add_to_map(&mut self, map: &str, key: &str, node: Node) {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == map) else { return };
        if let Value::Map(entries) = &mut entry.node.value {
            entries.retain(|entry| entry.key != key);
            entries.push(Entry { key: key.to_owned(), line: node.line, node });
        }
    }

    fn drop_silently(&mut self, keys: &[&str]) {
        self.entries.retain(|entry| !keys.contains(&entry.key.as_str()));
    }
}
