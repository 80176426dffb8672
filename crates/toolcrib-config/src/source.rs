//! Reads one source from its map of keys. One of `command`, `url`, `openapi`, `workflow` and `builtin` determines its
//! kind, and with it the keys that are allowed beside.
//!
//! ```text
//! files:  { command: npx, args: [-y, server-files, .] }    stdio: a child process
//! docs:   { url: https://docs.example/mcp }                Streamable HTTP, or SSE with `transport: sse`
//! shop:   { openapi: ./shop.yaml, base_url: http://h }     the operations of a document
//! report: { workflow: ./report.arazzo.yaml }               the workflows of a document
//! core:   { builtin: all }                                 Toolcrib's own tools
//! ```
//!
//! Paths become absolute while they are read, so that a stored definition does not depend on the working directory of a
//! later process. References stay unresolved.

use std::convert::Infallible;
use std::path::Path;

use toolcrib_core::source::{BuiltinSource, RemoteSource, Source, SourceId, SourceKind, StdioSource};
use toolcrib_core::text::did_you_mean;

use super::path;
use super::reader::{ConfigReader, Section, format_alternatives};
use super::syntax::{ConfigNode, NodeValue, join_key};
use super::url_check;
use super::{auth, header, openapi, settings};

/// Keys that determine the kind of a source, each with the keys that belong to it. A source has exactly one.
const KIND_KEYS: [(&str, &[&str]); 5] = [
    // Settings are in none of these lists: every kind may have them.
    ("command", &["args", "env", "cwd", "inherit_env", "protocol"]),
    ("url", &["headers", "auth", "protocol"]),
    ("openapi", &openapi::OPENAPI_KEYS),
    ("workflow", &[]),
    ("builtin", &["roots", "allow_private"]),
];

/// Returns all keys of any kind of source. A test compares them with the documentation.
pub(super) fn source_keys() -> impl Iterator<Item = &'static str> {
    let of_kinds = KIND_KEYS.iter().flat_map(|(kind, keys)| std::iter::once(*kind).chain(keys.iter().copied()));
    of_kinds.chain(settings::DEFAULTS_KEYS).chain(settings::SOURCE_ONLY_KEYS)
}

/// Value of `transport` or `type`. Only `sse` makes a difference; the others are checked for agreement with the kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfiguredTransport {
    Stdio,
    Http,
    Sse,
}

const TRANSPORTS: [(&str, ConfiguredTransport); 3] =
    [("http", ConfiguredTransport::Http), ("sse", ConfiguredTransport::Sse), ("stdio", ConfiguredTransport::Stdio)];
/// Spellings of `http` in other clients: accepted, but not offered in messages.
const HTTP_ALIASES: [&str; 3] = ["streamable-http", "streamableHttp", "streamable_http"];

/// Reads one source. The result is complete only if the reader has no errors.
/// The caller drops it otherwise and keeps the errors.
pub(super) fn read(reader: &mut ConfigReader<'_>, id: &SourceId, node: &ConfigNode, path: &str) -> Option<Source> {
    let section = reader.as_section(node, path)?;
    report_unknown_keys(reader, &section);
    // Settings are read before the kind, so that their errors are reported even if the kind is invalid.
    let settings = settings::read(reader, id, &section);
    let kind = resolve_reference_paths(reader.base_dir, &read_kind(reader, &section)?);
    Some(Source { id: id.clone(), kind, settings })
}

/// Makes the paths of `${file:…}` references absolute; like all paths they are relative to the configuration file.
fn resolve_reference_paths(base: &Path, kind: &SourceKind) -> SourceKind {
    let change = |text: &str| Ok::<_, Infallible>(path::resolve_file_references(base, text));
    match kind.try_map_texts(change) {
        Ok(kind) => kind,
        Err(never) => match never {},
    }
}

