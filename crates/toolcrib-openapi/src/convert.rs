//! Converts a document into tools, one per operation. Operations that cannot be converted, and faults of their parts,
//! are reported with a JSON pointer and a reason.
//!
//! `skipped` holds the skipped operations and also the faults in parts of converted ones, such as a parameter that was
//! left out. The pointer is that of the operation or path item; a fault in a shared definition is reported once, at the
//! definition. Limits apply to the document as a whole (work, bytes, operations), since operations share definitions,
//! and one definition can be written thousands of times.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::json::escape_pointer_token;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::policy::glob_matches;
use toolcrib_core::source::{OpenApiSource, SourceId};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::reference_text;

use super::document_set::{DocumentSet, NodeRef};
use super::schema::{SchemaDialect, SchemaTranslator};
use super::{description, operation, security, servers, tool, tool_names};

/// The source that a document belongs to, and its declaration, which selects operations and may override servers.
#[derive(Debug, Clone, Copy)]
pub struct ConversionOptions<'a> {
    /// The source, whose id prefixes the names of its tools.
    pub source: &'a SourceId,
    /// The declaration of the source.
    pub openapi: &'a OpenApiSource,
}

/// Result of [`convert`].
#[derive(Debug, Default)]
pub struct ConvertedDocument {
    /// Tools in the form in which a source lists them.
    pub tools: Vec<Box<RawValue>>,
    /// Skipped operations, and faults of parts, by JSON pointer.
    pub skipped: Vec<SkippedTool>,
    /// Title, summary and description of the document.
    pub summary: Option<String>,
    /// Origins of the servers that the document lists; empty if the declaration has a `base_url`.
    pub server_origins: BTreeSet<String>,
}

/// Context that all operations of a document share.
#[derive(Debug)]
pub(super) struct DocumentContext<'a> {
    pub(super) documents: &'a DocumentSet,
    /// Root of the first document.
    pub(super) root: NodeRef<'a>,
    pub(super) version: SpecVersion,
    pub(super) security: security::SecuritySchemes<'a>,
    pub(super) servers: servers::Servers<'a>,
}

/// Major version of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecVersion {
    Swagger2,
    OpenApi3,
}

/// An operation with its location in the document.
#[derive(Debug, Clone)]
pub(super) struct OperationRef<'a> {
    /// In upper case.
    pub(super) method: String,
    /// Path template, such as `/pets/{id}`.
    pub(super) path: &'a str,
    /// JSON pointer, for reports.
    pub(super) pointer: String,
    /// The path item whose parameters and servers it inherits.
    pub(super) path_item: NodeRef<'a>,
    /// The Operation Object.
    pub(super) operation: NodeRef<'a>,
}

/// Methods that become tools. `query` is new in OpenAPI 3.2.
const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "query"];
/// Methods that become tools only if the declaration of the source lists them.
const OPT_IN_METHODS: [&str; 3] = ["head", "options", "trace"];
/// Maximum number of faults to report.
const MAX_REPORTED_FAULTS: usize = 500;
/// Maximum number of operations of a document. Operations beyond it are skipped.
const MAX_OPERATIONS: usize = 20_000;
/// Maximum number of faults to collect before they are sorted and deduplicated. Operations that share a path item have
/// the same ones.
const MAX_COLLECTED_FAULTS: usize = 20_000;
/// Maximum length of a path. Every operation keeps a copy, and `additionalOperations` may define thousands for one
/// path.
const MAX_PATH_LEN: usize = 2_000;
/// Maximum length of a method name.
const MAX_METHOD_LEN: usize = 40;
/// Maximum size of all tools together. A definition that operations share is written once for each of them, so a small
/// document can expand a lot.
const MAX_TOTAL_TOOL_BYTES: usize = 128 * 1024 * 1024;

