//! Which tool a step means: the source of this catalogue that a source description stands for, and its operation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use toolcrib_core::arazzo::{OperationCall, OperationReference, SourceDescription, SourceDescriptionKind};
use toolcrib_core::execution::Operation;
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, Source, SourceId, ToolName};
use url::Url;

use super::document::file_url;
use super::run::WorkflowRun;
use crate::connector::openapi::DocumentLocation;
use crate::refresh::RequiredFreshness;
use crate::secret::resolve;

/// The tool behind a step. Its source is an API, so that no workflow ever calls a workflow this way.
#[derive(Debug)]
pub(super) struct TargetTool {
    pub(super) name: ToolName,
    pub(super) source: SourceId,
    pub(super) operation: Operation,
    /// As it is listed.
    pub(super) input_schema: Arc<RawValue>,
    pub(super) call_timeout: Duration,
}

impl WorkflowRun<'_> {
    pub(super) async fn find_target(&self, call: &OperationCall<'_>) -> Result<TargetTool> {
        if let Some(description) = call.source {
            let source = self.find_source(description)?;
            let found = self.find_operation(&source, call.operation).await?;
            return found.ok_or_else(|| unknown_operation_error(&source.id, call.operation));
        }
        let described = self.loaded.document.source_descriptions.iter();
        let mut found = Vec::new();
        let mut missing = None;
        for description in described.filter(|description| description.kind == SourceDescriptionKind::OpenApi) {
            let source = match self.find_source(description) {
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
        let shown = display_operation(call.operation);
        match (found.pop(), found.pop()) {
            (Some((_, target)), None) => Ok(target),
            (Some((one, _)), Some((other, _))) => Err(unavailable_error(format!(
                "both `{other}` and `{one}` have an operation `{shown}`; write `$sourceDescriptions.{one}.{shown}`"
            ))),
            // One that is not declared may have it.
            (None, _) => Err(missing.unwrap_or_else(|| {
                unavailable_error(format!("none of the APIs that the document names has an operation `{shown}`"))
            })),
        }
    }

    /// By its name, or else by its document.
    fn find_source(&self, description: &SourceDescription) -> Result<Arc<Source>> {
        let now = self.registry.snapshot.load();
        let named = SourceId::from_name(&description.name).ok().and_then(|id| now.effective_sources.get(&id));
        if let Some(source) = named.filter(|source| as_openapi(source).is_some()) {
            return Ok(source.clone());
        }
        let wanted = self.loaded.url.join(&description.url).ok();
        let same = |source: &&Arc<Source>| {
            let place = as_openapi(source).and_then(|openapi| document_url(&openapi.document));
            place.is_some() && place == wanted
        };
        let mut same = now.effective_sources.values().filter(same);
        match (same.next(), same.next()) {
            (Some(source), None) => Ok(source.clone()),
            (Some(one), Some(other)) => {
                let name = sanitize_truncated(&description.name, 80);
                let one = &one.id;
                let other = &other.id;
                let message =
                    format!("`{one}` and `{other}` both have the document of `{name}`; call one of them `{name}`");
                Err(unavailable_error(message))
            }
            (None, _) => Err(unknown_source_error(description, now.effective_sources.values())),
        }
    }

    /// Discovers the source first where it never was.
    async fn find_operation(&self, source: &Source, wanted: &OperationReference) -> Result<Option<TargetTool>> {
        let id = &source.id;
        self.registry
            .ensure_freshness(
                RequiredFreshness::Discovered,
                Some(std::slice::from_ref(id)),
                true,
                self.context.trace.as_ref(),
            )
            .await;
        let now = self.registry.snapshot.load_full();
        let Some(part) = now.catalog.source(id) else {
            let unknown =
                || unavailable_error(format!("the tools of `{id}` are not known; `toolcrib refresh {id}` tries again"));
            return Err(self.registry.explain_source(id).unwrap_or_else(unknown));
        };
        let Some((entry, operation)) = self.connector.operations.find(part, wanted).await? else { return Ok(None) };
        let entry = &part.segment.entries()[entry];
        Ok(Some(TargetTool {
            name: entry.name.clone(),
            source: id.clone(),
            operation,
            input_schema: part.segment.call_spec(entry)?.input_schema.clone(),
            call_timeout: source.settings.call_timeout(),
        }))
    }
}

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

/// Where the document of a source is, as an address.
fn document_url(text: &str) -> Option<Url> {
    match DocumentLocation::parse(&resolve(text).ok()?).ok()? {
        DocumentLocation::File(path) => file_url(&path),
        DocumentLocation::Remote(url) => Some(url),
    }
}

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
    unavailable_error(format!(
        "`{name}` is none of the OpenAPI sources here ({known}); `toolcrib add {id} --openapi {url}` declares it"
    ))
}

fn unknown_operation_error(source: &SourceId, wanted: &OperationReference) -> Error {
    let shown = display_operation(wanted);
    unavailable_error(format!(
        "the source `{source}` has no operation `{shown}`; `toolcrib tools --source {source}` shows what it has"
    ))
}

fn display_operation(operation: &OperationReference) -> String {
    match operation {
        OperationReference::Id(id) => sanitize_truncated(id, 80),
        OperationReference::Path { method, path } => sanitize_truncated(&format!("{method} {path}"), 120),
    }
}

/// Trying again changes nothing.
fn unavailable_error(message: String) -> Error {
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}
