//! How a source is authenticated with. No message here repeats a value.

use std::collections::BTreeMap;

use super::address;
use super::header::{check_name, check_value};
use super::node::{Node, Value, joined};
use super::reader::{Reader, Section, one_of};
use crate::source::{Auth, KeyPlace};

/// Which ways a source knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ways {
    /// One that needs nothing but itself.
    Plain,
    /// All but a map of them.
    Single,
    All,
}

const WAYS: [&str; 5] = ["bearer", "basic", "api_key", "oauth2", "schemes"];
const PLACES: [(&str, KeyPlace); 3] =
    [("header", KeyPlace::Header), ("query", KeyPlace::Query), ("cookie", KeyPlace::Cookie)];

pub(super) fn read(reader: &mut Reader<'_>, source: &Section<'_>, ways: Ways) -> Option<Auth> {
    one(reader, source.get("auth")?, &joined(&source.path, "auth"), ways)
}

/// A header that stands on the source and that its authentication sets too.
pub(super) fn forbid_two(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    headers: &BTreeMap<String, String>,
    auth: Option<&Auth>,
) {
    let set = auth.map(header_names).unwrap_or_default();
    if let Some(name) = set.iter().find(|set| headers.keys().any(|name| name.eq_ignore_ascii_case(set))) {
        let line = section.entry("auth").map_or(section.line, |entry| entry.line);
        let message = format!("`auth` and the header `{name}` say the same twice; keep one");
        reader.fault(line, &section.path, message);
    }
}

fn header_names(auth: &Auth) -> Vec<&str> {
    match auth {
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::Oauth2 { .. } => vec!["Authorization"],
        Auth::ApiKey { name, place: KeyPlace::Header, .. } => vec![name],
        Auth::ApiKey { place: KeyPlace::Query | KeyPlace::Cookie, .. } => Vec::new(),
        Auth::Schemes(schemes) => schemes.values().flat_map(header_names).collect(),
    }
}

fn one(reader: &mut Reader<'_>, node: &Node, path: &str, ways: Ways) -> Option<Auth> {
    let section = reader.section(node, path)?;
    reader.unknown_keys(&section, &WAYS);
    let given: Vec<&str> = WAYS.into_iter().filter(|way| section.has(way)).collect();
    let way = match given.as_slice() {
        [way] => *way,
        [] => {
            reader.fault(section.line, path, format!("needs one of {}", one_of(ways.names())));
            return None;
        }
        [first, second, ..] => {
            reader.fault(section.line, path, format!("`{first}` and `{second}` cannot stand together; keep one"));
            return None;
        }
    };
    let (node, path) = (section.get(way)?, joined(path, way));
    if !ways.names().contains(&way) {
        reader.fault(node.line, &path, ways.refusal());
        return None;
    }
    match way {
        "bearer" => {
            let token = reader.spelling(node, &path)?;
            check_value(reader, node.line, &path, &token);
            Some(Auth::Bearer(token))
        }
        "basic" => basic(reader, node, &path),
        "api_key" => api_key(reader, node, &path),
        "oauth2" => oauth2(reader, node, &path),
        _ => schemes(reader, node, &path),
    }
}

impl Ways {
    fn names(self) -> &'static [&'static str] {
        match self {
            Ways::Plain => &WAYS[..3],
            Ways::Single => &WAYS[..4],
            Ways::All => &WAYS,
        }
    }

    /// Why a way that is known elsewhere is not known here.
    fn refusal(self) -> &'static str {
        match self {
            Ways::Plain => "belongs to a source with `openapi`; beside `url` use `bearer` with a token",
            Ways::Single | Ways::All => "cannot stand inside `schemes`; name the schemes side by side",
        }
    }
}

fn schemes(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Auth> {
    let section = reader.section(node, path)?;
    if section.entries.is_empty() {
        reader.fault(section.line, path, "names no scheme; the document has them under `securitySchemes`");
        return None;
    }
    let mut schemes = BTreeMap::new();
    for entry in section.entries {
        if let Some(auth) = one(reader, &entry.node, &joined(path, &entry.key), Ways::Single) {
            schemes.insert(entry.key.clone(), auth);
        }
    }
    Some(Auth::Schemes(schemes))
}

/// Client credentials.
fn oauth2(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Auth> {
    let section = reader.section(node, path)?;
    reader.unknown_keys(&section, &["token_url", "client_id", "client_secret", "scopes"]);
    let token_url = required(reader, &section, "token_url");
    let client_id = required(reader, &section, "client_id");
    let client_secret = required(reader, &section, "client_secret");
    let scopes = scopes(reader, &section);
    if let (Some(url), Some(node)) = (&token_url, section.get("token_url"))
        && let Some(wrong) = address::wrong(url)
    {
        reader.fault(node.line, &joined(path, "token_url"), wrong);
    }
    Some(Auth::Oauth2 { token_url: token_url?, client_id: client_id?, client_secret: client_secret?, scopes })
}

/// A list, or one text with spaces between them, as the protocol has it.
fn scopes(reader: &mut Reader<'_>, section: &Section<'_>) -> Vec<String> {
    match section.get("scopes").map(|node| &node.value) {
        Some(Value::Text(text)) => text.split_whitespace().map(str::to_owned).collect(),
        Some(Value::Null | Value::Bool(..) | Value::Number(_) | Value::List(_) | Value::Map(_)) | None => {
            reader.texts(section, "scopes")
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
    let (name, place, value) = (name?, place?, value?);
    match place {
        KeyPlace::Header => check_name(reader, section.line, &joined(path, "name"), &name),
        KeyPlace::Cookie => check_value(reader, section.line, &joined(path, "name"), &name),
        KeyPlace::Query => return Some(Auth::ApiKey { name, place, value }),
    }
    check_value(reader, section.line, &joined(path, "value"), &value);
    Some(Auth::ApiKey { name, place, value })
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
