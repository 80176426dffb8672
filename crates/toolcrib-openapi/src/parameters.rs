//! Reads the parameters of an operation and its path item: the location, serialisation and schema of each.
//!
//! A parameter is identified by location and name. Those of the operation override those of its path item; path
//! parameters are reconciled with the template of the path, which is what a request is built from.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use toolcrib_core::execution::{ParameterLocation, ParameterStyle, Serialization};
use toolcrib_core::text::sanitize_truncated;

use super::convert::{DocumentContext, OperationRef, SpecVersion};
use super::document_set::NodeRef;

/// A parameter as the document declares it.
#[derive(Debug)]
pub(super) struct DeclaredParameter<'a> {
    /// Name on the wire.
    pub(super) name: String,
    pub(super) location: ParameterLocation,
    pub(super) required: bool,
    /// Style or media type of its value.
    pub(super) serialization: Serialization,
    pub(super) schema: ParameterSchema<'a>,
    pub(super) description: Option<&'a str>,
}

/// Schema of a parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum ParameterSchema<'a> {
    /// The declared schema.
    Declared(NodeRef<'a>),
    /// The document declares no schema.
    Any,
    /// The document only names it in the path template.
    Text,
}

/// Headers that parameters cannot set: the specification ignores the first three, the HTTP client sets the others.
const RESERVED_HEADERS: [&str; 7] =
    ["accept", "content-type", "authorization", "host", "content-length", "transfer-encoding", "connection"];

/// Maximum number of parameters per list. Thousands of operations may share the list of one path item. The first ones
/// of a longer list are kept, and the fault is reported.
const MAX_PARAMETERS: usize = 1_000;

/// Returns the parameters in the order path, query, header, cookie. Invalid ones are reported and left out.
pub(super) fn read_parameters<'a>(
    context: &DocumentContext<'a>,
    operation_ref: &OperationRef<'a>,
    faults: &mut Vec<String>,
) -> Vec<DeclaredParameter<'a>> {
    // First occurrence decides the order, the last one the content.
    let mut parameters: Vec<DeclaredParameter<'a>> = Vec::new();
    // Location and name identify a parameter.
    let mut positions: HashMap<(ParameterLocation, String), usize> = HashMap::new();
    for parameter in resolve_parameters(context, operation_ref, faults) {
        let Some(parameter) = read_parameter(context, parameter, faults) else { continue };
        // Parameters of the operation come after those of the path item and override them.
        match positions.get(&(parameter.location, parameter.name.clone())) {
            Some(&position) => parameters[position] = parameter,
            None => {
                positions.insert((parameter.location, parameter.name.clone()), parameters.len());
                parameters.push(parameter);
            }
        }
    }
    // Drop declared path parameters that the path does not use, and add those that it uses undeclared.
    // Templates in a query that is part of the path may belong to query parameters.
    let path = normalize_path(context, operation_ref.path);
    let path = path.split('#').next().unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut templates = path_template_names(path);
    let is_query_parameter = |name: &str| positions.contains_key(&(ParameterLocation::Query, name.to_owned()));
    let query_templates = path_template_names(query).into_iter().filter(|name| !is_query_parameter(name));
    for name in query_templates {
        if !templates.contains(&name) {
            templates.push(name);
        }
    }
    parameters.retain(|parameter| {
        parameter.location != ParameterLocation::Path || templates.contains(&parameter.name.as_str())
    });
    for name in templates {
        if !positions.contains_key(&(ParameterLocation::Path, name.to_owned())) {
            parameters.push(DeclaredParameter {
                name: name.to_owned(),
                location: ParameterLocation::Path,
                required: true,
                serialization: default_serialization(ParameterLocation::Path),
                schema: ParameterSchema::Text,
                description: None,
            });
        }
    }
    // Stable within a location.
    parameters.sort_by_key(|parameter| parameter.location);
    parameters
}

