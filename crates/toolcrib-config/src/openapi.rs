//! Reads OpenAPI and workflow sources: the document and the keys that belong to it.
//!
//! ```text
//! shop:
//!   openapi: ./shop.yaml
//!   include: ["GET *"]
//!   auth: { bearer: "${env:SHOP_TOKEN}" }
//!   poll: { create_report: { url: "/jobs/{$response.body#/id}", status: /state, done: [finished] } }
//! ```
//!
//! The document itself is neither opened nor parsed here, so names of operations, tags and schemes are not checked.

use std::collections::BTreeMap;

use toolcrib_core::source::{OpenApiSource, PollSettings, WorkflowSource};
use toolcrib_core::text::did_you_mean;

use super::reader::{ConfigReader, Section, ZeroDuration};
use super::syntax::{ConfigNode, join_key};
use super::url_check::{self, has_scheme, is_http_url, starts_with_template};
use super::{auth, header, path};

/// Keys that are allowed beside `openapi`.
pub(super) const OPENAPI_KEYS: [&str; 11] = [
    "base_url",
    "include",
    "exclude",
    "include_tags",
    "methods",
    "headers",
    "auth",
    "allow_private",
    "allow_refs",
    "variables",
    "poll",
];

/// HTTP methods that become tools only if `methods` lists them.
const OPT_IN_METHODS: [&str; 3] = ["HEAD", "OPTIONS", "TRACE"];
/// Keys of one entry of `poll`.
pub(super) const POLL_KEYS: [&str; 6] = ["url", "status", "result", "done", "failed", "interval"];

