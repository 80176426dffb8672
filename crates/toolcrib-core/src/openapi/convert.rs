//! A whole document: its operations one by one, each a tool or set aside with its pointer and its reason.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::document_set::{self, DocumentSet, NodeRef};
use super::schema::{SchemaDialect, SchemaTranslator};
use super::{description, operation, security, servers, tool, tool_names};
use crate::error::{Code, Error, Result};
use crate::manifest::SetAsideTool;
use crate::policy::glob_matches;
use crate::source::{OpenApiSource, SourceId};
use crate::text::sanitize_truncated;

/// Whose document it is, and what of it is wanted.
#[derive(Debug, Clone, Copy)]
pub struct ConversionOptions<'a> {
    pub source: &'a SourceId,
    pub openapi: &'a OpenApiSource,
}

#[derive(Debug, Default)]
pub struct ConvertedDocument {
    /// As a source offers them.
    pub tools: Vec<Box<RawValue>>,
    pub excluded: Vec<SetAsideTool>,
    /// What the document says about itself.
    pub summary: Option<String>,
    /// The origins of the servers that it lists, where it is the document that says where requests go.
    pub server_origins: BTreeSet<String>,
}

/// What every operation of a document has in common.
#[derive(Debug)]
pub(super) struct DocumentContext<'a> {
    pub(super) documents: &'a DocumentSet,
    pub(super) root: NodeRef<'a>,
    pub(super) version: SpecVersion,
    pub(super) security: security::SecuritySchemes<'a>,
    pub(super) servers: servers::Servers<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecVersion {
    Swagger2,
    OpenApi3,
}

/// Where in the document an operation stands, and what it inherits from there.
#[derive(Debug, Clone)]
pub(super) struct OperationRef<'a> {
    /// In capitals.
    pub(super) method: String,
    pub(super) path: &'a str,
    pub(super) pointer: String,
    pub(super) path_item: NodeRef<'a>,
    pub(super) operation: NodeRef<'a>,
}

const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "query"];
const OPT_IN_METHODS: [&str; 3] = ["head", "options", "trace"];
/// How many faults of parts are told, and how many operations a document may have.
const MAX_REPORTED_FAULTS: usize = 500;
const MAX_OPERATIONS: usize = 20_000;
/// How many faults are kept until they are sorted: operations that share a path item have the same ones.
const MAX_COLLECTED_FAULTS: usize = 20_000;
/// Each operation has its path, which those of `additionalOperations` share.
const MAX_PATH_LEN: usize = 2_000;
const MAX_METHOD_LEN: usize = 40;
/// Of all tools together: what operations share is written for each of them.
const MAX_TOTAL_TOOL_BYTES: usize = 128 * 1024 * 1024;