/// Returns all parameters with references resolved, including bodies and form fields of Swagger 2.0.
pub(super) fn resolve_parameters<'a>(
    context: &DocumentContext<'a>,
    operation_ref: &OperationRef<'a>,
    faults: &mut Vec<String>,
) -> Vec<NodeRef<'a>> {
    let mut resolved = Vec::new();
    // The path item first, so that the operation can override its parameters.
    for container in [operation_ref.path_item, operation_ref.operation] {
        let declared = container.value.get("parameters");
        if declared.is_some_and(|declared| !declared.is_array()) {
            faults.push("`parameters` is not a list; the tool is served without them".into());
        }
        let declared = declared.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if declared.len() > MAX_PARAMETERS {
            faults
                .push(format!("there are more than {MAX_PARAMETERS} parameters; the tool is served without the rest"));
        }
        for (index, value) in declared.iter().take(MAX_PARAMETERS).enumerate() {
            match context.documents.resolve(NodeRef { value, ..container }) {
                Ok(node) => resolved.push(node),
                Err(reason) => faults.push(format!("parameter {index}: {reason}; the tool is served without it")),
            }
        }
    }
    resolved
}

/// Reads one parameter. Returns `None` for a credential, a reserved header, a body or an invalid one.
fn read_parameter<'a>(
    context: &DocumentContext<'a>,
    node: NodeRef<'a>,
    faults: &mut Vec<String>,
) -> Option<DeclaredParameter<'a>> {
    let text = |key: &str| node.value.get(key).and_then(Value::as_str);
    let (Some(name), Some(location)) = (text("name"), text("in")) else {
        faults.push("a parameter without `name` or `in`; the tool is served without it".into());
        return None;
    };
    // Credentials are configured for the source and never passed by agents.
    if context.security.is_credential(location, name) || is_authentication_token(context, name, text("description")) {
        return None;
    }
    let flag = |key: &str| node.value.get(key).and_then(Value::as_bool).unwrap_or(false);
    // Read by `body`.
    if matches!(location, "body" | "formData") && context.version == SpecVersion::Swagger2 {
        return None;
    }
    let Some(location) = ParameterLocation::parse(location) else {
        let name = sanitize_truncated(name, 60);
        let other = sanitize_truncated(location, 40);
        faults.push(format!(
            "parameter `{name}` is in `{other}`, which is not a valid location; the tool is served without it"
        ));
        return None;
    };
    // Documents still declare these headers; they are set elsewhere.
    let is_reserved = || RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str());
    if location == ParameterLocation::Header && is_reserved() {
        return None;
    }
    // `content` instead of `schema`: the value is a document of that media type. Only one entry is allowed.
    let content = node.value.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let (serialization, schema) = match (content, context.version) {
        (Some((media_type, value)), SpecVersion::OpenApi3) => {
            (Serialization::Content { media_type: media_type.clone() }, value.get("schema"))
        }
        (_, SpecVersion::OpenApi3) => {
            // Some documents put the schema beside `name`, as in Swagger 2.0.
            let is_typed = ["type", "enum", "items"].iter().any(|key| node.value.get(*key).is_some());
            (read_style(node.value, location), node.value.get("schema").or(Some(node.value).filter(|_| is_typed)))
        }
        (_, SpecVersion::Swagger2) => {
            (collection_format_serialization(text("collectionFormat"), location), Some(node.value))
        }
    };
    Some(DeclaredParameter {
        name: name.to_owned(),
        location,
        // Path parameters are always required, whatever the document declares.
        required: location == ParameterLocation::Path || flag("required"),
        serialization,
        schema: schema.map_or(ParameterSchema::Any, |value| ParameterSchema::Declared(NodeRef { value, ..node })),
        description: text("description"),
    })
}

