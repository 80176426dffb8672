//! Which tool a step means: the source of this catalogue that a source description stands for, and its operation.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use toolcrib_core::arazzo::{Call, OperationReference, SourceDescription, SourceKind};
use toolcrib_core::execution::Operation;
use toolcrib_core::source::{Kind, OpenApi};
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, Source, SourceId, ToolName};
use url::Url;

use super::document::file_url;
use super::journey::Journey;
use crate::connector::openapi::DocumentLocation;
use crate::refresh::Need;
use crate::secret::resolve;

/// The tool behind a step. Its source is an API, so that no workflow ever calls a workflow this way.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: ToolName,
    pub(super) source: SourceId,
    pub(super) operation: Operation,
    /// As it is listed.
    pub(super) input_schema: Arc<RawValue>,
    pub(super) call_timeout: Duration,
}

impl Journey<'_> {
    pub(super) async fn target(&self, call: &Call<'_>) -> Result<Target> {
        if let Some(description) = call.source {
            let source = self.source(description)?;
            let found = self.operation(&source, call.operation).await?;
            return found.ok_or_else(|| no_operation(&source.id, call.operation));
        }
        let described = self.held.document.source_descriptions.iter();
        let (mut found, mut missing) = (Vec::new(), None);
        for description in described.filter(|description| description.kind == SourceKind::OpenApi) {
            let source = match self.source(description) {
                Ok(source) => source,
                Err(error) => {
                    missing = Some(error);
                    continue;
                }
            };
            if let Some(target) = self.operation(&source, call.operation).await? {
                found.push((description.name.as_str(), target));
            }
        }
        let shown = shown(call.operation);
        match (found.pop(), found.pop()) {
            (Some((_, target)), None) => Ok(target),
            (Some((one, _)), Some((other, _))) => Err(unavailable(format!(
                "both `{other}` and `{one}` have an operation `{shown}`; write `$sourceDescriptions.{one}.{shown}`"
            ))),
            // One that is not declared may have it.
            (None, _) => Err(missing.unwrap_or_else(|| {
                unavailable(format!("none of the APIs that the document names has an operation `{shown}`"))
            })),
        }
    }

    /// By its name, or else by its document.
    fn source(&self, description: &SourceDescription) -> Result<Arc<Source>> {
        let now = self.registry.now.load();
        let named = SourceId::from_name(&description.name).ok().and_then(|id| now.sources.get(&id));
        if let Some(source) = named.filter(|source| openapi(source).is_some()) {
            return Ok(source.clone());
        }
        let wanted = self.held.place.join(&description.url).ok();
        let same = |source: &&Arc<Source>| {
            let place = openapi(source).and_then(|openapi| document(&openapi.document));
            place.is_some() && place == wanted
        };
        let mut same = now.sources.values().filter(same);
        match (same.next(), same.next()) {
            (Some(source), None) => Ok(source.clone()),
            (Some(one), Some(other)) => {
                let name = shown_short(&description.name, 80);
                let (one, other) = (&one.id, &other.id);
                let message =
                    format!("`{one}` and `{other}` both have the document of `{name}`; call one of them `{name}`");
                Err(unavailable(message))
            }
            (None, _) => Err(no_source(description, now.sources.values())),
        }
    }

    /// Discovers the source first where it never was.
    async fn operation(&self, source: &Source, wanted: &OperationReference) -> Result<Option<Target>> {
        let id = &source.id;
        self.registry.ensure(Need::Known, Some(std::slice::from_ref(id)), true, self.terms.trace.as_ref()).await;
        let now = self.registry.now.load_full();
        let Some(part) = now.catalog.part(id) else {
            let unknown =
                || unavailable(format!("the tools of `{id}` are not known; `toolcrib refresh {id}` tries again"));
            return Err(self.registry.explain_source(id).unwrap_or_else(unknown));
        };
        let Some((entry, operation)) = self.connector.operations.find(part, wanted).await? else { return Ok(None) };
        let entry = &part.segment.entries()[entry];
        Ok(Some(Target {
            name: entry.name.clone(),
            source: id.clone(),
            operation,
            input_schema: part.segment.calling(entry)?.input_schema.clone(),
            call_timeout: source.settings.call_timeout(),
        }))
    }
}

fn openapi(source: &Source) -> Option<&OpenApi> {
    match &source.kind {
        Kind::OpenApi(openapi) => Some(openapi),
        Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::Workflow(_) | Kind::Builtin(_) => None,
    }
}

/// Where the document of a source is, as an address.
fn document(text: &str) -> Option<Url> {
    match DocumentLocation::parse(&resolve(text).ok()?).ok()? {
        DocumentLocation::File(path) => file_url(&path),
        DocumentLocation::Address(url) => Some(url),
    }
}

fn no_source<'a>(description: &SourceDescription, sources: impl Iterator<Item = &'a Arc<Source>>) -> Error {
    let (name, url) = (shown_short(&description.name, 80), shown_short(&description.url, 200));
    let known: Vec<String> =
        sources.filter(|source| openapi(source).is_some()).take(10).map(|source| format!("`{}`", source.id)).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
    let id = SourceId::from_name(&description.name).map_or_else(|_| "NAME".to_owned(), |id| id.to_string());
    unavailable(format!(
        "`{name}` is none of the OpenAPI sources here ({known}); `toolcrib add {id} --openapi {url}` declares it"
    ))
}

fn no_operation(source: &SourceId, wanted: &OperationReference) -> Error {
    let shown = shown(wanted);
    unavailable(format!(
        "the source `{source}` has no operation `{shown}`; `toolcrib tools --source {source}` shows what it has"
    ))
}

fn shown(operation: &OperationReference) -> String {
    match operation {
        OperationReference::Id(id) => shown_short(id, 80),
        OperationReference::Path { method, path } => shown_short(&format!("{method} {path}"), 120),
    }
}

/// Trying again changes nothing.
fn unavailable(message: String) -> Error {
    Error::new(Code::ToolUnavailable, message).with_retryable(false)
}