pub fn convert(library: &DocumentSet, conversion: ConversionOptions<'_>) -> Result<ConvertedDocument> {
    let root = library.root().ok_or_else(|| Error::new(Code::Internal, "a library without its document"))?;
    let (version, dialect) = detect_version(root.value)?;
    let shared = DocumentContext {
        documents: library,
        root,
        version,
        security: security::SecuritySchemes::from_document(root, library, version),
        servers: servers::Servers::new(library.root_url(), root, version, conversion.openapi),
    };
    let mut converted = ConvertedDocument { summary: document_summary(root.value), ..ConvertedDocument::default() };
    if conversion.openapi.base_url.is_none() {
        let told = shared.servers.warning(root.value);
        converted.excluded.extend(told.map(|reason| SetAsideTool { name: "#/servers".into(), reason }));
        converted.server_origins.extend(shared.servers.default_origin());
        converted.server_origins.extend(shared.servers.origins(root.value));
    }
    let found = find_operations(&shared, conversion.openapi, &mut converted.excluded);
    let mut schemas = SchemaTranslator::new(library, dialect, found.len());
    let names = tool_names::assign_names(&found, conversion.source);
    let mut bytes = 0;
    for (found, name) in found.iter().zip(names) {
        if !is_selected(found, &name, conversion.openapi) {
            continue;
        }
        let too_much = match bytes > MAX_TOTAL_TOOL_BYTES {
            true => Some("the tools of the document are larger than 128 MiB; its other operations are left out"),
            false if schemas.is_exhausted() => {
                Some("the document asks for more work than is done for one; its other operations are left out")
            }
            false => None,
        };
        if let Some(reason) = too_much {
            converted.excluded.push(SetAsideTool { name: found.pointer.clone(), reason: reason.into() });
            break;
        }
        let mut broken: Vec<String> = tool_names::duplicate_id_warning(found, &name).into_iter().collect();
        let read = operation::convert_operation(&shared, &mut schemas, found, &mut broken);
        let poll = conversion.openapi.poll.iter().find(|(glob, _)| glob_matches(glob, &name)).map(|(_, poll)| poll);
        match tool::build_tool(&name, found, read, poll) {
            Ok(tool) => {
                bytes += tool.get().len();
                if conversion.openapi.base_url.is_none() {
                    converted.server_origins.extend(shared.servers.origins(found.operation.value));
                    converted.server_origins.extend(shared.servers.origins(found.path_item.value));
                }
                converted.tools.push(tool);
            }
            Err(reason) => broken.push(reason),
        }
        let told = broken.into_iter().map(|reason| SetAsideTool { name: found.pointer.clone(), reason });
        let room = MAX_COLLECTED_FAULTS.saturating_sub(converted.excluded.len());
        converted.excluded.extend(told.take(room));
    }
    let shared_faults = std::mem::take(&mut schemas.faults);
    converted.excluded.extend(shared_faults.into_iter().map(|(name, reason)| SetAsideTool { name, reason }));
    limit_faults(&mut converted.excluded);
    Ok(converted)
}

fn detect_version(root: &Value) -> Result<(SpecVersion, SchemaDialect)> {
    let wrong = |message: String| Err(Error::new(Code::ConfigInvalid, message));
    let text = |key: &str| match root.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    match (text("openapi"), text("swagger")) {
        (Some(version), _) if version.starts_with("3.0") || version == "3" => {
            Ok((SpecVersion::OpenApi3, SchemaDialect::OpenApi30))
        }
        (Some(version), _) if version.starts_with("3.") => Ok((SpecVersion::OpenApi3, SchemaDialect::JsonSchema)),
        (_, Some(version)) if version.starts_with('2') => Ok((SpecVersion::Swagger2, SchemaDialect::OpenApi30)),
        (Some(version), _) | (None, Some(version)) => wrong(format!(
            "the document is of OpenAPI `{}`; Swagger 2.0 and OpenAPI 3.0 to 3.2 are read",
            sanitize_truncated(&version, 20)
        )),
        (None, None) if root.get("arazzo").is_some() => {
            wrong("this is an Arazzo document; declare it with `workflow` instead of `openapi`".into())
        }
        (None, None) if root.get("paths").is_some() => Ok((SpecVersion::OpenApi3, SchemaDialect::OpenApi30)),
        (None, None) => wrong("this is not an OpenAPI document: it has neither `openapi` nor `swagger`".into()),
    }
}

