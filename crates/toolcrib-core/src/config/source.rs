//! One source out of its map of keys: what it is made from decides which keys may stand beside it.

use std::convert::Infallible;
use std::path::Path;

use super::node::{ConfigNode, NodeValue, join_key};
use super::path;
use super::reader::{ConfigReader, Section, format_alternatives};
use super::url_check;
use super::{auth, header, openapi, settings};
use crate::reference::map_file_paths;
use crate::source::{BuiltinSource, RemoteSource, Source, SourceId, SourceKind, StdioSource};
use crate::text::did_you_mean;

/// Every key that may stand on some source.
pub(super) const SOURCE_KEYS: [&str; 38] = [
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
const KIND_KEYS: [(&str, &[&str]); 5] = [
    ("command", &["args", "env", "cwd", "inherit_env"]),
    ("url", &["headers", "auth"]),
    ("openapi", &openapi::OPENAPI_KEYS),
    ("workflow", &[]),
    ("builtin", &["roots", "allow_private"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfiguredTransport {
    Stdio,
    Http,
    Sse,
}

const TRANSPORTS: [(&str, ConfiguredTransport); 3] =
    [("http", ConfiguredTransport::Http), ("sse", ConfiguredTransport::Sse), ("stdio", ConfiguredTransport::Stdio)];
/// How other clients spell `http`: understood, but not recommended in a message.
const HTTP_ALIASES: [&str; 3] = ["streamable-http", "streamableHttp", "streamable_http"];

/// Reads one source. It is whole only if the reader has collected no fault.
pub(super) fn read(reader: &mut ConfigReader<'_>, id: &SourceId, node: &ConfigNode, path: &str) -> Option<Source> {
    let section = reader.as_section(node, path)?;
    report_unknown_keys(reader, &section);
    let settings = settings::read(reader, &section);
    let kind = resolve_reference_paths(reader.base_dir, &read_kind(reader, &section)?);
    Some(Source { id: id.clone(), kind, settings })
}

/// Files that references name lie relative to the configuration, like every other path.
fn resolve_reference_paths(base: &Path, kind: &SourceKind) -> SourceKind {
    let absolute = |path: &str| if path.starts_with('~') { path.to_owned() } else { path::to_absolute(base, path) };
    let change = |text: &str| match text.contains("${file:") {
        true => Ok::<_, Infallible>(map_file_paths(text, absolute)),
        false => Ok(text.to_owned()),
    };
    match kind.try_map_texts(change) {
        Ok(kind) => kind,
        Err(never) => match never {},
    }
}

fn report_unknown_keys(reader: &mut ConfigReader<'_>, section: &Section<'_>) {
    for entry in section.entries.iter().filter(|entry| !SOURCE_KEYS.contains(&entry.key.as_str())) {
        let hint = match entry.key.as_str() {
            "disabled" => "; write `enabled: false`".to_owned(),
            key => did_you_mean(key, SOURCE_KEYS),
        };
        reader.error_or_warn(entry.line, &section.path, format!("unknown key `{}`{hint}", entry.key));
    }
}

fn read_kind(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<SourceKind> {
    let given: Vec<&str> = KIND_KEYS.iter().map(|(key, _)| *key).filter(|key| section.has(key)).collect();
    let origin = match given.as_slice() {
        [origin] => *origin,
        [] => {
            reader.error(section.line, &section.path, missing_kind_message());
            return None;
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` cannot stand together; keep one");
            reader.error(section.line, &section.path, message);
            return None;
        }
    };
    report_misplaced_keys(reader, section, origin);
    let transport = read_transport(reader, section);
    match origin {
        "command" => {
            check_transport(
                reader,
                section,
                transport,
                &[ConfiguredTransport::Stdio],
                "`command` starts a server on stdio",
            );
            read_stdio(reader, section).map(SourceKind::Stdio)
        }
        "url" => {
            let remote = [ConfiguredTransport::Http, ConfiguredTransport::Sse];
            check_transport(reader, section, transport, &remote, "`url` is reached by `http` or `sse`");
            let kind = if transport == Some(ConfiguredTransport::Sse) { SourceKind::Sse } else { SourceKind::Http };
            read_remote(reader, section).map(kind)
        }
        "openapi" => {
            check_transport(reader, section, transport, &[], "an API is reached as its document says");
            openapi::read(reader, section).map(SourceKind::OpenApi)
        }
        "workflow" => openapi::read_workflow(reader, section).map(SourceKind::Workflow),
        _ => read_builtin(reader, section).map(SourceKind::Builtin),
    }
}

/// What is missing where nothing says what a source is made from.
pub(super) fn missing_kind_message() -> String {
    let origins: Vec<&str> = KIND_KEYS.iter().map(|(key, _)| *key).collect();
    format!("needs one of {}", format_alternatives(&origins))
}

/// Keys that mean something only beside another origin.
fn report_misplaced_keys(reader: &mut ConfigReader<'_>, section: &Section<'_>, origin: &str) {
    let belongs = |key: &str, to: &str| KIND_KEYS.iter().any(|(name, keys)| *name == to && keys.contains(&key));
    for entry in section.entries.iter().filter(|entry| !entry.node.is_null() && !belongs(&entry.key, origin)) {
        let homes: Vec<&str> =
            KIND_KEYS.iter().filter(|(_, keys)| keys.contains(&entry.key.as_str())).map(|(name, _)| *name).collect();
        if !homes.is_empty() {
            let message = format!(
                "`{}` belongs to a source with {}, not {}",
                entry.key,
                format_alternatives(&homes),
                format_alternatives(&[origin])
            );
            reader.error_or_warn(entry.line, &section.path, message);
        }
    }
}

/// `transport`, or `type` as other clients call it.
fn read_transport(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<ConfiguredTransport> {
    let mut read = |key: &str| {
        let entry = section.entry(key)?;
        let is_alias = entry.node.as_text().is_some_and(|word| HTTP_ALIASES.contains(&word));
        let transport = if is_alias {
            ConfiguredTransport::Http
        } else {
            reader.read_choice(&entry.node, &join_key(&section.path, key), &TRANSPORTS)?
        };
        Some((transport, entry.line))
    };
    match (read("transport"), read("type")) {
        (Some((transport, _)), Some((other, line))) if transport != other => {
            reader.error(line, &section.path, "`transport` and `type` contradict each other; keep one");
            None
        }
        (transport, other) => transport.or(other).map(|(transport, _)| transport),
    }
}

fn check_transport(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    given: Option<ConfiguredTransport>,
    fitting: &[ConfiguredTransport],
    reason: &str,
) {
    if given.is_some_and(|given| !fitting.contains(&given)) {
        let key = if section.has("transport") { "transport" } else { "type" };
        let line = section.entry(key).map_or(section.line, |entry| entry.line);
        reader.error(line, &join_key(&section.path, key), format!("does not fit: {reason}"));
    }
}

fn read_stdio(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<StdioSource> {
    let args = reader.read_list(section, "args");
    let env = reader.read_map(section, "env");
    let cwd = reader.read_text(section, "cwd").map(|cwd| path::to_absolute(reader.base_dir, &cwd));
    let inherit_env = reader.read_list(section, "inherit_env");
    let command = read_command(reader, section, &args)?;
    Some(StdioSource { command: path::resolve_command(reader.base_dir, &command), args, env, cwd, inherit_env })
}

fn read_command(reader: &mut ConfigReader<'_>, section: &Section<'_>, args: &[String]) -> Option<String> {
    let entry = section.entry("command")?;
    let path = join_key(&section.path, "command");
    if let NodeValue::List(_) = entry.node.value {
        let message = "expected text, found a list; the program goes into `command` and the rest into `args`";
        reader.error(entry.node.line, &path, message);
        return None;
    }
    let command = reader.read_text(section, "command")?;
    if args.is_empty() && command.contains(' ') && !command.contains(['/', '\\', '$']) {
        reader.warn(entry.line, &path, "is one program, spaces included; its arguments belong in `args`");
    }
    Some(command)
}

fn read_remote(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<RemoteSource> {
    let headers = header::read(reader, section);
    let auth = auth::read(reader, section, auth::AuthMethods::Static);
    auth::reject_duplicate_header(reader, section, &headers, auth.as_ref());
    let node = section.get("url")?;
    let url = reader.read_text(section, "url")?;
    if let Some(wrong) = url_check::find_url_error(&url) {
        reader.error(node.line, &join_key(&section.path, "url"), wrong);
        return None;
    }
    Some(RemoteSource { url, headers, auth })
}

fn read_builtin(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<BuiltinSource> {
    let node = section.get("builtin")?;
    let roots =
        reader.read_list(section, "roots").iter().map(|root| path::to_absolute(reader.base_dir, root)).collect();
    let allow_private = reader.read_bool(section, "allow_private").unwrap_or(false);
    let tools = match &node.value {
        NodeValue::Text(text) if text == "all" => vec!["all".to_owned()],
        NodeValue::List(_) => reader.read_list(section, "builtin"),
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::Map(_) => {
            reader.type_error("`all` or a list of names", node, &join_key(&section.path, "builtin"));
            return None;
        }
    };
    Some(BuiltinSource { tools, roots, allow_private })
}