/// Reads an OpenAPI source. All keys are read before the document, so that one pass reports all errors.
pub(super) fn read(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<OpenApiSource> {
    let include = reader.read_resolved_list(section, "include");
    let exclude = reader.read_resolved_list(section, "exclude");
    let include_tags = reader.read_resolved_list(section, "include_tags");
    let methods = read_methods(reader, section);
    let headers = header::read(reader, section);
    let auth = auth::read(reader, section, auth::AuthMethods::All);
    auth::reject_duplicate_header(reader, section, &headers, auth.as_ref());
    let allow_private = reader.read_bool(section, "allow_private").unwrap_or(false);
    let allow_refs =
        reader.read_list(section, "allow_refs").iter().map(|text| resolve_location(reader, text)).collect();
    let variables = reader.read_map(section, "variables");
    let poll = read_polls(reader, section);
    let base_url = read_base_url(reader, section);
    let document = read_document(reader, section, "openapi")?;
    Some(OpenApiSource {
        document,
        base_url,
        include,
        exclude,
        include_tags,
        methods,
        headers,
        auth,
        allow_private,
        allow_refs,
        variables,
        poll,
    })
}

/// Reads a workflow source. Its Arazzo document must be a local file.
pub(super) fn read_workflow(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<WorkflowSource> {
    let text = reader.read_text(section, "workflow")?;
    if has_scheme(&text) {
        let line = section.get("workflow").map_or(section.line, |node| node.line);
        reader.error(
            line,
            &join_key(&section.path, "workflow"),
            "expected a file; download the document and give its path",
        );
        return None;
    }
    Some(WorkflowSource { document: path::to_absolute(reader.base_dir, &text) })
}

/// Reads the location of a document: a file or a URL.
fn read_document(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    let node = section.get(key)?;
    let text = reader.read_text(section, key)?;
    // `file://` and other schemes are not supported, and would be taken for a relative path.
    if has_scheme(&text) && !is_http_url(&text) {
        let message = "expected a file or a URL that begins with `http://` or `https://`";
        reader.error(node.line, &join_key(&section.path, key), message);
        return None;
    }
    if let Some(message) = url_check::find_url_error(&text).filter(|_| is_http_url(&text)) {
        reader.error(node.line, &join_key(&section.path, key), message);
        return None;
    }
    Some(resolve_location(reader, &text))
}

/// Returns a URL as it is and a path resolved against the configuration file. A text that begins with a reference may
/// become either.
fn resolve_location(reader: &ConfigReader<'_>, text: &str) -> String {
    if is_http_url(text) && !text.starts_with("${") {
        text.to_owned()
    } else {
        path::to_absolute(reader.base_dir, text)
    }
}

/// Reads `base_url`. A leading template may stand for the scheme, so such a URL is checked when it is filled.
/// Templates are filled from `variables` at the time of a request.
fn read_base_url(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Option<String> {
    let node = section.get("base_url")?;
    let url = reader.read_text(section, "base_url")?;
    if let Some(message) = url_check::find_url_error(&url).filter(|_| !starts_with_template(&url)) {
        reader.error(node.line, &join_key(&section.path, "base_url"), message);
        return None;
    }
    Some(url)
}

/// Reads `methods` in upper case, without duplicates.
/// Methods that are always included are an error with a reason, not a silent no-op.
fn read_methods(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> Vec<String> {
    let path = join_key(&section.path, "methods");
    let line = section.get("methods").map_or(section.line, |node| node.line);
    let mut methods: Vec<String> = Vec::new();
    for text in reader.read_resolved_list(section, "methods") {
        let method = text.to_ascii_uppercase();
        if OPT_IN_METHODS.contains(&method.as_str()) {
            if !methods.contains(&method) {
                methods.push(method);
            }
            continue;
        }
        let reason = match method.as_str() {
            "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "QUERY" => "; that method is always included".to_owned(),
            other => did_you_mean(other, OPT_IN_METHODS),
        };
        reader.error(line, &path, format!("expected `HEAD`, `OPTIONS` or `TRACE`, found `{text}`{reason}"));
    }
    methods
}

/// Reads `poll`: settings by a glob on tool names.
fn read_polls(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> BTreeMap<String, PollSettings> {
    let path = join_key(&section.path, "poll");
    let Some(globs) = section.get("poll").and_then(|node| reader.as_section(node, &path)) else {
        return BTreeMap::new();
    };
    let polls = globs.entries.iter().filter_map(|entry| {
        let poll = read_poll(reader, &entry.node, &join_key(&path, &entry.key))?;
        Some((entry.key.clone(), poll))
    });
    polls.collect()
}

/// Reads one entry of `poll`: `url`, `status` and `done` are required.
fn read_poll(reader: &mut ConfigReader<'_>, node: &ConfigNode, path: &str) -> Option<PollSettings> {
    let section = reader.as_section(node, path)?;
    reader.report_unknown_keys(&section, &POLL_KEYS);
    // All missing keys are reported, not only the first.
    for key in ["url", "status", "done"] {
        if !section.has(key) {
            reader.error(section.line, path, format!("needs `{key}`"));
        }
    }
    let url = reader.read_text(&section, "url");
    let status = read_pointer(reader, &section, "status");
    let result = read_pointer(reader, &section, "result");
    let done = reader.read_resolved_list(&section, "done");
    let failed = reader.read_resolved_list(&section, "failed");
    let interval = reader.read_duration(&section, "interval", ZeroDuration::Rejected);
    if interval.is_some_and(|interval| interval < PollSettings::MIN_INTERVAL) {
        reader.error(section.line, &join_key(path, "interval"), "must be `100ms` or more");
    }
    if section.has("done") && done.is_empty() {
        reader.error(section.line, &join_key(path, "done"), "needs at least one status value that means done");
    }
    Some(PollSettings { url: url?, status: status?, result, done, failed, interval })
}

/// Reads a JSON pointer: empty for the whole document, or segments that each start with `/`.
fn read_pointer(reader: &mut ConfigReader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    let node = section.get(key)?;
    let path = join_key(&section.path, key);
    let pointer = reader.read_scalar(node, &path)?;
    if pointer.is_empty() || pointer.starts_with('/') {
        return Some(pointer);
    }
    reader.error(node.line, &path, format!("expected a JSON pointer such as `/{pointer}`, found `{pointer}`"));
    None
}
