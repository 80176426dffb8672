//! The parameters of an operation, those of its path included: where each goes, how its value is written, what it may be.

use std::collections::HashMap;

use serde_json::Value;

use super::convert::{DocumentContext, OperationRef, SpecVersion};
use super::document_set::NodeRef;
use crate::execution::{ParameterLocation, ParameterStyle, Serialization};
use crate::text::sanitize_truncated;

/// A parameter as the document gives it.
#[derive(Debug)]
pub(super) struct DeclaredParameter<'a> {
    pub(super) name: String,
    pub(super) place: ParameterLocation,
    pub(super) required: bool,
    pub(super) form: Serialization,
    pub(super) schema: ParameterSchema<'a>,
    pub(super) description: Option<&'a str>,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParameterSchema<'a> {
    Declared(NodeRef<'a>),
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
pub(super) fn read_parameters<'a>(
    shared: &DocumentContext<'a>,
    found: &OperationRef<'a>,
    broken: &mut Vec<String>,
) -> Vec<DeclaredParameter<'a>> {
    let mut given: Vec<DeclaredParameter<'a>> = Vec::new();
    let mut positions: HashMap<(ParameterLocation, String), usize> = HashMap::new();
    for parameter in resolve_parameters(shared, found, broken) {
        let Some(parameter) = read_parameter(shared, parameter, broken) else { continue };
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
    let templates = path_template_names(path);
    given
        .retain(|parameter| parameter.place != ParameterLocation::Path || templates.contains(&parameter.name.as_str()));
    for name in templates {
        if !positions.contains_key(&(ParameterLocation::Path, name.to_owned())) {
            given.push(DeclaredParameter {
                name: name.to_owned(),
                place: ParameterLocation::Path,
                required: true,
                form: default_encoding(ParameterLocation::Path),
                schema: ParameterSchema::Text,
                description: None,
            });
        }
    }
    given.sort_by_key(|parameter| parameter.place);
    given
}

/// Every parameter, followed to what it is; bodies and form fields of Swagger 2.0 are among them.
pub(super) fn resolve_parameters<'a>(
    shared: &DocumentContext<'a>,
    found: &OperationRef<'a>,
    broken: &mut Vec<String>,
) -> Vec<NodeRef<'a>> {
    let mut all = Vec::new();
    for holder in [found.path_item, found.operation] {
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
            match shared.documents.resolve(NodeRef { value, ..holder }) {
                Ok(at) => all.push(at),
                Err(reason) => broken.push(format!("parameter {index}: {reason}; the tool is served without it")),
            }
        }
    }
    all
}

fn read_parameter<'a>(
    shared: &DocumentContext<'a>,
    at: NodeRef<'a>,
    broken: &mut Vec<String>,
) -> Option<DeclaredParameter<'a>> {
    let text = |key: &str| at.value.get(key).and_then(Value::as_str);
    let (Some(name), Some(place)) = (text("name"), text("in")) else {
        broken.push("a parameter without `name` or `in`; the tool is served without it".into());
        return None;
    };
    if shared.security.is_credential(place, name) || is_authentication_token(shared, name, text("description")) {
        return None;
    }
    let flag = |key: &str| at.value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let place = match place {
        "path" => ParameterLocation::Path,
        "query" => ParameterLocation::Query,
        "header" if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) => return None,
        "header" => ParameterLocation::Header,
        "cookie" => ParameterLocation::Cookie,
        "querystring" => ParameterLocation::Querystring,
        "body" | "formData" if shared.version == SpecVersion::Swagger2 => return None,
        other => {
            let name = sanitize_truncated(name, 60);
            let other = sanitize_truncated(other, 40);
            broken
                .push(format!("parameter `{name}` is in `{other}`, which is no place; the tool is served without it"));
            return None;
        }
    };
    let content = at.value.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let (form, schema) = match (content, shared.version) {
        (Some((media_type, value)), SpecVersion::OpenApi3) => {
            (Serialization::Content { media_type: media_type.clone() }, value.get("schema"))
        }
        (_, SpecVersion::OpenApi3) => {
            // Some write what Swagger 2.0 wants.
            let typed = ["type", "enum", "items"].iter().any(|key| at.value.get(*key).is_some());
            (read_style(at.value, place), at.value.get("schema").or(Some(at.value).filter(|_| typed)))
        }
        (_, SpecVersion::Swagger2) => (collection_format_encoding(text("collectionFormat"), place), Some(at.value)),
    };
    Some(DeclaredParameter {
        name: name.to_owned(),
        place,
        required: place == ParameterLocation::Path || flag("required"),
        form,
        schema: schema.map_or(ParameterSchema::Any, |value| ParameterSchema::Declared(NodeRef { value, ..at })),
        description: text("description"),
    })
}

