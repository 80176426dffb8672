//! Finds the tool that a workflow step refers to: the source of the registry for a source description, and the
//! operation in it.
//!
//! A source description such as `{ name: shop, url: ./shop.yaml, type: openapi }` names a document, not a source. The
//! source is found by the id `shop`, or else by its document; it must be declared, because the workflow document must
//! not bring servers and credentials of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use toolcrib_connector::document::DocumentLocation;
use toolcrib_connector::secret::{ReferenceValues, file_paths_in};
use toolcrib_core::execution::Operation;
use toolcrib_core::source::{OpenApiSource, SourceKind, TextRole};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, Source, SourceId, ToolName};
use url::Url;

use super::document::file_url;
use super::run::WorkflowRun;
use super::step::document_error;
use crate::{LinkedDocument, OperationCall, OperationReference, SourceDescription, SourceDescriptionKind};

/// Tool of a step. Its source is an OpenAPI source, so a workflow never calls a workflow through this path.
#[derive(Debug)]
pub(super) struct TargetTool {
    /// Name in the catalogue, by which the step calls it.
    pub(super) name: ToolName,
    /// From the tool's execution specification.
    pub(super) operation: Operation,
    /// Schema as listed, for converting argument types.
    pub(super) input_schema: Arc<RawValue>,
    /// Call timeout of the API's source; bounds the step.
    pub(super) call_timeout: Duration,
}

impl WorkflowRun<'_> {
    /// Finds the tool of a step. Without an explicit source description, exactly one described API must have the
    /// operation.
    pub(super) async fn find_target(&self, call: &OperationCall<'_>) -> Result<TargetTool> {
        // The step names its API.
        if let Some(description) = call.source {
            let source = self.find_source(call.document, description).await?;
            let found = self.find_operation(&source, call.operation).await?;
            return found.ok_or_else(|| unknown_operation_error(&source.id, call.operation));
        }
        // Otherwise look into all described APIs, and insist on a unique match.
        let descriptions = self.linked_document(call.document)?.document.source_descriptions.iter();
        // A description without a source is remembered: it explains why an operation was not found.
        let mut found = Vec::new();
        let mut missing = None;
        for description in descriptions.filter(|description| description.kind == SourceDescriptionKind::OpenApi) {
            let source = match self.find_source(call.document, description).await {
                Ok(source) => source,
                Err(error) => {
                    missing = Some(error);
                    continue;
                }
            };
            if let Some(target) = self.find_operation(&source, call.operation).await? {
                found.push((description.name.as_str(), target));
            }
        }
        let operation_name = display_operation(call.operation);
        match (found.pop(), found.pop()) {
            (Some((_, target)), None) => Ok(target),
            (Some((last, _)), Some((first, _))) => Err(document_error(format!(
                "both `{first}` and `{last}` have an operation `{operation_name}`; \
                 write `$sourceDescriptions.{last}.{operation_name}`"
            ))),
            // A described API that is not configured may have the operation, so that error says more.
            (None, _) => Err(missing.unwrap_or_else(|| {
                unavailable_error(format!(
                    "none of the APIs that the document names has an operation `{operation_name}`"
                ))
            })),
        }
    }

    /// The document at a position of the linked ones.
    fn linked_document(&self, position: usize) -> Result<&LinkedDocument> {
        let missing = || Error::new(Code::Internal, "a step belongs to no document");
        self.loaded.documents.documents().get(position).ok_or_else(missing)
    }

    /// Finds the source of a description by its name, or else by its document. `position` is that of the document with
    /// the description.
    async fn find_source(&self, position: usize, description: &SourceDescription) -> Result<Arc<Source>> {
        // By name: a description `shop` means the source `shop`, wherever its document is.
        let sources = self.tools.sources();
        let named = SourceId::from_name(&description.name).ok().and_then(|id| sources.get(&id));
        if let Some(source) = named.filter(|source| as_openapi(source).is_some()) {
            return Ok(source.clone());
        }
        // By document: the description's URL is relative to its Arazzo file.
        let described_url = self.linked_document(position)?.url.join(&description.url).ok();
        let documents = sources.values().filter_map(|source| as_openapi(source)).map(|openapi| &openapi.document);
        let paths = documents.flat_map(|document| file_paths_in(document)).collect();
        let references = self.connector.references.files().read_all(&paths).await;
        let has_document = |source: &&Arc<Source>| {
            let url = as_openapi(source).and_then(|openapi| document_url(&openapi.document, &references));
            url.is_some() && url == described_url
        };
        let mut matching = sources.values().filter(has_document);
        match (matching.next(), matching.next()) {
            (Some(source), None) => Ok(source.clone()),
            (Some(first), Some(second)) => {
                let name = sanitize_truncated(&description.name, 80);
                let first = &first.id;
                let second = &second.id;
                let message =
                    format!("`{first}` and `{second}` both have the document of `{name}`; call one of them `{name}`");
                Err(unavailable_error(message))
            }
            (None, _) => Err(unknown_source_error(description, sources.values())),
        }
    }

    /// Finds the tool of an operation. Discovers the source first if it never was.
    async fn find_operation(&self, source: &Source, reference: &OperationReference) -> Result<Option<TargetTool>> {
        let id = &source.id;
        let catalog_source = &self.tools.source_tools(id, self.call.span).await?;
        let Some((position, operation)) = self.connector.operations.find(catalog_source, reference).await? else {
            return Ok(None);
        };
        // The schema is that of the list just searched, so name, operation and schema belong together.
        let entry = &catalog_source.segment.entries()[position];
        Ok(Some(TargetTool {
            name: entry.name.clone(),
            operation,
            input_schema: catalog_source.segment.call_spec(entry)?.input_schema.clone(),
            call_timeout: source.settings.call_timeout(),
        }))
    }
}