/// Returns whether a parameter is the access token. Some documents with security schemes list it as a parameter too
/// (Slack's does); credentials are configured, not passed by agents.
fn is_authentication_token(context: &DocumentContext<'_>, name: &str, description: Option<&str>) -> bool {
    // Beginning of Slack's description of the parameter.
    const BEGINNING: &str = "authentication token";
    let beginning = description.and_then(|text| text.get(..BEGINNING.len()));
    let has_description = beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(BEGINNING));
    has_description && matches!(name, "token" | "access_token") && context.security.has_schemes()
}

/// Returns the serialisation of a location if the document declares none.
fn default_serialization(location: ParameterLocation) -> Serialization {
    let (style, explode) = match location {
        ParameterLocation::Path | ParameterLocation::Header => (ParameterStyle::Simple, false),
        ParameterLocation::Query | ParameterLocation::Cookie | ParameterLocation::Querystring => {
            (ParameterStyle::Form, true)
        }
    };
    Serialization::Style { style, explode, allow_reserved: false }
}

/// Reads `style`, `explode` and `allowReserved` of a parameter or a form field. Ignores a style that the location does
/// not allow.
pub(super) fn read_style(value: &Value, location: ParameterLocation) -> Serialization {
    let flag = |key: &str| value.get(key).and_then(Value::as_bool);
    // Unknown styles count as undeclared.
    let declared = value.get("style").filter(|style| style.is_string());
    let declared = declared.and_then(|style| ParameterStyle::deserialize(style).ok());
    // Not a style of OpenAPI 3.
    let declared = declared.filter(|style| *style != ParameterStyle::TabDelimited);
    // Table "Style Values" of the specification.
    let is_allowed = |style: ParameterStyle| match location {
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
    // The style decides the default of `explode`, so it is determined first.
    let default = default_serialization(location);
    let Serialization::Style { style: default_style, .. } = default else { return default };
    let style = declared.filter(|style| is_allowed(*style)).unwrap_or(default_style);
    // The default of `explode` depends on the style.
    let explode = flag("explode")
        .unwrap_or(matches!(style, ParameterStyle::Form | ParameterStyle::Cookie | ParameterStyle::DeepObject));
    Serialization::Style { style, explode, allow_reserved: flag("allowReserved").unwrap_or(false) }
}

/// Returns the serialisation of a list in Swagger 2.0.
pub(super) fn collection_format_serialization(format: Option<&str>, location: ParameterLocation) -> Serialization {
    let (style, explode) = match (format, location) {
        // Repeats the parameter.
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

/// Reduces templates to parameter names, for documents that use `{+path}` or `{path*}` of RFC 6570. Removes API keys
/// from a query that is part of the path: credentials are configured, not passed by agents.
pub(super) fn normalize_path(context: &DocumentContext<'_>, path: &str) -> String {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let normalized = normalize_templates(path);
    let Some(query) = query else { return normalized };
    let is_credential =
        |pair: &&str| context.security.is_credential("query", pair.split('=').next().unwrap_or_default());
    let pairs: Vec<String> = query.split('&').filter(|pair| !is_credential(pair)).map(strip_modifiers).collect();
    if pairs.is_empty() { normalized } else { format!("{normalized}?{}", pairs.join("&")) }
}

/// Reduces the templates of a path to names, and adds the leading slash.
fn normalize_templates(path: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{}", strip_modifiers(path))
}

/// Reduces the templates of a text to names.
fn strip_modifiers(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, name, after)) = rest
        .split_once('{')
        .and_then(|(before, after)| after.split_once('}').map(|(name, after)| (before, name, after)))
    {
        normalized.push_str(before);
        normalized.push_str(&format!("{{{}}}", template_name(name)));
        rest = after;
    }
    normalized.push_str(rest);
    normalized
}

/// Strips the modifiers of RFC 6570 from a template.
fn template_name(name: &str) -> &str {
    name.trim_start_matches('+').trim_end_matches('*')
}

/// Returns the distinct parameter names in a path. An unclosed brace ends the search: it is literal text.
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
