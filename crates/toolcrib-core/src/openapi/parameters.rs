//! The parameters of an operation, those of its path included: where each goes, how its value is written, what it may be.

use std::collections::HashMap;

use serde_json::Value;

use super::convert::{Found, Shared, Version};
use super::library::At;
use crate::execution::{Form, Place, Style};
use crate::text::shown_short;

/// A parameter as the document gives it.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) required: bool,
    pub(super) form: Form,
    pub(super) schema: Schema<'a>,
    pub(super) description: Option<&'a str>,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Schema<'a> {
    Given(At<'a>),
    /// The document does not say.
    Any,
    /// The document only names it, in the path.
    Text,
}

/// Headers that are not a parameter's to set.
const RESERVED_HEADERS: [&str; 7] =
    ["accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"];

/// How many parameters of a list are read. Many operations may share the list of one path item.
const MAX_PARAMETERS: usize = 1_000;

/// In the order path, query, header, cookie. What is broken is told and left out.
pub(super) fn read<'a>(shared: &Shared<'a>, found: &Found<'a>, broken: &mut Vec<String>) -> Vec<Given<'a>> {
    let mut given: Vec<Given<'a>> = Vec::new();
    let mut positions: HashMap<(Place, String), usize> = HashMap::new();
    for parameter in all(shared, found, broken) {
        let Some(parameter) = one(shared, parameter, broken) else { continue };
        // What an operation says comes after what its path says, and counts more.
        match positions.get(&(parameter.place, parameter.name.clone())) {
            Some(&position) => given[position] = parameter,
            None => {
                positions.insert((parameter.place, parameter.name.clone()), given.len());
                given.push(parameter);
            }
        }
    }
    let path = found.path.split(['?', '#']).next().unwrap_or_default();
    let templates = templates(path);
    given.retain(|parameter| parameter.place != Place::Path || templates.contains(&parameter.name.as_str()));
    for name in templates {
        if !positions.contains_key(&(Place::Path, name.to_owned())) {
            given.push(Given {
                name: name.to_owned(),
                place: Place::Path,
                required: true,
                form: usual(Place::Path),
                schema: Schema::Text,
                description: None,
            });
        }
    }
    given.sort_by_key(|parameter| parameter.place);
    given
}

/// Every parameter, followed to what it is; bodies and form fields of Swagger 2.0 are among them.
pub(super) fn all<'a>(shared: &Shared<'a>, found: &Found<'a>, broken: &mut Vec<String>) -> Vec<At<'a>> {
    let mut all = Vec::new();
    for holder in [found.item, found.operation] {
        let listed = holder.value.get("parameters");
        if listed.is_some_and(|listed| !listed.is_array()) {
            broken.push("`parameters` is no list; the tool is served without them".into());
        }
        let listed = listed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if listed.len() > MAX_PARAMETERS {
            broken
                .push(format!("there are more than {MAX_PARAMETERS} parameters; the tool is served without the rest"));
        }
        for (index, value) in listed.iter().take(MAX_PARAMETERS).enumerate() {
            match shared.library.follow(At { value, ..holder }) {
                Ok(at) => all.push(at),
                Err(reason) => broken.push(format!("parameter {index}: {reason}; the tool is served without it")),
            }
        }
    }
    all
}

fn one<'a>(shared: &Shared<'a>, at: At<'a>, broken: &mut Vec<String>) -> Option<Given<'a>> {
    let text = |key: &str| at.value.get(key).and_then(Value::as_str);
    let (Some(name), Some(place)) = (text("name"), text("in")) else {
        broken.push("a parameter without `name` or `in`; the tool is served without it".into());
        return None;
    };
    if shared.security.is_credential(place, name) || is_token(shared, name, text("description")) {
        return None;
    }
    let flag = |key: &str| at.value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let place = match place {
        "path" => Place::Path,
        "query" => Place::Query,
        "header" if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) => return None,
        "header" => Place::Header,
        "cookie" => Place::Cookie,
        "querystring" => Place::Querystring,
        "body" | "formData" if shared.version == Version::Two => return None,
        other => {
            let (name, other) = (shown_short(name, 60), shown_short(other, 40));
            broken
                .push(format!("parameter `{name}` is in `{other}`, which is no place; the tool is served without it"));
            return None;
        }
    };
    let content = at.value.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let (form, schema) = match (content, shared.version) {
        (Some((media_type, value)), Version::Three) => {
            (Form::Content { media_type: media_type.clone() }, value.get("schema"))
        }
        (_, Version::Three) => {
            // Some write what Swagger 2.0 wants.
            let typed = ["type", "enum", "items"].iter().any(|key| at.value.get(*key).is_some());
            (style(at.value, place), at.value.get("schema").or(Some(at.value).filter(|_| typed)))
        }
        (_, Version::Two) => (collection(text("collectionFormat"), place), Some(at.value)),
    };
    Some(Given {
        name: name.to_owned(),
        place,
        required: place == Place::Path || flag("required"),
        form,
        schema: schema.map_or(Schema::Any, |value| Schema::Given(At { value, ..at })),
        description: text("description"),
    })
}

