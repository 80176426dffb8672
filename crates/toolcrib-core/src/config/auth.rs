//! How a source is authenticated with. No message here repeats a value.

use super::node::{Node, joined};
use super::reader::{Reader, Section};
use crate::source::{Auth, KeyPlace};

const WAYS: [&str; 4] = ["bearer", "basic", "api_key", "oauth2"];
const PLACES: [(&str, KeyPlace); 3] =
    [("header", KeyPlace::Header), ("query", KeyPlace::Query), ("cookie", KeyPlace::Cookie)];

pub(super) fn read(reader: &mut Reader<'_>, source: &Section<'_>) -> Option<Auth> {
    let path = joined(&source.path, "auth");
    let section = reader.section(source.get("auth")?, &path)?;
    reader.unknown_keys(&section, &WAYS);
    let given: Vec<&str> = WAYS.into_iter().filter(|way| section.has(way)).collect();
    let way = match given.as_slice() {
        [way] => *way,
        [] => {
            reader.fault(section.line, &path, "needs one of `bearer`, `basic` or `api_key`");
            return None;
        }
        [first, second, ..] => {
            reader.fault(section.line, &path, format!("`{first}` and `{second}` cannot stand together; keep one"));
            return None;
        }
    };
    let (node, path) = (section.get(way)?, joined(&path, way));
    match way {
        "bearer" => reader.spelling(node, &path).map(Auth::Bearer),
        "basic" => basic(reader, node, &path),
        "api_key" => api_key(reader, node, &path),
        _ => {
            reader.fault(node.line, &path, "is not supported by this version; use `bearer` with a token");
            None
        }
    }
}

fn basic(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Auth> {
    let section = reader.section(node, path)?;
    reader.unknown_keys(&section, &["user", "password"]);
    let (user, password) = (required(reader, &section, "user"), required(reader, &section, "password"));
    Some(Auth::Basic { user: user?, password: password? })
}

fn api_key(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Auth> {
    let section = reader.section(node, path)?;
    reader.unknown_keys(&section, &["name", "in", "value"]);
    let (name, value) = (required(reader, &section, "name"), required(reader, &section, "value"));
    let place = match section.get("in") {
        Some(node) => reader.choice(node, &joined(path, "in"), &PLACES),
        None => Some(KeyPlace::Header),
    };
    Some(Auth::ApiKey { name: name?, place: place?, value: value? })
}

fn required(reader: &mut Reader<'_>, section: &Section<'_>, key: &str) -> Option<String> {
    match section.get(key) {
        Some(node) => reader.spelling(node, &joined(&section.path, key)),
        None => {
            reader.fault(section.line, &section.path, format!("needs `{key}`"));
            None
        }
    }
}

pub(super) fn place_name(place: KeyPlace) -> &'static str {
    match place {
        KeyPlace::Header => "header",
        KeyPlace::Query => "query",
        KeyPlace::Cookie => "cookie",
    }
}