/// A document with security schemes may still list the token among the parameters (Slack's does): it is presented, not
/// asked for.
fn is_authentication_token(shared: &DocumentContext<'_>, name: &str, description: Option<&str>) -> bool {
    const BEGINNING: &str = "authentication token";
    let begins = description.and_then(|text| text.get(..BEGINNING.len()));
    let described = begins.is_some_and(|begins| begins.eq_ignore_ascii_case(BEGINNING));
    described && matches!(name, "token" | "access_token") && shared.security.has_schemes()
}

/// How a value is written where the document says nothing.
fn default_encoding(place: ParameterLocation) -> Serialization {
    let (style, explode) = match place {
        ParameterLocation::Path | ParameterLocation::Header => (ParameterStyle::Simple, false),
        ParameterLocation::Query | ParameterLocation::Cookie | ParameterLocation::Querystring => {
            (ParameterStyle::Form, true)
        }
    };
    Serialization::Style { style, explode, allow_reserved: false }
}

/// `style`, `explode` and `allowReserved`, of a parameter or of one property of a form.
pub(super) fn read_style(value: &Value, place: ParameterLocation) -> Serialization {
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    let named = match value.get("style").and_then(Value::as_str) {
        Some("simple") => Some(ParameterStyle::Simple),
        Some("label") => Some(ParameterStyle::Label),
        Some("matrix") => Some(ParameterStyle::Matrix),
        Some("form") => Some(ParameterStyle::Form),
        Some("spaceDelimited") => Some(ParameterStyle::SpaceDelimited),
        Some("pipeDelimited") => Some(ParameterStyle::PipeDelimited),
        Some("deepObject") => Some(ParameterStyle::DeepObject),
        Some("cookie") => Some(ParameterStyle::Cookie),
        Some(_) | None => None,
    };
    let fits = |style: ParameterStyle| match place {
        ParameterLocation::Path => {
            matches!(style, ParameterStyle::Simple | ParameterStyle::Label | ParameterStyle::Matrix)
        }
        ParameterLocation::Header => style == ParameterStyle::Simple,
        ParameterLocation::Cookie => matches!(style, ParameterStyle::Form | ParameterStyle::Cookie),
        ParameterLocation::Query | ParameterLocation::Querystring => !matches!(
            style,
            ParameterStyle::Simple | ParameterStyle::Label | ParameterStyle::Matrix | ParameterStyle::Cookie
        ),
    };
    let default = default_encoding(place);
    let Serialization::Style { style: of_place, .. } = default else { return default };
    let style = named.filter(|style| fits(*style)).unwrap_or(of_place);
    let explode = flag("explode")
        .unwrap_or(matches!(style, ParameterStyle::Form | ParameterStyle::Cookie | ParameterStyle::DeepObject));
    Serialization::Style { style, explode, allow_reserved: flag("allowReserved").unwrap_or(false) }
}

/// How Swagger 2.0 writes lists.
pub(super) fn collection_format_encoding(format: Option<&str>, place: ParameterLocation) -> Serialization {
    let (style, explode) = match (format, place) {
        (Some("multi"), ParameterLocation::Query) => (ParameterStyle::Form, true),
        (Some("ssv"), _) => (ParameterStyle::SpaceDelimited, false),
        (Some("tsv"), _) => (ParameterStyle::TabDelimited, false),
        (Some("pipes"), _) => (ParameterStyle::PipeDelimited, false),
        (_, ParameterLocation::Path | ParameterLocation::Header) => (ParameterStyle::Simple, false),
        (_, ParameterLocation::Query | ParameterLocation::Cookie | ParameterLocation::Querystring) => {
            (ParameterStyle::Form, false)
        }
    };
    Serialization::Style { style, explode, allow_reserved: false }
}

/// A path whose templates have the names of parameters alone, where people write RFC 6570's `{+path}` or `{path*}`.
pub(super) fn normalize_path(path: &str) -> String {
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
        plain.push_str(&format!("{{{}}}", template_name(name)));
        rest = after;
    }
    plain.push_str(rest);
    plain
}

fn template_name(name: &str) -> &str {
    name.trim_start_matches('+').trim_end_matches('*')
}

/// The names in the braces of a path.
fn path_template_names(path: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = path;
    while let Some((_, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { break };
        let name = template_name(name);
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        rest = after;
    }
    names
}
