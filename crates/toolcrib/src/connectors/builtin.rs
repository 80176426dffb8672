//! Built-in tools as a source: the table of definitions and handlers, and the connector that lists and runs them. The
//! tools themselves are in `toolcrib-builtins`.
//!
//! There are two kinds of owners. A configured source `builtin:` has a connector and is discovered and recorded like
//! any other. An embedding program registers tools of its own, which live as long as the process and form a pseudo
//! source in the catalogue. Both share one table, because built-in tools have no prefix and their names must be unique.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::{CatalogSource, Segment, SourceOptions};
use toolcrib_connector::builtin::{BuiltinDefinition, BuiltinHandler};
use toolcrib_connector::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use toolcrib_core::inventory::{Actor, Event, Inventory, Origin, Record};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::source::{BuiltinSource, SourceKind};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId, Timestamp};

use crate::clock::{Clock, format_limit};
use crate::guard::GuardExe;
use crate::options::RegistryOptions;
use crate::secret::ReferenceValues;

/// All built-in tools of this process by name: those of configured sources and those of the embedding program.
#[derive(Debug)]
pub(crate) struct BuiltinTools {
    tools: Mutex<BTreeMap<String, RegisteredBuiltin>>,
    clock: Clock,
    /// Guard of the processes that handlers start.
    guard: GuardExe,
    /// Id of the pseudo source that lists the tools of the embedding program.
    embedded_source: SourceId,
}

/// One entry of the table.
struct RegisteredBuiltin {
    /// Configured source that the tool belongs to; `None` for a tool of the embedding program.
    owner: Option<SourceId>,
    /// Configuration the tool was built from, to detect changes; `None` for a tool of the embedding program.
    config: Option<Arc<BuiltinConfig>>,
    definition: BuiltinDefinition,
    /// `None` if the embedding program only lists the tool and executes it itself.
    handler: Option<BuiltinHandler>,
    registered_at: Timestamp,
}

/// Configuration of a source of built-in tools.
#[derive(Debug, PartialEq)]
struct BuiltinConfig {
    /// As declared, with references unresolved.
    declared: SourceKind,
    resolved: BuiltinSource,
}

impl BuiltinTools {
    /// Empty table; sources add their tools when they are discovered.
    pub(crate) fn new(registry_options: &RegistryOptions) -> BuiltinTools {
        let clock = registry_options.clock.clone();
        let guard = registry_options.guard.clone();
        BuiltinTools { tools: Mutex::default(), clock, guard, embedded_source: Source::embedded().id }
    }

    /// Id of the source under which tools of the embedding program are listed.
    pub(crate) fn embedded_id(&self) -> &SourceId {
        &self.embedded_source
    }

    /// Adds a tool of the embedding program. Fails with `CONFLICT` if the name is taken.
    pub(crate) fn register(&self, definition: BuiltinDefinition, handler: Option<BuiltinHandler>) -> Result<()> {
        let mut tools = self.tools.lock();
        self.check_name_free(&tools, &definition.name, None)?;
        let registered =
            RegisteredBuiltin { owner: None, config: None, definition, handler, registered_at: self.clock.now() };
        tools.insert(registered.definition.name.clone(), registered);
        Ok(())
    }