/// Converts all selected operations of a document into tools. Fails with `CONFIG_INVALID` if the root is no OpenAPI
/// document; everything else is reported in [`ConvertedDocument::skipped`].
pub fn convert(documents: &DocumentSet, options: ConversionOptions<'_>) -> Result<ConvertedDocument> {
    let root = documents.root().ok_or_else(|| Error::new(Code::Internal, "the document set has no root document"))?;
    let (version, dialect) = detect_version(root.value)?;
    let context = DocumentContext {
        documents,
        root,
        version,
        security: security::SecuritySchemes::from_document(root, documents, version),
        servers: servers::Servers::new(documents.root_url(), root, version, options.openapi),
    };
    let mut converted = ConvertedDocument { summary: document_summary(root.value), ..ConvertedDocument::default() };
    // With `base_url`, the servers of the document are not used.
    if options.openapi.base_url.is_none() {
        let warning = context.servers.warning(root.value);
        converted.skipped.extend(warning.map(|reason| SkippedTool { name: "#/servers".into(), reason }));
        converted.server_origins.extend(context.servers.default_origin());
        converted.server_origins.extend(context.servers.origins(root.value));
    }
    let operations = find_operations(&context, options.openapi, &mut converted.skipped);
    let mut translator = SchemaTranslator::new(documents, dialect, operations.len());
    // Names depend on all operations of the document, so that `include` and `exclude` do not change them.
    let names = tool_names::assign_names(&operations, options.source);
    // Size of all tools so far.
    let mut bytes = 0;
    let selected = operations.iter().zip(names);
    let mut selected = selected.filter(|(operation_ref, name)| is_selected(operation_ref, name, options.openapi));
    while let Some((operation_ref, name)) = selected.next() {
        // Stop at the first limit: the remaining operations would exceed it too.
        let limit = if bytes > MAX_TOTAL_TOOL_BYTES {
            Some("the tools of the document exceed 128 MiB")
        } else if translator.is_exhausted() {
            Some("the document exceeds the work limit for conversion")
        } else {
            None
        };
        if let Some(limit) = limit {
            let missing = 1 + selected.count();
            let reason = format!("{limit}; {missing} operations are skipped, of which this is the first");
            converted.skipped.push(SkippedTool { name: operation_ref.pointer.clone(), reason });
            break;
        }
        let mut faults: Vec<String> = tool_names::duplicate_id_warning(operation_ref, &name).into_iter().collect();
        let converted_operation = operation::convert_operation(&context, &mut translator, operation_ref, &mut faults);
        // The first matching glob of the declaration counts.
        let poll = options.openapi.poll.iter().find(|(glob, _)| glob_matches(glob, &name)).map(|(_, poll)| poll);
        match tool::build_tool(&name, operation_ref, converted_operation, poll) {
            Ok(tool) => {
                bytes += tool.get().len();
                if options.openapi.base_url.is_none() {
                    converted.server_origins.extend(context.servers.origins(operation_ref.operation.value));
                    converted.server_origins.extend(context.servers.origins(operation_ref.path_item.value));
                }
                converted.tools.push(tool);
            }
            Err(reason) => faults.push(reason),
        }
        let faults = faults.into_iter().map(|reason| SkippedTool { name: operation_ref.pointer.clone(), reason });
        let remaining = MAX_COLLECTED_FAULTS.saturating_sub(converted.skipped.len());
        converted.skipped.extend(faults.take(remaining));
    }
    // Faults of definitions that several operations share are reported once, at the definition.
    let shared_faults = std::mem::take(&mut translator.faults);
    converted.skipped.extend(shared_faults.into_iter().map(|(name, reason)| SkippedTool { name, reason }));
    limit_faults(&mut converted.skipped);
    Ok(converted)
}