/// A document with security schemes may still list the token among the parameters (Slack's does): it is presented, not
/// asked for.
fn is_token(shared: &Shared<'_>, name: &str, description: Option<&str>) -> bool {
    const BEGINNING: &str = "authentication token";
    let begins = description.and_then(|text| text.get(..BEGINNING.len()));
    let described = begins.is_some_and(|begins| begins.eq_ignore_ascii_case(BEGINNING));
    described && matches!(name, "token" | "access_token") && shared.security.any()
}

/// How a value is written where the document says nothing.
fn usual(place: Place) -> Form {
    let (style, explode) = match place {
        Place::Path | Place::Header => (Style::Simple, false),
        Place::Query | Place::Cookie | Place::Querystring => (Style::Form, true),
    };
    Form::Style { style, explode, allow_reserved: false }
}

/// `style`, `explode` and `allowReserved`, of a parameter or of one property of a form.
pub(super) fn style(value: &Value, place: Place) -> Form {
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let named = match value.get("style").and_then(Value::as_str) {
        Some("simple") => Some(Style::Simple),
        Some("label") => Some(Style::Label),
        Some("matrix") => Some(Style::Matrix),
        Some("form") => Some(Style::Form),
        Some("spaceDelimited") => Some(Style::SpaceDelimited),
        Some("pipeDelimited") => Some(Style::PipeDelimited),
        Some("deepObject") => Some(Style::DeepObject),
        Some("cookie") => Some(Style::Cookie),
        Some(_) | None => None,
    };
    let fits = |style: Style| match place {
        Place::Path => matches!(style, Style::Simple | Style::Label | Style::Matrix),
        Place::Header => style == Style::Simple,
        Place::Cookie => matches!(style, Style::Form | Style::Cookie),
        Place::Query | Place::Querystring => {
            !matches!(style, Style::Simple | Style::Label | Style::Matrix | Style::Cookie)
        }
    };
    let default = usual(place);
    let Form::Style { style: of_place, .. } = default else { return default };
    let style = named.filter(|style| fits(*style)).unwrap_or(of_place);
    let explode = flag("explode").unwrap_or(matches!(style, Style::Form | Style::Cookie | Style::DeepObject));
    Form::Style { style, explode, allow_reserved: flag("allowReserved").unwrap_or(false) }
}

/// How Swagger 2.0 writes lists.
pub(super) fn collection(format: Option<&str>, place: Place) -> Form {
    let (style, explode) = match (format, place) {
        (Some("multi"), Place::Query) => (Style::Form, true),
        (Some("ssv"), _) => (Style::SpaceDelimited, false),
        (Some("tsv"), _) => (Style::TabDelimited, false),
        (Some("pipes"), _) => (Style::PipeDelimited, false),
        (_, Place::Path | Place::Header) => (Style::Simple, false),
        (_, Place::Query | Place::Cookie | Place::Querystring) => (Style::Form, false),
    };
    Form::Style { style, explode, allow_reserved: false }
}

/// A path whose templates have the names of parameters alone, where people write RFC 6570's `{+path}` or `{path*}`.
pub(super) fn plain_path(path: &str) -> String {
    let mut plain = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        plain.push('/');
    }
    let mut rest = path;
    while let Some((before, name, after)) = rest
        .split_once('{')
        .and_then(|(before, after)| after.split_once('}').map(|(name, after)| (before, name, after)))
    {
        plain.push_str(before);
        plain.push_str(&format!("{{{}}}", bare(name)));
        rest = after;
    }
    plain.push_str(rest);
    plain
}

fn bare(name: &str) -> &str {
    name.trim_start_matches('+').trim_end_matches('*')
}

/// The names in the braces of a path.
fn templates(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = path;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        let name = bare(name);
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        rest = after;
    }
    names
}