    /// Builds the tools of a configured source, replaces those it had before, and returns their definitions as MCP
    /// JSON. Handlers are kept if the configuration is unchanged.
    pub(crate) fn load_source(&self, source: &Source, references: &ReferenceValues) -> Result<Vec<Box<RawValue>>> {
        let SourceKind::Builtin(resolved) = references.resolve_kind(&source.kind)? else { return Ok(Vec::new()) };
        let config = Arc::new(BuiltinConfig { declared: source.kind.clone(), resolved });
        // Locked until the end: two refreshes of the same source must not interleave.
        let mut tools = self.tools.lock();
        let owned = |known: &&RegisteredBuiltin| {
            known.owner.as_ref() == Some(&source.id) && known.config.as_ref() == Some(&config)
        };
        // Unchanged configuration: keep the handlers, so that calls in flight and cached clients survive.
        let known: Vec<_> =
            tools.values().filter(owned).map(|known| tool_json(&known.definition)).collect::<Result<_>>()?;
        if !known.is_empty() {
            return Ok(known);
        }
        let definitions = build_tools(&config.resolved, &self.clock, &self.guard)?;
        // Check all names before changing anything, so that a conflict leaves the old tools in place.
        for (definition, _) in &definitions {
            self.check_name_free(&tools, &definition.name, Some(&source.id))?;
        }
        // Replace the tools of this source only.
        tools.retain(|_, registered| registered.owner.as_ref() != Some(&source.id));
        let registered_at = self.clock.now();
        // In the order of the definitions, which is by name.
        let mut listed = Vec::new();
        for (definition, handler) in definitions {
            listed.push(tool_json(&definition)?);
            let name = definition.name.clone();
            let handler = Some(handler);
            let owner = Some(source.id.clone());
            let config = Some(config.clone());
            tools.insert(name, RegisteredBuiltin { owner, config, definition, handler, registered_at });
        }
        Ok(listed)
    }

    /// Whether the tools of a source were built from its current declaration.
    pub(crate) fn is_loaded(&self, source: &Source) -> bool {
        let tools = self.tools.lock();
        let mut owned = tools.values().filter(|registered| registered.owner.as_ref() == Some(&source.id));
        owned.any(|registered| registered.config.as_ref().is_some_and(|config| config.declared == source.kind))
    }

    /// Fails if another source, or any source when `owner` is `None`, has a tool of this name.
    fn check_name_free(
        &self,
        tools: &BTreeMap<String, RegisteredBuiltin>,
        name: &str,
        owner: Option<&SourceId>,
    ) -> Result<()> {
        let others = tools.get(name).filter(|taken| owner.is_none() || taken.owner.as_ref() != owner);
        let Some(taken) = others else { return Ok(()) };
        let owner_id = taken.owner.as_ref().unwrap_or(&self.embedded_source);
        let message = format!("a built-in tool named `{name}` exists already, from `{owner_id}`");
        Err(Error::new(Code::Conflict, message).with_retryable(false))
    }

    /// Copies verdicts and visibility from the definitions of a source into its catalogue options.
    pub(crate) fn add_source_options(&self, owner: &SourceId, options: &mut SourceOptions) {
        let tools = self.tools.lock();
        add_options(options, tools.values().filter(|registered| registered.owner.as_ref() == Some(owner)));
    }

    /// Tools of the embedding program as a source of the catalogue. They live as long as the process and are not in the
    /// journal, so their inventory state is folded from synthetic events here.
    pub(crate) fn embedded_catalog_source(&self) -> Option<Arc<CatalogSource>> {
        let tools = self.tools.lock();
        let owned: Vec<&RegisteredBuiltin> = tools.values().filter(|registered| registered.owner.is_none()).collect();
        if owned.is_empty() {
            return None;
        }
        // Pack the definitions like the tool list of any other source.
        let listed: Vec<Box<RawValue>> =
            owned.iter().filter_map(|registered| tool_json(&registered.definition).ok()).collect();
        let packed =
            PackedManifest::new(&Manifest::new(&self.embedded_source, &listed, Vec::new(), &ToolLimits::default()))
                .ok()?;
        // Default verdicts and visibility come from the definitions.
        let mut inventory = Inventory::default();
        let mut options = SourceOptions { kind: "builtin".into(), builtin: true, ..SourceOptions::default() };
        add_options(&mut options, owned.iter().copied());
        // The catalogue takes added-at dates from the inventory, so record the events that a journal would hold.
        let events = [
            Event::SourceDeclared {
                source: self.embedded_source.clone(),
                kind: "builtin".into(),
                origin: Origin::Runtime,
                definition: packed.fingerprint,
                enabled: None,
                enabled_reference: None,
            },
            Event::InventoryRecorded {
                source: self.embedded_source.clone(),
                fingerprint: packed.fingerprint,
                added: owned.iter().map(|registered| registered.definition.name.clone()).collect(),
                changed: Vec::new(),
                removed: Vec::new(),
                renamed: Vec::new(),
            },
        ];
        let at = owned.iter().map(|registered| registered.registered_at).min().unwrap_or_default();
        for event in events {
            let seq = inventory.version + 1;
            inventory.apply(&Record { seq, at, actor: Actor::new("embedder"), event });
        }
        let state = inventory.source(&self.embedded_source)?.clone();
        Some(Arc::new(CatalogSource::new(Arc::new(Segment::without_prefix(Arc::new(packed))), state, options)))
    }