/// Detects the version by `openapi` or `swagger`. A document with `paths` alone is read as OpenAPI 3.0.
fn detect_version(root: &Value) -> Result<(SpecVersion, SchemaDialect)> {
    let invalid = |message: String| Err(Error::new(Code::ConfigInvalid, message));
    let text = |key: &str| match root.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        // YAML without quotes: `openapi: 3.0` is a number.
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    match (text("openapi"), text("swagger")) {
        (Some(version), _) if version.starts_with("3.0") || version == "3" => {
            Ok((SpecVersion::OpenApi3, SchemaDialect::OpenApi30))
        }
        (Some(version), _) if version.starts_with("3.") => Ok((SpecVersion::OpenApi3, SchemaDialect::JsonSchema)),
        (_, Some(version)) if version.starts_with('2') => Ok((SpecVersion::Swagger2, SchemaDialect::OpenApi30)),
        (Some(version), _) | (None, Some(version)) => invalid(format!(
            "the document is of OpenAPI `{}`; Swagger 2.0 and OpenAPI 3.0 to 3.2 are read",
            sanitize_truncated(&version, 20)
        )),
        // A likely mistake: both kinds of source are declared with a document.
        (None, None) if root.get("arazzo").is_some() => {
            invalid("this is an Arazzo document; declare it with `workflow` instead of `openapi`".into())
        }
        (None, None) if root.get("paths").is_some() => Ok((SpecVersion::OpenApi3, SchemaDialect::OpenApi30)),
        (None, None) => invalid("this is not an OpenAPI document: it has neither `openapi` nor `swagger`".into()),
    }
}

/// Returns every operation that may become a tool, in document order.
fn find_operations<'a>(
    context: &DocumentContext<'a>,
    openapi: &OpenApiSource,
    skipped: &mut Vec<SkippedTool>,
) -> Vec<OperationRef<'a>> {
    let mut operations = Vec::new();
    // Counts invalid operations too: thousands of paths may share one path item through `$ref`.
    let mut visited = 0;
    // Operations beyond the limit are only counted.
    let mut missing = 0;
    let paths =
        context.root.value.get("paths").map(|value| context.documents.resolve(NodeRef { value, ..context.root }));
    let paths = match paths {
        Some(Ok(paths)) => paths,
        Some(Err(reason)) => {
            skipped.push(SkippedTool { name: "#/paths".into(), reason });
            return operations;
        }
        None => return operations,
    };
    // Opt-in methods that the declaration enables.
    let opt_in =
        OPT_IN_METHODS.into_iter().filter(|method| openapi.methods.iter().any(|m| m.eq_ignore_ascii_case(method)));
    let methods: Vec<&str> = METHODS.into_iter().chain(opt_in).collect();
    let path_items = paths.value.as_object().into_iter().flatten();
    for (path, value) in path_items.filter(|(path, _)| !path.starts_with("x-") && *path != "$ref") {
        let pointer = format!("#/paths/{}", escape_pointer_token(path));
        if path.len() > MAX_PATH_LEN {
            let reason = format!("the path is longer than {MAX_PATH_LEN} bytes");
            skipped.push(SkippedTool { name: pointer, reason });
            continue;
        }
        let node = NodeRef { value, ..paths };
        let path_item = match context.documents.resolve(node) {
            Ok(path_item) if path_item.value.is_object() => path_item,
            Ok(_) => {
                skipped.push(SkippedTool { name: pointer, reason: "the path item is not an object".into() });
                continue;
            }
            Err(reason) => {
                skipped.push(SkippedTool { name: pointer, reason });
                continue;
            }
        };
        // Keywords beside the `$ref` of a path item take precedence over its target.
        let siblings = reference_text(value).is_some().then_some(node);
        // Both may have operations and parameters; each lookup takes the first that has the key.
        let candidates: Vec<NodeRef<'a>> = siblings.into_iter().chain([path_item]).collect();
        let with_parameters = |path_item: NodeRef<'a>| {
            candidates
                .iter()
                .copied()
                .find(|candidate| candidate.value.get("parameters").is_some())
                .unwrap_or(path_item)
        };
        let find = |method: &&str| candidates.iter().find_map(|candidate| find_method(*candidate, method));
        let standard: Vec<(&'a str, NodeRef<'a>)> = methods.iter().filter_map(find).collect();
        // OpenAPI 3.2 allows any method here.
        let additional = path_item.value.get("additionalOperations").and_then(Value::as_object);
        let declared = standard.len() + additional.map_or(0, Map::len);
        if visited + declared > MAX_OPERATIONS {
            missing += declared - MAX_OPERATIONS.saturating_sub(visited);
        }
        let additional =
            additional.into_iter().flatten().map(|(method, value)| (method.as_str(), NodeRef { value, ..path_item }));
        for (method, operation) in standard.into_iter().chain(additional).take(MAX_OPERATIONS - visited) {
            let value = operation.value;
            visited += 1;
            let truncated = &method[..method.floor_char_boundary(MAX_METHOD_LEN)];
            let pointer = format!("{pointer}/{}", escape_pointer_token(truncated));
            let skip = |reason: &str| SkippedTool { name: pointer.clone(), reason: reason.into() };
            if !value.is_object() {
                skipped.push(skip("the operation is not an object"));
            } else if truncated != method || !method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                skipped.push(skip("not a valid HTTP method name"));
            } else {
                let method = method.to_ascii_uppercase();
                let path_item = with_parameters(path_item);
                operations.push(OperationRef { method, path, pointer, path_item, operation });
            }
        }
    }
    if missing > 0 {
        let count = visited + missing;
        let reason = format!(
            "the document has {count} operations, of which the first {MAX_OPERATIONS} are read; {missing} are missing"
        );
        skipped.push(SkippedTool { name: "#/paths".into(), reason });
    }
    operations
}