/// Every operation that may become a tool, in the order of the document.
fn find_operations<'a>(
    shared: &DocumentContext<'a>,
    openapi: &OpenApiSource,
    set_aside: &mut Vec<SetAsideTool>,
) -> Vec<OperationRef<'a>> {
    // Those that are none count as well: many paths may share the item that has them.
    let mut found = Vec::new();
    let mut looked_at = 0;
    let paths = shared.root.value.get("paths").map(|value| shared.documents.resolve(NodeRef { value, ..shared.root }));
    let paths = match paths {
        Some(Ok(paths)) => paths,
        Some(Err(reason)) => {
            set_aside.push(SetAsideTool { name: "#/paths".into(), reason });
            return found;
        }
        None => return found,
    };
    let extra =
        OPT_IN_METHODS.into_iter().filter(|method| openapi.methods.iter().any(|m| m.eq_ignore_ascii_case(method)));
    let methods: Vec<&str> = METHODS.into_iter().chain(extra).collect();
    let listed = paths.value.as_object().into_iter().flatten();
    for (path, value) in listed.filter(|(path, _)| !path.starts_with("x-") && *path != "$ref") {
        let pointer = format!("#/paths/{}", escape_pointer_token(path));
        if path.len() > MAX_PATH_LEN {
            let reason = format!("the path is longer than {MAX_PATH_LEN} bytes");
            set_aside.push(SetAsideTool { name: pointer, reason });
            continue;
        }
        let own = NodeRef { value, ..paths };
        let item = match shared.documents.resolve(own) {
            Ok(item) if item.value.is_object() => item,
            Ok(_) => {
                set_aside.push(SetAsideTool { name: pointer, reason: "the path item is not an object".into() });
                continue;
            }
            Err(reason) => {
                set_aside.push(SetAsideTool { name: pointer, reason });
                continue;
            }
        };
        // What stands beside a reference counts as well, and more.
        let beside = document_set::reference_target(value).is_some().then_some(own);
        let holders: Vec<NodeRef<'a>> = beside.into_iter().chain([item]).collect();
        let item_of = |holder: NodeRef<'a>| {
            holders.iter().copied().find(|at| at.value.get("parameters").is_some()).unwrap_or(holder)
        };
        let listed = methods.iter().filter_map(|method| holders.iter().find_map(|at| find_method(*at, method)));
        let more = item.value.get("additionalOperations").and_then(Value::as_object);
        let more = more.into_iter().flatten().map(|(method, value)| (method.as_str(), NodeRef { value, ..item }));
        for (method, operation) in listed.chain(more) {
            let value = operation.value;
            looked_at += 1;
            let shown = &method[..method.floor_char_boundary(MAX_METHOD_LEN)];
            let pointer = format!("{pointer}/{}", escape_pointer_token(shown));
            let refuse = |reason: &str| SetAsideTool { name: pointer.clone(), reason: reason.into() };
            if looked_at > MAX_OPERATIONS {
                set_aside.push(refuse("the document has too many operations"));
                return found;
            } else if !value.is_object() {
                set_aside.push(refuse("the operation is not an object"));
            } else if shown != method || !method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                set_aside.push(refuse("this is no name of an HTTP method"));
            } else {
                let method = method.to_ascii_uppercase();
                let item = item_of(item);
                found.push(OperationRef { method, path, pointer, path_item: item, operation });
            }
        }
    }
    found
}

/// The operation of a method, which some write in capitals.
fn find_method<'a>(holder: NodeRef<'a>, method: &str) -> Option<(&'a str, NodeRef<'a>)> {
    let fields = holder.value.as_object()?;
    let found = fields.get_key_value(method).or_else(|| fields.get_key_value(&method.to_ascii_uppercase()));
    found.map(|(key, value)| (key.as_str(), NodeRef { value, ..holder }))
}

/// What the declaration of the source picks: by the name of the tool, by its operation, or by `METHOD /path`.
fn is_selected(found: &OperationRef<'_>, name: &str, openapi: &OpenApiSource) -> bool {
    let line = format!("{} {}", found.method, found.path);
    let id = found.operation.value.get("operationId").and_then(Value::as_str).unwrap_or(name);
    let among = |globs: &[String]| {
        globs.iter().any(|glob| [name, id, &line, found.path].iter().any(|text| glob_matches(glob, text)))
    };
    let tags = || operation::tags(found.operation.value);
    (openapi.include.is_empty() || among(&openapi.include))
        && !among(&openapi.exclude)
        && (openapi.include_tags.is_empty() || tags().iter().any(|tag| openapi.include_tags.contains(tag)))
}

fn document_summary(root: &Value) -> Option<String> {
    let info = root.get("info")?;
    let text = |key: &str| info.get(key).and_then(Value::as_str).map(description::strip_markup);
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}

/// Each fault once, and not too many of them.
fn limit_faults(set_aside: &mut Vec<SetAsideTool>) {
    for refused in set_aside.iter_mut() {
        refused.name = sanitize_truncated(&refused.name, 300);
    }
    set_aside.sort();
    set_aside.dedup();
    if set_aside.len() > MAX_REPORTED_FAULTS {
        let more = set_aside.len() - MAX_REPORTED_FAULTS;
        set_aside.truncate(MAX_REPORTED_FAULTS);
        set_aside.push(SetAsideTool { name: "#/".into(), reason: format!("and {more} more faults of this document") });
    }
}

/// A key as JSON pointers write it.
pub(super) fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A member that is an object; an empty one where there is none.
pub(super) fn object_members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests;
