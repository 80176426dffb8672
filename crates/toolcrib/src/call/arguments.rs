//! Validation of arguments against the tool's input schema, within the call's deadline. Runs on a blocking thread
//! unless the schema is cheap to check.
//!
//! `jsonschema` can neither be cancelled nor limited to a number of steps. A call that reaches its deadline therefore
//! returns an error while the thread finishes the validation; permits bound how many such threads there are. The cost
//! estimate that decides what is cheap is in `toolcrib_schema`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use toolcrib_catalog::CallSpec;
use toolcrib_core::{Code, Error, Result, ResultExt, SourceId};
use toolcrib_schema::{ArgumentError, ValidationOutcome};

use crate::connector::CallFailure;

/// Arguments that passed validation, possibly with invalid `null`s removed.
pub(super) struct ValidatedArguments {
    pub(super) arguments: Value,
    /// Why validation was skipped, if it was; added to the result as a note.
    pub(super) note: Option<String>,
}

/// Arguments that do not match the schema.
pub(super) struct InvalidArguments {
    /// The arguments as the caller sent them.
    arguments: Value,
    pub(super) faults: Vec<ArgumentError>,
}

/// Bounds the processor time and memory of validations on blocking threads: one at a time per source, and half of the
/// cores for all of them together, so that an expensive schema cannot occupy the machine.
#[derive(Debug)]
pub(crate) struct ValidationPermits {
    /// Permits for all sources together: half of the cores, at least one.
    global_semaphore: Arc<Semaphore>,
    /// One permit per source, created when the source first needs a thread.
    source_semaphores: Mutex<HashMap<SourceId, Arc<Semaphore>>>,
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
    /// Waits for the permit of the source first: a busy source must not hold global permits while it waits. Fails only
    /// if a semaphore is closed, which none ever is.
    async fn acquire(&self, source: &SourceId) -> Result<[OwnedSemaphorePermit; 2]> {
        let source_permit =
            self.source_semaphore(source).acquire_owned().await.context(Code::Internal, "validation has ended")?;
        let global_permit =
            self.global_semaphore.clone().acquire_owned().await.context(Code::Internal, "validation has ended")?;
        Ok([source_permit, global_permit])
    }

    /// Returns the semaphore of a source; removes those of idle sources when there are many.
    fn source_semaphore(&self, source: &SourceId) -> Arc<Semaphore> {
        const MAX_IDLE_SEMAPHORES: usize = 256;
        let mut semaphores = self.source_semaphores.lock();
        if semaphores.len() > MAX_IDLE_SEMAPHORES {
            // A semaphore that no call holds or waits for is referenced by the map alone.
            semaphores.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        semaphores.entry(source.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }

    /// Validates arguments. The outer error is a cancelled or late validation, the inner one lists the invalid
    /// arguments.
    pub(super) async fn validate(
        &self,
        source: &SourceId,
        call_spec: &Arc<CallSpec>,
        arguments: Value,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Result<ValidatedArguments, InvalidArguments>> {
        // Most schemas are cheap: checking them here costs less than a switch to another thread.
        if let Some(accepted) = call_spec.validator.accept_inline(&arguments) {
            return Ok(Ok(ValidatedArguments::new(arguments, accepted)));
        }
        // Everything else: first the permits, then the thread. The wait for a permit counts towards the deadline too.
        let call_spec = call_spec.clone();
        let work = async {
            let permits = self.acquire(source).await?;
            let validation = tokio::task::spawn_blocking(move || {
                // Held by the thread, not by the caller: validation cannot be interrupted and may outlive the call.
                let _permits = permits;
                match call_spec.validator.validate_without_nulls(arguments) {
                    Ok((arguments, accepted)) => Ok(ValidatedArguments::new(arguments, accepted)),
                    Err((arguments, faults)) => Err(InvalidArguments { arguments, faults }),
                }
            });
            validation.await.context(Code::Internal, "validation of the arguments failed")
        };
        tokio::select! {
            biased;
            validated = work => validated,
            () = cancel.cancelled() => Err(CallFailure::cancelled().into_error()),
            () = tokio::time::sleep_until(deadline) => {
                let message = "the arguments were not validated before the deadline; try again later";
                Err(Error::new(Code::ToolUnavailable, message))
            }
        }
    }
}

impl ValidatedArguments {
    /// Wraps arguments that the validator accepted, or could not check.
    fn new(arguments: Value, accepted: ValidationOutcome) -> ValidatedArguments {
        let note = match accepted {
            ValidationOutcome::Valid => None,
            ValidationOutcome::Unvalidated(note) => Some(note),
        };
        ValidatedArguments { arguments, note }
    }
}

impl InvalidArguments {
    /// Accepts the arguments with a note that lists the faults (`validate: lenient`). Arguments that are no object are
    /// not accepted: no request can be built from them.
    pub(super) fn accept_leniently(self) -> Result<ValidatedArguments, InvalidArguments> {
        if !self.arguments.is_object() {
            return Err(self);
        }
        let note = format!("`validate: lenient` let pass: {}", describe_faults(&self.faults));
        Ok(ValidatedArguments { arguments: self.arguments, note: Some(note) })
    }

    /// Accepts that an argument is missing.
    pub(super) fn without_missing(mut self, argument: &str) -> Result<ValidatedArguments, InvalidArguments> {
        let path = format!("/{argument}");
        self.faults.retain(|fault| fault.path != path);
        if self.faults.is_empty() {
            Ok(ValidatedArguments { arguments: self.arguments, note: None })
        } else {
            Err(self)
        }
    }
}

/// Lists the faults with their JSON pointers.
fn describe_faults(faults: &[ArgumentError]) -> String {
    faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect::<Vec<_>>().join("; ")
}

/// Returns `TOOL_INVALID_INPUT` with each fault's JSON pointer and message. Agents read the message, programs the list
/// `faults` in the details: `{"faults":[{"path":"/to","message":"…"}]}`.
pub(super) fn invalid_arguments_error(tool: &str, faults: &[ArgumentError]) -> Error {
    let message = format!("wrong arguments for `{tool}`: {}", describe_faults(faults));
    Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": faults }))
}
