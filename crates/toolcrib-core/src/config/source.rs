//! One source out of its map of keys: what it is made from decides which keys may stand beside it.

use std::convert::Infallible;
use std::path::Path;

use super::address;
use super::node::{Node, Value, joined};
use super::path;
use super::reader::{Reader, Section, one_of};
use super::{auth, header, openapi, settings};
use crate::reference::with_paths;
use crate::source::{Builtin, Kind, Remote, Source, SourceId, Stdio};
use crate::text::did_you_mean;

/// Every key that may stand on some source.
pub(super) const KEYS: [&str; 38] = [
    "command",
    "args",
    "env",
    "cwd",
    "inherit_env",
    "url",
    "headers",
    "transport",
    "type",
    "auth",
    "builtin",
    "roots",
    "allow_private",
    "openapi",
    "base_url",
    "include",
    "exclude",
    "include_tags",
    "methods",
    "allow_refs",
    "variables",
    "poll",
    "workflow",
    "ttl",
    "connect_timeout",
    "first_start_timeout",
    "discovery_timeout",
    "call_timeout",
    "idle",
    "result_limit",
    "on_conflict",
    "lifecycle",
    "results",
    "enabled",
    "title",
    "tags",
    "essential",
    "tools",
];

/// What a source can be made from: exactly one of these stands on it, with the keys that belong to it.
const ORIGINS: [(&str, &[&str]); 5] = [
    ("command", &["args", "env", "cwd", "inherit_env"]),
    ("url", &["headers", "auth"]),
    ("openapi", &openapi::KEYS),
    ("workflow", &[]),
    ("builtin", &["roots", "allow_private"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Stdio,
    Http,
    Sse,
}

const TRANSPORTS: [(&str, Transport); 3] =
    [("http", Transport::Http), ("sse", Transport::Sse), ("stdio", Transport::Stdio)];
/// How other clients spell `http`: understood, but not recommended in a message.
const HTTP_ALIASES: [&str; 3] = ["streamable-http", "streamableHttp", "streamable_http"];

/// Reads one source. It is whole only if the reader has collected no fault.
pub(super) fn read(reader: &mut Reader<'_>, id: &SourceId, node: &Node, path: &str) -> Option<Source> {
    let section = reader.section(node, path)?;
    unknown_keys(reader, &section);
    let settings = settings::read(reader, &section);
    let kind = beside(reader.base, &kind(reader, &section)?);
    Some(Source { id: id.clone(), kind, settings })
}

/// Files that references name lie relative to the configuration, like every other path.
fn beside(base: &Path, kind: &Kind) -> Kind {
    let absolute = |path: &str| if path.starts_with('~') { path.to_owned() } else { path::absolute(base, path) };
    let change = |text: &str| match text.contains("${file:") {
        true => Ok::<_, Infallible>(with_paths(text, absolute)),
        false => Ok(text.to_owned()),
    };
    match kind.try_map(change) {
        Ok(kind) => kind,
        Err(never) => match never {},
    }
}

fn unknown_keys(reader: &mut Reader<'_>, section: &Section<'_>) {
    for entry in section.entries.iter().filter(|entry| !KEYS.contains(&entry.key.as_str())) {
        let hint = match entry.key.as_str() {
            "disabled" => "; write `enabled: false`".to_owned(),
            key => did_you_mean(key, KEYS),
        };
        reader.complain(entry.line, &section.path, format!("unknown key `{}`{hint}", entry.key));
    }
}

fn kind(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Kind> {
    let given: Vec<&str> = ORIGINS.iter().map(|(key, _)| *key).filter(|key| section.has(key)).collect();
    let origin = match given.as_slice() {
        [origin] => *origin,
        [] => {
            reader.fault(section.line, &section.path, needs_one_of());
            return None;
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` cannot stand together; keep one");
            reader.fault(section.line, &section.path, message);
            return None;
        }
    };
    misplaced_keys(reader, section, origin);
    let transport = transport(reader, section);
    match origin {
        "command" => {
            check_transport(reader, section, transport, &[Transport::Stdio], "`command` starts a server on stdio");
            stdio(reader, section).map(Kind::Stdio)
        }
        "url" => {
            let remote = [Transport::Http, Transport::Sse];
            check_transport(reader, section, transport, &remote, "`url` is reached by `http` or `sse`");
            let kind = if transport == Some(Transport::Sse) { Kind::Sse } else { Kind::Http };
            remote_server(reader, section).map(kind)
        }
        "openapi" => {
            check_transport(reader, section, transport, &[], "an API is reached as its document says");
            openapi::read(reader, section).map(Kind::OpenApi)
        }
        "workflow" => openapi::read_workflow(reader, section).map(Kind::Workflow),
        _ => builtin(reader, section).map(Kind::Builtin),
    }
}

/// What is missing where nothing says what a source is made from.
pub(super) fn needs_one_of() -> String {
    let origins: Vec<&str> = ORIGINS.iter().map(|(key, _)| *key).collect();
    format!("needs one of {}", one_of(&origins))
}

/// Keys that mean something only beside another origin.
fn misplaced_keys(reader: &mut Reader<'_>, section: &Section<'_>, origin: &str) {
    let belongs = |key: &str, to: &str| ORIGINS.iter().any(|(name, keys)| *name == to && keys.contains(&key));
    for entry in section.entries.iter().filter(|entry| !entry.node.is_null() && !belongs(&entry.key, origin)) {
        let homes: Vec<&str> =
            ORIGINS.iter().filter(|(_, keys)| keys.contains(&entry.key.as_str())).map(|(name, _)| *name).collect();
        if !homes.is_empty() {
            let message =
                format!("`{}` belongs to a source with {}, not {}", entry.key, one_of(&homes), one_of(&[origin]));
            reader.complain(entry.line, &section.path, message);
        }
    }
}

/// `transport`, or `type` as other clients call it.
fn transport(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Transport> {
    let mut read = |key: &str| {
        let entry = section.entry(key)?;
        let is_alias = entry.node.as_text().is_some_and(|word| HTTP_ALIASES.contains(&word));
        let transport = if is_alias {
            Transport::Http
        } else {
            reader.choice(&entry.node, &joined(&section.path, key), &TRANSPORTS)?
        };
        Some((transport, entry.line))
    };
    match (read("transport"), read("type")) {
        (Some((transport, _)), Some((other, line))) if transport != other => {
            reader.fault(line, &section.path, "`transport` and `type` contradict each other; keep one");
            None
        }
        (transport, other) => transport.or(other).map(|(transport, _)| transport),
    }
}

fn check_transport(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    given: Option<Transport>,
    fitting: &[Transport],
    reason: &str,
) {
    if given.is_some_and(|given| !fitting.contains(&given)) {
        let key = if section.has("transport") { "transport" } else { "type" };
        let line = section.entry(key).map_or(section.line, |entry| entry.line);
        reader.fault(line, &joined(&section.path, key), format!("does not fit: {reason}"));
    }
}

fn stdio(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Stdio> {
    let args = reader.texts(section, "args");
    let env = reader.pairs(section, "env");
    let cwd = reader.text(section, "cwd").map(|cwd| path::absolute(reader.base, &cwd));
    let inherit_env = reader.texts(section, "inherit_env");
    let command = command(reader, section, &args)?;
    Some(Stdio { command: path::command(reader.base, &command), args, env, cwd, inherit_env })
}

fn command(reader: &mut Reader<'_>, section: &Section<'_>, args: &[String]) -> Option<String> {
    let entry = section.entry("command")?;
    let path = joined(&section.path, "command");
    if let Value::List(_) = entry.node.value {
        let message = "expected text, found a list; the program goes into `command` and the rest into `args`";
        reader.fault(entry.node.line, &path, message);
        return None;
    }
    let command = reader.text(section, "command")?;
    if args.is_empty() && command.contains(' ') && !command.contains(['/', '\\', '$']) {
        reader.warn(entry.line, &path, "is one program, spaces included; its arguments belong in `args`");
    }
    Some(command)
}

fn remote_server(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Remote> {
    let headers = header::read(reader, section);
    let auth = auth::read(reader, section, auth::Ways::Plain);
    auth::forbid_two(reader, section, &headers, auth.as_ref());
    let node = section.get("url")?;
    let url = reader.text(section, "url")?;
    if let Some(wrong) = address::wrong(&url) {
        reader.fault(node.line, &joined(&section.path, "url"), wrong);
        return None;
    }
    Some(Remote { url, headers, auth })
}

fn builtin(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Builtin> {
    let node = section.get("builtin")?;
    let roots = reader.texts(section, "roots").iter().map(|root| path::absolute(reader.base, root)).collect();
    let allow_private = reader.flag(section, "allow_private").unwrap_or(false);
    let tools = match &node.value {
        Value::Text(text) if text == "all" => vec!["all".to_owned()],
        Value::List(_) => reader.texts(section, "builtin"),
        Value::Null | Value::Bool(..) | Value::Number(_) | Value::Text(_) | Value::Map(_) => {
            reader.expected("`all` or a list of names", node, &joined(&section.path, "builtin"));
            return None;
        }
    };
    Some(Builtin { tools, roots, allow_private })
}
