//! The built-in tools that Toolcrib brings: time, calculation, files, web pages, shell. The types of tools that an
//! embedding program adds itself are in [`toolcrib_connector::builtin`].
//!
//! Arguments are validated and policy is evaluated by the call path before a handler runs.

mod calculate;
mod current_time;

mod file_edit;
mod file_find;
mod file_list;
mod file_read;
mod file_search;
mod file_write;
mod files;

mod bash;
mod url_fetch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use toolcrib_connector::address_policy::NetworkScope;
use toolcrib_connector::builtin::{BuiltinDefinition, BuiltinHandler, BuiltinOutput, builtin_handler};
use toolcrib_core::source::BuiltinSource;
use toolcrib_core::text::{closest_match, sanitize_truncated};
use toolcrib_core::{Code, Error, Result, Timestamp};
use toolcrib_guard::GuardExe;

use files::Roots;

/// Services of the surrounding process that built-in tools use.
#[derive(Clone)]
pub struct BuiltinContext {
    /// Current time, for `current_time`.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Guard of the processes that `bash` starts.
    pub guard: GuardExe,
}

/// Tools selected by `all`. They modify nothing.
pub const READ_ONLY_TOOLS: [&str; 7] =
    ["calculate", "current_time", "file_find", "file_list", "file_read", "file_search", "url_fetch"];

/// Tools that must be named explicitly. Their default verdict is to ask before each call.
pub const MUTATING_TOOLS: [&str; 3] = ["bash", "file_edit", "file_write"];

/// All names that a configuration may contain, apart from `all`.
pub fn tool_names() -> impl Iterator<Item = &'static str> {
    READ_ONLY_TOOLS.into_iter().chain(MUTATING_TOOLS)
}

/// Builds the tools that a configuration selects, sorted by name. Its `roots` must be absolute.
pub fn build_tools(
    config: &BuiltinSource,
    context: &BuiltinContext,
) -> Result<Vec<(BuiltinDefinition, BuiltinHandler)>> {
    let mut selected: Vec<&'static str> = Vec::new();
    for name in &config.tools {
        if name == "all" {
            selected.extend(READ_ONLY_TOOLS);
        } else {
            selected.push(parse_tool_name(name)?);
        }
    }
    // `all` and a name, or a name twice: each tool once.
    selected.sort_unstable();
    selected.dedup();
    let roots = Arc::new(Roots::new(config.roots.iter().map(PathBuf::from).collect())?);
    selected.into_iter().map(|name| build_tool(name, config, &roots, context)).collect()
}

/// Builds one tool.
fn build_tool(
    name: &str,
    config: &BuiltinSource,
    roots: &Arc<Roots>,
    context: &BuiltinContext,
) -> Result<(BuiltinDefinition, BuiltinHandler)> {
    match name {
        "bash" => bash::tool(Arc::clone(roots), context.guard.clone()),
        "calculate" => calculate::tool(),
        "current_time" => current_time::tool(Arc::clone(&context.now)),
        "file_edit" => file_edit::tool(Arc::clone(roots)),
        "file_find" => file_find::tool(Arc::clone(roots)),
        "file_list" => file_list::tool(Arc::clone(roots)),
        "file_read" => file_read::tool(Arc::clone(roots)),
        "file_search" => file_search::tool(Arc::clone(roots)),
        "file_write" => file_write::tool(Arc::clone(roots)),
        "url_fetch" if config.allow_private => url_fetch::tool(NetworkScope::Anywhere),
        "url_fetch" => url_fetch::tool(NetworkScope::PublicOnly),
        _ => Err(Error::new(Code::Internal, format!("internal error: the built-in tool `{name}` has no handler"))),
    }
}

/// Checks a configured name; the error suggests a similar one.
fn parse_tool_name(name: &str) -> Result<&'static str> {
    if let Some(known) = tool_names().find(|known| *known == name) {
        return Ok(known);
    }
    let hint = match closest_match(name, tool_names()) {
        Some(suggestion) => format!("did you mean `{suggestion}`?"),
        None => {
            format!("there are `all`, {}", tool_names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
        }
    };
    Err(Error::new(Code::ConfigInvalid, format!("no built-in tool named `{}`; {hint}", sanitize_for_message(name))))
}

/// Deserialises the arguments. The call path has validated them, so this fails only for handlers that are called
/// directly.
fn parse_arguments<T: DeserializeOwned>(input: Value) -> Result<T> {
    serde_json::from_value(input)
        .map_err(|error| Error::new(Code::ToolInvalidInput, format!("wrong arguments: {error}")))
}

/// Error for arguments that the tool cannot use.
fn invalid_input(message: impl Into<String>) -> Error {
    Error::new(Code::ToolInvalidInput, message)
}

/// Error for a failed operation.
fn execution_failed(message: impl Into<String>) -> Error {
    Error::new(Code::ToolExecutionFailed, message)
}

/// Sanitises untrusted text for a message: one line, at most 120 characters. Arguments come from a model.
fn sanitize_for_message(text: &str) -> String {
    sanitize_truncated(text, 120)
}

impl fmt::Debug for BuiltinContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinContext").field("guard", &self.guard).finish_non_exhaustive()
    }
}
