//! Built-in tools as a source: the table of definitions and handlers, and the connector that lists and runs them.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::catalog::{CatalogSource, Segment, SourceOptions};
use toolcrib_core::inventory::{Actor, Event, Inventory, Origin, Record};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::source::{BuiltinSource, SourceKind};
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId, Timestamp};

use super::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use crate::builtin::{self, BuiltinContext, BuiltinDefinition, BuiltinHandler};
use crate::registry::RegistryOptions;
use crate::secret::resolve_kind;

/// Every built-in tool of this process, by name.
#[derive(Debug)]
pub(crate) struct BuiltinTools {
    tools: Mutex<BTreeMap<String, RegisteredBuiltin>>,
    context: BuiltinContext,
    embedded_source: SourceId,
}

struct RegisteredBuiltin {
    /// The configured source it belongs to; none for a tool of the embedding host.
    owner: Option<SourceId>,
    /// What that source was configured as.
    config: Option<Arc<BuiltinSource>>,
    definition: BuiltinDefinition,
    handler: Option<BuiltinHandler>,
    registered_at: Timestamp,
}

impl BuiltinTools {
    pub(crate) fn new(options: &RegistryOptions) -> BuiltinTools {
        let clock = options.clock.clone();
        let host = BuiltinContext { now: Arc::new(move || clock.now()), guard: options.guard.clone() };
        BuiltinTools { tools: Mutex::default(), context: host, embedded_source: Source::embedded().id }
    }

    /// The source that tools of the embedding host are listed under.
    pub(crate) fn embedded_id(&self) -> &SourceId {
        &self.embedded_source
    }

    /// Adds a tool of the embedding host.
    pub(crate) fn register(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        let mut tools = self.lock_tools();
        self.check_name_free(&tools, &definition.name, None)?;
        let registered =
            RegisteredBuiltin { owner: None, config: None, definition, handler, registered_at: (self.context.now)() };
        tools.insert(registered.definition.name.clone(), registered);
        Ok(())
    }

    /// Takes the tools that a configured source asks for, in place of those it had, and gives them as it offers them.
    pub(crate) fn load_source(&self, source: &Source) -> Result<Vec<Box<RawValue>>> {
        let SourceKind::Builtin(config) = resolve_kind(&source.kind)? else { return Ok(Vec::new()) };
        let config = Arc::new(config);
        let mut tools = self.lock_tools();
        let own = |known: &&RegisteredBuiltin| {
            known.owner.as_ref() == Some(&source.id) && known.config.as_ref() == Some(&config)
        };
        let known: Vec<_> =
            tools.values().filter(own).map(|known| tool_json(&known.definition)).collect::<Result<_>>()?;
        if !known.is_empty() {
            return Ok(known);
        }
        let standard = builtin::build_tools(&config, &self.context)?;
        for (definition, _) in &standard {
            self.check_name_free(&tools, &definition.name, Some(&source.id))?;
        }
        tools.retain(|_, registered| registered.owner.as_ref() != Some(&source.id));
        let since = (self.context.now)();
        let mut offers = Vec::new();
        for (definition, handler) in standard {
            offers.push(tool_json(&definition)?);
            let name = definition.name.clone();
            let handler = Some(handler);
            let owner = Some(source.id.clone());
            let config = Some(config.clone());
            tools.insert(name, RegisteredBuiltin { owner, config, definition, handler, registered_at: since });
        }
        Ok(offers)
    }

    fn check_name_free(
        &self,
        tools: &BTreeMap<String, RegisteredBuiltin>,
        name: &str,
        owner: Option<&SourceId>,
    ) -> Result<()> {
        let others = tools.get(name).filter(|taken| owner.is_none() || taken.owner.as_ref() != owner);
        let Some(taken) = others else { return Ok(()) };
        let by = taken.owner.as_ref().unwrap_or(&self.embedded_source);
        let message = format!("a built-in tool named `{name}` exists already, from `{by}`");
        Err(Error::new(Code::Conflict, message).with_retryable(false))
    }

    /// What the definitions of a source add to how its tools are treated.
    pub(crate) fn add_source_options(&self, owner: &SourceId, manner: &mut SourceOptions) {
        let tools = self.lock_tools();
        for registered in tools.values().filter(|registered| registered.owner.as_ref() == Some(owner)) {
            let definition = &registered.definition;
            manner.verdicts.insert(definition.name.clone(), definition.verdict);
            if definition.internal {
                manner.internal.insert(definition.name.clone());
            }
        }
    }