/// Configuration of an OpenAPI source; `None` for other kinds.
fn as_openapi(source: &Source) -> Option<&OpenApiSource> {
    match &source.kind {
        SourceKind::OpenApi(openapi) => Some(openapi),
        SourceKind::Stdio(_)
        | SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => None,
    }
}

/// URL of a configured document location, with references resolved.
fn document_url(text: &str, references: &ReferenceValues) -> Option<Url> {
    match DocumentLocation::parse(&references.resolve_text(TextRole::Path, text).ok()?).ok()? {
        DocumentLocation::File(path) => file_url(&path),
        DocumentLocation::Remote(url) => Some(url),
    }
}

/// Error for a source description that matches no configured source, with the command that adds one.
fn unknown_source_error<'a>(description: &SourceDescription, sources: impl Iterator<Item = &'a Arc<Source>>) -> Error {
    let name = sanitize_truncated(&description.name, 80);
    let url = sanitize_truncated(&description.url, 200);
    let known: Vec<String> = sources
        .filter(|source| as_openapi(source).is_some())
        .take(10)
        .map(|source| format!("`{}`", source.id))
        .collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
    let id = SourceId::from_name(&description.name).map_or_else(|_| "NAME".to_owned(), |id| id.to_string());
    unavailable_error(format!("no OpenAPI source is declared as `{name}` ({known})")).with_next_step(
        &format!("toolcrib add {id} --openapi {url}"),
        "POST /api/sources",
        "declares it",
    )
}

/// Error for an operation that the source does not have.
fn unknown_operation_error(source: &SourceId, reference: &OperationReference) -> Error {
    let operation_name = display_operation(reference);
    let route = format!("GET /api/tools?source={source}");
    unavailable_error(format!("the source `{source}` has no operation `{operation_name}`")).with_next_step(
        &format!("toolcrib tools --source {source}"),
        &route,
        "lists them",
    )
}

/// Operation id, or method and path, for messages.
fn display_operation(operation: &OperationReference) -> String {
    match operation {
        OperationReference::Id(id) => sanitize_truncated(id, 80),
        OperationReference::Path { method: Some(method), path } => sanitize_truncated(&format!("{method} {path}"), 120),
        OperationReference::Path { method: None, path } => sanitize_truncated(path, 120),
    }
}

/// Configuration errors of a workflow are not retryable.
fn unavailable_error(message: String) -> Error {
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}
