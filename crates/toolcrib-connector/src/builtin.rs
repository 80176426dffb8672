//! Tools whose handlers are functions of this process: the definition, the handler and its output. An embedding program
//! adds tools of its own with these types; `toolcrib-builtins` has the ones that Toolcrib brings.
//!
//! The verdict of a definition is only the default: policy is evaluated by the call path before a handler runs.
//!
//! Handlers get validated JSON and return content or an error. They bound their own work (time, bytes, entries),
//! because blocking file operations cannot be cancelled. An error of the arguments is `TOOL_INVALID_INPUT`, so that a
//! model corrects its call; a failure of the machine is `TOOL_EXECUTION_FAILED`.

mod definition;
mod output;

use std::sync::Arc;

pub use definition::BuiltinDefinition;
use futures_util::future::BoxFuture;
pub use output::BuiltinOutput;
use serde_json::Value;
use toolcrib_core::Result;

/// Executes a tool. The arguments have been validated against its input schema.
pub type BuiltinHandler = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<BuiltinOutput>> + Send + Sync>;

/// Creates a handler from an async function.
pub fn builtin_handler<F, Fut>(function: F) -> BuiltinHandler
where
    F: Fn(Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<BuiltinOutput>> + Send + 'static,
{
    Arc::new(move |input| Box::pin(function(input)))
}
