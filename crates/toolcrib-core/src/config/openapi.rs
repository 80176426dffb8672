//! A source made from an OpenAPI document or from an Arazzo document of workflows: the keys that stand beside those.

use std::collections::BTreeMap;

use super::address::{self, begins_with_template, has_scheme, is_address};
use super::node::{Node, joined};
use super::reader::{Reader, Section, Zero};
use super::{auth, header, path};
use crate::source::{OpenApi, Poll, Workflow};
use crate::text::did_you_mean;

/// The keys that belong to `openapi`.
pub(super) const KEYS: [&str; 11] = [
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

/// Methods that become tools only where somebody asks for them.
const METHODS: [&str; 3] = ["HEAD", "OPTIONS", "TRACE"];
const POLL: [&str; 6] = ["url", "status", "result", "done", "failed", "interval"];

pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<OpenApi> {
    let include = reader.texts(section, "include");
    let exclude = reader.texts(section, "exclude");
    let include_tags = reader.texts(section, "include_tags");
    let methods = methods(reader, section);
    let headers = header::read(reader, section);
    let auth = auth::read(reader, section, auth::Ways::All);
    auth::forbid_two(reader, section, &headers, auth.as_ref());
    let allow_private = reader.flag(section, "allow_private").unwrap_or(false);
    let allow_refs = reader.texts(section, "allow_refs").iter().map(|place| located(reader, place)).collect();
    let variables = reader.pairs(section, "variables");
    let poll = polls(reader, section);
    let base_url = base_url(reader, section);
    let document = document(reader, section, "openapi")?;
    Some(OpenApi {
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

pub(super) fn read_workflow(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Workflow> {
    let text = reader.text(section, "workflow")?;
    if has_scheme(&text) {
        let line = section.get("workflow").map_or(section.line, |node| node.line);
        reader.fault(line, &joined(&section.path, "workflow"), "expected a file; fetch the document and name it here");
        return None;
    }
    Some(Workflow { document: path::absolute(reader.base, &text) })
}

/// A file, or an address.
fn document(reader: &mut Reader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    let node = section.get(key)?;
    let text = reader.text(section, key)?;
    if has_scheme(&text) && !is_address(&text) {
        let message = "expected a file, or an address that begins with `http://` or `https://`";
        reader.fault(node.line, &joined(&section.path, key), message);
        return None;
    }
    if let Some(wrong) = address::wrong(&text).filter(|_| is_address(&text)) {
        reader.fault(node.line, &joined(&section.path, key), wrong);
        return None;
    }
    Some(located(reader, &text))
}

/// An address as it is; a path against the configuration.
fn located(reader: &Reader<'_>, place: &str) -> String {
    if is_address(place) { place.to_owned() } else { path::absolute(reader.base, place) }
}

fn base_url(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<String> {
    let node = section.get("base_url")?;
    let url = reader.text(section, "base_url")?;
    if let Some(wrong) = address::wrong(&url).filter(|_| !begins_with_template(&url)) {
        reader.fault(node.line, &joined(&section.path, "base_url"), wrong);
        return None;
    }
    Some(url)
}

fn methods(reader: &mut Reader<'_>, section: &Section<'_>) -> Vec<String> {
    let path = joined(&section.path, "methods");
    let line = section.get("methods").map_or(section.line, |node| node.line);
    let mut methods: Vec<String> = Vec::new();
    for given in reader.texts(section, "methods") {
        let method = given.to_ascii_uppercase();
        if METHODS.contains(&method.as_str()) {
            if !methods.contains(&method) {
                methods.push(method);
            }
            continue;
        }
        let reason = match method.as_str() {
            "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "QUERY" => "; that one needs no asking for".to_owned(),
            other => did_you_mean(other, METHODS),
        };
        reader.fault(line, &path, format!("expected `HEAD`, `OPTIONS` or `TRACE`, found `{given}`{reason}"));
    }
    methods
}

fn polls(reader: &mut Reader<'_>, section: &Section<'_>) -> BTreeMap<String, Poll> {
    let path = joined(&section.path, "poll");
    let Some(globs) = section.get("poll").and_then(|node| reader.section(node, &path)) else {
        return BTreeMap::new();
    };
    let each = globs.entries.iter().filter_map(|entry| {
        let poll = poll(reader, &entry.node, &joined(&path, &entry.key))?;
        Some((entry.key.clone(), poll))
    });
    each.collect()
}

fn poll(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Poll> {
    let section = reader.section(node, path)?;
    reader.unknown_keys(&section, &POLL);
    for key in ["url", "status", "done"] {
        if !section.has(key) {
            reader.fault(section.line, path, format!("needs `{key}`"));
        }
    }
    let (url, status, result) =
        (reader.text(&section, "url"), pointer(reader, &section, "status"), pointer(reader, &section, "result"));
    let (done, failed) = (reader.texts(&section, "done"), reader.texts(&section, "failed"));
    let interval = reader.duration(&section, "interval", Zero::Refused);
    if interval.is_some_and(|interval| interval < Poll::SHORTEST_INTERVAL) {
        reader.fault(section.line, &joined(path, "interval"), "must be `100ms` or more");
    }
    if section.has("done") && done.is_empty() {
        reader.fault(section.line, &joined(path, "done"), "needs a value that means that it is done");
    }
    Some(Poll { url: url?, status: status?, result, done, failed, interval })
}

/// A JSON pointer: nothing for the whole, or steps that each begin with `/`.
fn pointer(reader: &mut Reader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    let node = section.get(key)?;
    let path = joined(&section.path, key);
    let pointer = reader.spelling(node, &path)?;
    if pointer.is_empty() || pointer.starts_with('/') {
        return Some(pointer);
    }
    reader.fault(node.line, &path, format!("expected a JSON pointer such as `/{pointer}`, found `{pointer}`"));
    None
}
