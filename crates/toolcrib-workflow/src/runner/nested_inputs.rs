//! Validates the inputs of a workflow that another one runs, like the arguments of a call: before any of its steps.

use serde_json::{Value, json};
use toolcrib_connector::document::run_blocking;
use toolcrib_core::source::ArgumentValidation;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, ResultExt};

use super::run::WorkflowRun;
use super::step::step_error;
use crate::NestedInputs;

impl WorkflowRun<'_> {
    /// Returns the inputs as the workflow gets them. Invalid ones end the execution, because no action of the document could
    /// handle them.
    pub(super) async fn validate_inputs(&self, nested: &NestedInputs<'_>) -> Result<Value> {
        let inputs = nested.inputs.clone();
        if self.connector.source.settings.validate() == ArgumentValidation::Lenient {
            return Ok(inputs);
        }
        let permit = self.connector.validation_permit.clone().acquire_owned().await;
        let permit = permit.context(Code::Internal, "validation has ended")?;
        let loaded = self.loaded.clone();
        let document = nested.document;
        let id = nested.workflow.id.clone();
        let validated = run_blocking(move || {
            // Held by the thread: validation cannot be interrupted and may outlive the call.
            let _permit = permit;
            let linked = loaded.documents.documents().get(document);
            let workflow = linked.and_then(|linked| linked.document.workflow(&id));
            let workflow = workflow.ok_or_else(|| Error::new(Code::Internal, "a nested workflow does not exist"))?;
            Ok(workflow.input_validator()?.validate_without_nulls(inputs))
        });
        let faults = match validated.await? {
            Ok((inputs, _)) => return Ok(inputs),
            Err((_, faults)) => faults,
        };
        let described: Vec<String> = faults.iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect();
        let id = sanitize_truncated(&nested.workflow.id, 80);
        let message = format!("wrong inputs for the workflow `{id}`: {}", described.join("; "));
        let error = Error::new(Code::ToolInvalidInput, message).with_details(json!({ "faults": faults }));
        Err(step_error(nested.caller, nested.is_first, error))
    }
}