    /// The embedding host's tools as a part of the catalogue. They live for the process and are in no journal.
    pub(crate) fn embedded_catalog_source(&self) -> Option<Arc<CatalogSource>> {
        let tools = self.lock_tools();
        let own: Vec<&RegisteredBuiltin> = tools.values().filter(|registered| registered.owner.is_none()).collect();
        if own.is_empty() {
            return None;
        }
        let offered: Vec<Box<RawValue>> =
            own.iter().filter_map(|registered| tool_json(&registered.definition).ok()).collect();
        let packed =
            PackedManifest::new(&Manifest::new(&self.embedded_source, &offered, Vec::new(), &ToolLimits::default()))
                .ok()?;
        let mut inventory = Inventory::default();
        let mut manner = SourceOptions { kind: "builtin".into(), builtin: true, ..SourceOptions::default() };
        for registered in &own {
            manner.verdicts.insert(registered.definition.name.clone(), registered.definition.verdict);
            if registered.definition.internal {
                manner.internal.insert(registered.definition.name.clone());
            }
        }
        let facts = [
            Event::SourceDeclared {
                source: self.embedded_source.clone(),
                kind: "builtin".into(),
                origin: Origin::Runtime,
                definition: packed.fingerprint,
                enabled: None,
            },
            Event::InventoryRecorded {
                source: self.embedded_source.clone(),
                fingerprint: packed.fingerprint,
                added: own.iter().map(|registered| registered.definition.name.clone()).collect(),
                changed: Vec::new(),
                removed: Vec::new(),
                renamed: Vec::new(),
            },
        ];
        let at = own.iter().map(|registered| registered.registered_at).min().unwrap_or_default();
        for event in facts {
            let seq = inventory.version + 1;
            inventory.apply(&Record { seq, at, actor: Actor::new("embedder"), event });
        }
        let state = inventory.source(&self.embedded_source)?.clone();
        Some(Arc::new(CatalogSource::new(Arc::new(Segment::without_prefix(Arc::new(packed))), state, manner)))
    }

    /// Runs a handler until it is done, its time is up, or its caller has left.
    pub(crate) async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure> {
        tokio::select! {
            answer = self.run_handler(&call.tool, &call.arguments) => answer.map_err(CallFailure::Rejected),
            () = call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep(call.context.timeout) => {
                let message = format!("`{}` did not finish within {}", call.tool, format_duration(call.context.timeout));
                Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)))
            }
        }
    }

    async fn run_handler(&self, tool: &str, arguments: &RawValue) -> Result<ToolResult> {
        let handler = self.lock_tools().get(tool).map(|registered| registered.handler.clone());
        let handler = handler.ok_or_else(|| Error::new(Code::ToolNotImplemented, format!("no tool named `{tool}`")))?;
        let handler = handler.ok_or_else(|| {
            Error::new(Code::ToolNotImplemented, format!("`{tool}` has no handler here; its host executes it"))
        })?;
        let input: Value =
            serde_json::from_str(arguments.get()).context(Code::ToolInvalidInput, "read the arguments")?;
        // A panic in somebody's handler ends this call and nothing else.
        let answer = AssertUnwindSafe(async move { handler(input).await }).catch_unwind().await;
        let answer = answer.map_err(|_| Error::new(Code::ToolExecutionFailed, format!("`{tool}` panicked")))??;
        let raw = to_raw_value(&answer).context(Code::Internal, "write an answer")?;
        ToolResult::parse(raw).ok_or_else(|| Error::new(Code::Internal, format!("`{tool}` gave no result")))
    }

    fn lock_tools(&self) -> MutexGuard<'_, BTreeMap<String, RegisteredBuiltin>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A definition as a source would offer it.
fn tool_json(definition: &BuiltinDefinition) -> Result<Box<RawValue>> {
    let mut tool = serde_json::Map::new();
    tool.insert("name".into(), definition.name.clone().into());
    if let Some(title) = &definition.title {
        tool.insert("title".into(), title.clone().into());
    }
    tool.insert("description".into(), definition.description.clone().into());
    tool.insert("inputSchema".into(), definition.input_schema.clone());
    if let Some(schema) = &definition.output_schema {
        tool.insert("outputSchema".into(), schema.clone());
    }
    if definition.annotations.as_object().is_some_and(|annotations| !annotations.is_empty()) {
        tool.insert("annotations".into(), definition.annotations.clone());
    }
    to_raw_value(&tool).context(Code::Internal, "write a definition")
}

/// A configured `builtin:` source.
#[derive(Debug)]
pub(crate) struct BuiltinConnector {
    source: Source,
    builtins: Arc<BuiltinTools>,
}

impl BuiltinConnector {
    pub(crate) fn new(source: Source, builtins: Arc<BuiltinTools>) -> BuiltinConnector {
        BuiltinConnector { source, builtins }
    }
}

#[async_trait]
impl Connector for BuiltinConnector {
    async fn discover(&self, _: Discovery) -> Result<Discovered> {
        Ok(Discovered { tools: self.builtins.load_source(&self.source)?, ..Discovered::default() })
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure> {
        self.builtins.call(call).await
    }

    async fn request(&self, request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("`{}` has built-in tools, which answer no `{}`", self.source.id, request.method);
        Err(CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message)))
    }

    fn is_connected(&self) -> bool {
        true
    }

    async fn close(&self) {}
}

impl std::fmt::Debug for RegisteredBuiltin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("name", &self.definition.name).finish_non_exhaustive()
    }
}
