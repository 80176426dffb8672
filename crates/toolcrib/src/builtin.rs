//! The tools that Toolcrib brings along, and what an embedder needs to add tools of its own.
//!
//! A built-in is a [`Definition`] that says what the tool is and a [`Handler`] that does it. Who may call it is decided
//! elsewhere: the verdict here is only what holds when no rule says otherwise.

mod definition;
mod output;

mod bash;
mod calculate;
mod current_time;
mod file_edit;
mod file_find;
mod file_list;
mod file_read;
mod file_search;
mod file_write;
mod files;
mod url_fetch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolcrib_core::source::BuiltinSource;
use toolcrib_core::text::{closest_match, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Timestamp};

use crate::guard::GuardExe;
use files::Roots;

pub use definition::BuiltinDefinition;
pub use output::BuiltinOutput;

/// Does the work of a tool. Its argument has passed the tool's input schema.
pub type BuiltinHandler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<BuiltinOutput>> + Send + Sync>;

/// A handler made of an async function.
pub fn handler<F, Fut>(function: F) -> BuiltinHandler
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<BuiltinOutput>> + Send + 'static,
{
    Arc::new(move |input| Box::pin(function(input)))
}

/// What the built-ins need from the process they live in.
#[derive(Clone)]
pub struct BuiltinContext {
    /// The time, as `current_time` tells it.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Who guards what `bash` starts.
    pub guard: GuardExe,
}

/// The tools of `all`: they change nothing.
pub const READ_ONLY_TOOLS: [&str; 7] =
    ["calculate", "current_time", "file_find", "file_list", "file_read", "file_search", "url_fetch"];

/// The tools that are there only when named, and ask before each call.
pub const MUTATING_TOOLS: [&str; 3] = ["bash", "file_edit", "file_write"];

/// Every name that a config may give.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    READ_ONLY_TOOLS.into_iter().chain(MUTATING_TOOLS)
}

/// The tools a config asks for, in the order of their names. Its `roots` must be absolute.
pub fn build_tools(config: &BuiltinSource, host: &BuiltinContext) -> Result<Vec<(BuiltinDefinition, BuiltinHandler)>> {
    let mut wanted: Vec<&'static str> = Vec::new();
    for name in &config.tools {
        if name == "all" {
            wanted.extend(READ_ONLY_TOOLS);
        } else {
            wanted.push(parse_tool_name(name)?);
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    let roots = Arc::new(Roots::new(config.roots.iter().map(PathBuf::from).collect())?);
    wanted.into_iter().map(|name| build_tool(name, config, &roots, host)).collect()
}

fn build_tool(
    name: &str,
    config: &BuiltinSource,
    roots: &Arc<Roots>,
    host: &BuiltinContext,
) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    match name {
        "bash" => bash::tool(Arc::clone(roots), host.guard.clone()),
        "calculate" => calculate::tool(),
        "current_time" => current_time::tool(Arc::clone(&host.now)),
        "file_edit" => file_edit::tool(Arc::clone(roots)),
        "file_find" => file_find::tool(Arc::clone(roots)),
        "file_list" => file_list::tool(Arc::clone(roots)),
        "file_read" => file_read::tool(Arc::clone(roots)),
        "file_search" => file_search::tool(Arc::clone(roots)),
        "file_write" => file_write::tool(Arc::clone(roots)),
        "url_fetch" => url_fetch::tool(config.allow_private),
        _ => Err(Error::new(Code::Internal, format!("`{name}` has a name but no handler"))),
    }
}

fn parse_tool_name(name: &str) -> Result<&'static str> {
    if let Some(known) = tool_names().find(|known| *known == name) {
        return Ok(known);
    }
    let hint = match closest_match(name, tool_names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            format!("there are `all`, {}", tool_names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Err(Error::new(Code::ConfigInvalid, format!("no built-in tool named `{}`; {hint}", sanitize_for_message(name))))
}

/// The arguments as a handler wants them. The schema has been checked before, so this fails only for a careless caller.
fn parse_arguments<T: DeserializeOwned>(input: Value) -> Result<T> {
    serde_json::from_value(input)
        .map_err(|error| Error::new(Code::ToolInvalidInput, format!("wrong arguments: {error}")))
}

fn invalid_input(message: impl Into<String>) -> Error {
    Error::new(Code::ToolInvalidInput, message)
}

fn execution_failed(message: impl Into<String>) -> Error {
    Error::new(Code::ToolExecutionFailed, message)
}

/// Something from outside, fit to stand in a message.
fn sanitize_for_message(text: &str) -> String {
    sanitize_truncated(text, 120)
}

impl fmt::Debug for BuiltinContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("guard", &self.guard).finish_non_exhaustive()
    }
}