/// Reports unknown keys; `disabled` of other clients gets a hint of its own.
/// In a file of another client, `disabled` was rewritten before.
fn report_unknown_keys(reader: &mut ConfigReader<'_>, section: &Section<'_>) {
    for entry in section.entries.iter().filter(|entry| !source_keys().any(|key| key == entry.key)) {
        let hint = match entry.key.as_str() {
            "disabled" => "; write `enabled: false`".to_owned(),
            key => did_you_mean(key, source_keys()),
        };
        reader.error_or_warn(entry.line, &section.path, format!("unknown key `{}`{hint}", entry.key));
    }
}

/// Determines the kind of a source and reads its keys.
/// Without exactly one kind, the keys that belong to a kind are not read.
fn read_kind(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<SourceKind> {
    let present: Vec<&str> = KIND_KEYS.iter().map(|(key, _)| *key).filter(|key| section.has(key)).collect();
    let kind_key = match present.as_slice() {
        [kind_key] => *kind_key,
        [] => {
            reader.error(section.line, &section.path, missing_kind_message());
            return None;
        }
        [first, second, ..] => {
            let message = format!("`{first}` and `{second}` are mutually exclusive; keep one");
            reader.error(section.line, &section.path, message);
            return None;
        }
    };
    report_misplaced_keys(reader, section, kind_key);
    let transport = read_transport(reader, section);
    match kind_key {
        "command" => {
            let local = [ConfiguredTransport::Stdio];
            check_transport(reader, section, transport, &local, "`command` starts a server on stdio");
            read_stdio(reader, section).map(SourceKind::Stdio)
        }
        "url" => {
            let remote = [ConfiguredTransport::Http, ConfiguredTransport::Sse];
            check_transport(reader, section, transport, &remote, "`url` uses `http` or `sse`");
            // Streamable HTTP is the default of a URL.
            let kind = if transport == Some(ConfiguredTransport::Sse) { SourceKind::Sse } else { SourceKind::Http };
            read_remote(reader, section).map(kind)
        }
        "openapi" => {
            check_transport(reader, section, transport, &[], "an OpenAPI source has no transport");
            openapi::read(reader, section).map(SourceKind::OpenApi)
        }
        "workflow" => openapi::read_workflow(reader, section).map(SourceKind::Workflow),
        _ => read_builtin(reader, section).map(SourceKind::Builtin),
    }
}

/// Message for a source without any of the keys that determine its kind.
pub(super) fn missing_kind_message() -> String {
    let kind_keys: Vec<&str> = KIND_KEYS.iter().map(|(key, _)| *key).collect();
    format!("needs one of {}", format_alternatives(&kind_keys))
}

/// Reports keys that belong to another kind of source.
/// A key may belong to several kinds, such as `headers` and `auth`.
fn report_misplaced_keys(reader: &mut ConfigReader<'_>, section: &Section<'_>, kind_key: &str) {
    // A key without an owner is a setting, which every kind may have.
    let belongs = |key: &str, to: &str| KIND_KEYS.iter().any(|(name, keys)| *name == to && keys.contains(&key));
    for entry in section.entries.iter().filter(|entry| !entry.node.is_null() && !belongs(&entry.key, kind_key)) {
        let owners: Vec<&str> =
            KIND_KEYS.iter().filter(|(_, keys)| keys.contains(&entry.key.as_str())).map(|(name, _)| *name).collect();
        if !owners.is_empty() {
            let message = format!(
                "`{}` belongs to a source with {}, not {}",
                entry.key,
                format_alternatives(&owners),
                format_alternatives(&[kind_key])
            );
            reader.error_or_warn(entry.line, &section.path, message);
        }
    }
}

/// Reads `transport`, or `type` as other clients call it. Both may be set if they agree.
fn read_transport(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<ConfiguredTransport> {
    let mut read = |key: &str| {
        let entry = section.entry(key)?;
        // `type: streamable-http` is common in files of other clients.
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

/// Reports a transport that the kind of source does not use.
fn check_transport(
    reader: &mut ConfigReader<'_>,
    section: &Section<'_>,
    transport: Option<ConfiguredTransport>,
    allowed: &[ConfiguredTransport],
    reason: &str,
) {
    if transport.is_some_and(|transport| !allowed.contains(&transport)) {
        let key = if section.has("transport") { "transport" } else { "type" };
        let line = section.entry(key).map_or(section.line, |entry| entry.line);
        reader.error(line, &join_key(&section.path, key), format!("does not match the source: {reason}"));
    }
}

/// Reads a server that is started as a child process.
/// Arguments are passed on unchanged, even if they look like relative paths: their meaning is known to the program
/// alone.
fn read_stdio(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<StdioSource> {
    let args = reader.read_list(section, "args");
    let env = reader.read_map(section, "env");
    let cwd = reader.read_text(section, "cwd").map(|cwd| path::to_absolute(reader.base_dir, &cwd));
    let inherit_env = reader.read_resolved_list(section, "inherit_env");
    // Read last: the errors of all other keys are recorded before it can return.
    let command = read_command(reader, section, &args)?;
    Some(StdioSource { command: path::resolve_command(reader.base_dir, &command), args, env, cwd, inherit_env })
}

/// Reads `command`, with hints for two common mistakes: a list, and arguments within the text.
fn read_command(reader: &mut ConfigReader<'_>, section: &Section<'_>, args: &[String]) -> Option<String> {
    let entry = section.entry("command")?;
    let path = join_key(&section.path, "command");
    if let NodeValue::List(_) = entry.node.value {
        let message = "expected text, found a list; the program goes into `command` and the rest into `args`";
        reader.error(entry.node.line, &path, message);
        return None;
    }
    let command = reader.read_text(section, "command")?;
    // Paths may contain spaces legitimately; a bare name with spaces is most likely a command line.
    if args.is_empty() && command.contains(' ') && !command.contains(['/', '\\', '$']) {
        reader.warn(entry.line, &path, "is the name of one program, spaces included; put its arguments into `args`");
    }
    Some(command)
}

/// Reads a server at a URL. Only methods with a fixed credential are allowed for an MCP server.
fn read_remote(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<RemoteSource> {
    let headers = header::read(reader, section);
    let auth = auth::read(reader, section, auth::AuthMethods::Static);
    auth::reject_duplicate_header(reader, section, &headers, auth.as_ref());
    let node = section.get("url")?;
    let url = reader.read_text(section, "url")?;
    if let Some(message) = url_check::find_url_error(&url) {
        reader.error(node.line, &join_key(&section.path, "url"), message);
        return None;
    }
    Some(RemoteSource { url, headers, auth })
}

/// Reads a source of built-in tools: `all` or a list of names.
/// Unknown names of tools are reported by the library, which knows the built-in tools.
fn read_builtin(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<BuiltinSource> {
    let node = section.get("builtin")?;
    let roots =
        reader.read_list(section, "roots").iter().map(|root| path::to_absolute(reader.base_dir, root)).collect();
    let allow_private = reader.read_bool(section, "allow_private").unwrap_or(false);
    let key = join_key(&section.path, "builtin");
    let all = |text: &str| (text == "all").then(|| vec!["all".to_owned()]);
    if let Some(tools) = reader.read_reference(node, &key, "`all`", all) {
        return Some(BuiltinSource { tools: tools?, roots, allow_private });
    }
    let tools = match &node.value {
        NodeValue::Text(text) if text == "all" => vec!["all".to_owned()],
        NodeValue::List(_) => reader.read_resolved_list(section, "builtin"),
        NodeValue::Null | NodeValue::Bool(..) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::Map(_) => {
            reader.type_error("`all` or a list of names", node, &key);
            return None;
        }
    };
    Some(BuiltinSource { tools, roots, allow_private })
}
