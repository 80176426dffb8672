//! Validation of arguments within the call's deadline. Runs on a blocking thread unless it is cheap.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_core::catalog::CallSpec;
use toolcrib_core::schema::{ArgumentError, ValidationOutcome};
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId};

use crate::clock::deadline_after;
use crate::connector::CallFailure;

/// Arguments that may be sent.
pub(super) struct ValidatedArguments {
    pub(super) arguments: Value,
    /// Reason why validation was skipped.
    pub(super) note: Option<String>,
}

/// When the work for one call must be done.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(timeout: Duration) -> Deadline {
        Deadline(deadline_after(timeout))
    }

    pub(super) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Bounds the processor time and memory of all validations on blocking threads: one for each source, and half of the
/// cores for all, so that neither one source nor all of them hold up everything else.
#[derive(Debug)]
pub(crate) struct ValidationPermits {
    global_semaphore: Arc<Semaphore>,
    source_semaphores: Mutex<HashMap<SourceId, Arc<Semaphore>>>,
}

/// Held by the thread: it goes on after the caller has given up.
struct ValidationPermit {
    _source_permit: OwnedSemaphorePermit,
    _global_permit: OwnedSemaphorePermit,
}

impl Default for ValidationPermits {
    fn default() -> ValidationPermits {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ValidationPermits {
            global_semaphore: Arc::new(Semaphore::new((cores / 2).max(1))),
            source_semaphores: Mutex::default(),
        }
    }
}

impl ValidationPermits {
    async fn acquire(&self, source: &SourceId) -> Result<ValidationPermit> {
        let of_source =
            self.source_semaphore(source).acquire_owned().await.context(Code::Internal, "validation has ended")?;
        let of_all =
            self.global_semaphore.clone().acquire_owned().await.context(Code::Internal, "validation has ended")?;
        Ok(ValidationPermit { _source_permit: of_source, _global_permit: of_all })
    }

    fn source_semaphore(&self, source: &SourceId) -> Arc<Semaphore> {
        const MAX_IDLE_SEMAPHORES: usize = 256;
        let mut by_source = self.source_semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if by_source.len() > MAX_IDLE_SEMAPHORES {
            by_source.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        by_source.entry(source.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    pub(super) async fn validate(
        &self,
        source: &SourceId,
        calling: &Arc<CallSpec>,
        arguments: Value,
        deadline: Deadline,
        cancel: &CancellationToken,
    ) -> Result<Result<ValidatedArguments, Vec<ArgumentError>>> {
        if let Some(accepted) = calling.validator.accept_inline(&arguments) {
            return Ok(Ok(ValidatedArguments::new(arguments, accepted)));
        }
        let calling = calling.clone();
        let work = async {
            let permit = self.acquire(source).await?;
            let validation = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                validate(&calling, arguments)
            });
            validation.await.context(Code::Internal, "validation of the arguments failed")
        };
        tokio::select! {
            biased;
            done = work => done,
            () = cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep_until(deadline.0) => {
                let message = "the arguments were not validated before the deadline; try again later";
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }
}

impl ValidatedArguments {
    fn new(arguments: Value, accepted: ValidationOutcome) -> ValidatedArguments {
        let note = match accepted {
            ValidationOutcome::Valid => None,
            ValidationOutcome::Unvalidated(note) => Some(note),
        };
        ValidatedArguments { arguments, note }
    }
}

pub(super) fn invalid_arguments_error(tool: &str, faults: &[ArgumentError]) -> Error {
    let listed: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect();
    let message = format!("wrong arguments for `{tool}`: {}", listed.join("; "));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": faults }))
}

/// A `null` where none may be counts as left out: models that must name every argument send it.
fn validate(calling: &CallSpec, arguments: Value) -> Result<ValidatedArguments, Vec<ArgumentError>> {
    let faults = match calling.validator.validate(&arguments) {
        Ok(accepted) => return Ok(ValidatedArguments::new(arguments, accepted)),
        Err(faults) => faults,
    };
    let mut rest = arguments;
    let mut removed = faults.iter().filter(|fault| remove_null(&mut rest, &fault.path)).count();
    // The faults may be too many to be listed.
    if let (0, Value::Object(members)) = (removed, &mut rest) {
        let before = members.len();
        members.retain(|_, value| !value.is_null());
        removed = before - members.len();
    }
    if removed > 0
        && let Ok(accepted) = calling.validator.validate(&rest)
    {
        return Ok(ValidatedArguments::new(rest, accepted));
    }
    Err(faults)
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