/// Returns the operation of a method. Some documents write methods in upper case.
fn find_method<'a>(path_item: NodeRef<'a>, method: &str) -> Option<(&'a str, NodeRef<'a>)> {
    let fields = path_item.value.as_object()?;
    let operations = fields.get_key_value(method).or_else(|| fields.get_key_value(&method.to_ascii_uppercase()));
    operations.map(|(key, value)| (key.as_str(), NodeRef { value, ..path_item }))
}

/// Returns whether the declaration selects an operation: by tool name, `operationId`, path, `METHOD /path` or tag.
fn is_selected(operation_ref: &OperationRef<'_>, name: &str, openapi: &OpenApiSource) -> bool {
    let request = format!("{} {}", operation_ref.method, operation_ref.path);
    let id = operation_ref.operation.value.get("operationId").and_then(Value::as_str).unwrap_or(name);
    let matches_any = |globs: &[String]| {
        globs.iter().any(|glob| [name, id, &request, operation_ref.path].iter().any(|text| glob_matches(glob, text)))
    };
    let tags = || operation::tags(operation_ref.operation.value);
    (openapi.include.is_empty() || matches_any(&openapi.include))
        && !matches_any(&openapi.exclude)
        && (openapi.include_tags.is_empty() || tags().iter().any(|tag| openapi.include_tags.contains(tag)))
}

/// Joins title, summary and description of the document.
fn document_summary(root: &Value) -> Option<String> {
    let info = root.get("info")?;
    let text = |key: &str| info.get(key).and_then(Value::as_str).map(description::strip_markup);
    let texts: Vec<String> = [text("title"), text("summary"), text("description")].into_iter().flatten().collect();
    Some(texts.join(". ")).filter(|text| !text.is_empty())
}

/// Sorts and deduplicates faults, and truncates the list.
fn limit_faults(skipped: &mut Vec<SkippedTool>) {
    for entry in skipped.iter_mut() {
        entry.name = sanitize_truncated(&entry.name, 300);
    }
    // Sorted, so that the report does not depend on the order of the document.
    skipped.sort();
    skipped.dedup();
    if skipped.len() > MAX_REPORTED_FAULTS {
        let additional = skipped.len() - MAX_REPORTED_FAULTS;
        skipped.truncate(MAX_REPORTED_FAULTS);
        let noun = if additional == 1 { "fault" } else { "faults" };
        let reason = format!("and {additional} more {noun} in this document");
        skipped.push(SkippedTool { name: "#/".into(), reason });
    }
}

/// Returns the members of the object under `key`; none if there is no object.
pub(super) fn object_members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

#[cfg(test)]
mod tests;