    /// Runs a handler until it finishes, its timeout expires, or its caller cancels.
    pub(crate) async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        // Dropping the handler's future ends it; blocking file operations run to their own limits in the background.
        tokio::select! {
            result = self.run_handler(call.tool, call.arguments) => result.map_err(CallFailure::Rejected),
            () = call.context.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(call.deadline.at) => {
                let limit = format_limit(call.deadline.limit);
                let message = format!("`{}` timed out after {limit}", call.tool);
                Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)))
            }
        }
    }

    /// Parses the arguments, runs the handler and serialises its output.
    async fn run_handler(&self, tool: &str, arguments: &RawValue) -> Result<ToolResult> {
        // Cloned out of the table, which must not stay locked while the handler runs.
        let handler = self.tools.lock().get(tool).map(|registered| registered.handler.clone());
        let handler = handler.ok_or_else(|| Error::new(Code::ToolNotImplemented, format!("no tool named `{tool}`")))?;
        // A tool without a handler is listed for the host program, which executes it itself.
        let handler = handler.ok_or_else(|| {
            Error::new(Code::ToolNotImplemented, format!("`{tool}` has no handler here; its host executes it"))
        })?;
        let input: Value = serde_json::from_str(arguments.get())
            .context(Code::ToolInvalidInput, "the arguments are not valid JSON")?;
        // A panic in a handler of the embedding program must end this call only.
        let output = AssertUnwindSafe(async move { handler(input).await }).catch_unwind().await;
        let output = output.map_err(|_| Error::new(Code::ToolExecutionFailed, format!("`{tool}` panicked")))??;
        let raw = to_raw_value(&output).context(Code::Internal, "cannot serialize the output of a built-in tool")?;
        ToolResult::parse(raw).ok_or_else(|| Error::new(Code::Internal, format!("`{tool}` returned no result")))
    }
}

/// Copies verdicts and visibility from definitions into catalogue options.
fn add_options<'a>(options: &mut SourceOptions, tools: impl Iterator<Item = &'a RegisteredBuiltin>) {
    for RegisteredBuiltin { definition, .. } in tools {
        options.verdicts.insert(definition.name.clone(), definition.verdict);
        if definition.internal {
            options.internal.insert(definition.name.clone());
        }
    }
}

/// Builds the tools that a configuration selects.
#[cfg(feature = "builtins")]
fn build_tools(
    config: &BuiltinSource,
    clock: &Clock,
    guard: &GuardExe,
) -> Result<Vec<(BuiltinDefinition, BuiltinHandler)>> {
    let clock = clock.clone();
    let now = Arc::new(move || clock.now());
    toolcrib_builtins::build_tools(config, &toolcrib_builtins::BuiltinContext { now, guard: guard.clone() })
}

#[cfg(not(feature = "builtins"))]
fn build_tools(_: &BuiltinSource, _: &Clock, _: &GuardExe) -> Result<Vec<(BuiltinDefinition, BuiltinHandler)>> {
    Err(super::unsupported::missing_feature_error("builtins"))
}

/// Definition in the form in which an MCP server lists a tool. Verdict and visibility are not part of it; they reach
/// the catalogue through its options.
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
    to_raw_value(&tool).context(Code::Internal, "cannot serialize the definition of a built-in tool")
}

/// Connector of a configured `builtin:` source. Its connection is always open.
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
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        let tools = self.builtins.load_source(&self.source, &discovery.references)?;
        Ok(Discovered { tools, ..Discovered::default() })
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        self.builtins.call(call).await
    }

    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("`{}` has built-in tools and does not support `{}`", self.source.id, request.method);
        Err(CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message)))
    }

    fn is_connected(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for RegisteredBuiltin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisteredBuiltin").field("name", &self.definition.name).finish_non_exhaustive()
    }
}
