//! Arguments against the tool's schema, within the call's deadline. What may take long runs on a blocking thread.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_core::catalog::Calling;
use toolcrib_core::schema::{Fault, Validation};
use toolcrib_core::{Code, Error, Result, ResultExt};

use crate::clock::after;
use crate::connector::CallFailure;
use crate::registry::Shared;

/// Arguments that may be sent.
pub(super) struct Validated {
    pub(super) arguments: Value,
    /// Why they were not validated, where they were not.
    pub(super) note: Option<String>,
}

/// When the work for one call must be done.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        Deadline(after(timeout))
    }

    pub(super) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl Shared {
    pub(super) async fn validate_arguments(
        &self,
        tool: &str,
        calling: &Arc<Calling>,
        arguments: Value,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<Validated> {
        let arguments = match calling.validator.validate_inline(&arguments) {
            Some(Validation::Valid) => return Ok(Validated { arguments, note: None }),
            Some(Validation::Skipped(note)) => return Ok(Validated { arguments, note: Some(note) }),
            // Invalid arguments are looked at again, with time to list their faults.
            Some(Validation::Invalid(_)) | None => arguments,
        };
        let calling = calling.clone();
        let permit = self.validation_permits.clone().acquire_owned();
        let work = async {
            let permit = permit.await.context(Code::Internal, "validation has ended")?;
            let validation = tokio::task::spawn_blocking(move || {
                // Held by the thread: it goes on after the caller has given up.
                let _permit = permit;
                validate(&calling, arguments)
            });
            validation.await.context(Code::Internal, "validation of the arguments failed")
        };
        match within(work, deadline, cancel, tool).await?? {
            Ok(validated) => Ok(validated),
            Err(faults) => Err(invalid(tool, &faults)),
        }
    }
}

async fn within<T>(
    work: impl Future<Output = T>,
    deadline: Deadline,
    cancel: &CancellationToken,
    tool: &str,
) -> Result<T> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
        () = tokio::time::sleep_until(deadline.0) => {
            let message = format!("the arguments of `{tool}` could not be validated in time; too many calls are waiting");
            Err(Error::new(Code::ToolUnavailable, message))
        }
    }
}

/// A `null` where none may be counts as left out: models that must name every argument send it.
fn validate(calling: &Calling, arguments: Value) -> Result<Validated, Vec<Fault>> {
    let faults = match calling.validator.validate(&arguments) {
        Validation::Valid => return Ok(Validated { arguments, note: None }),
        Validation::Skipped(note) => return Ok(Validated { arguments, note: Some(note) }),
        Validation::Invalid(faults) => faults,
    };
    let mut rest = arguments;
    let removed = faults.iter().filter(|fault| remove_null(&mut rest, &fault.path)).count();
    if removed > 0 && calling.validator.validate(&rest) == Validation::Valid {
        return Ok(Validated { arguments: rest, note: None });
    }
    Err(faults)
}

fn invalid(tool: &str, faults: &[Fault]) -> Error {
    let listed: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect();
    let message = format!("wrong arguments for `{tool}`: {}", listed.join("; "));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": faults }))
}

fn remove_null(arguments: &mut Value, path: &str) -> bool {
    let Some((parent, key)) = path.rsplit_once('/') else { return false };
    let key = key.replace("~1", "/").replace("~0", "~");
    match arguments.pointer_mut(parent) {
        Some(Value::Object(fields)) if fields.get(&key).is_some_and(Value::is_null) => {
            fields.shift_remove(&key).is_some()
        }
        _ => false,
    }
}
