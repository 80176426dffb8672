//! One step: the tool it means, called under the caller's terms, and what the API behind it answered.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::arazzo::{Call, Response, Step};
use toolcrib_core::catalog::Caller;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};

use super::arguments::arguments;
use super::journey::Journey;
use crate::call::{CallOptions, Wish};
use crate::connector::Witness;

/// What a step came to.
pub(super) enum Came {
    Answer(Response),
    /// An answer of 400 and more, and what it says for people.
    Refusal {
        response: Response,
        said: String,
    },
    /// No answer, and why.
    Nothing(String),
}

impl Journey<'_> {
    /// Takes a step. An error ends the workflow: nothing that its document says could change that.
    pub(super) async fn take(&self, call: &Call<'_>) -> Result<Came> {
        let target = self.target(call).await.map_err(|error| at_step(call, error))?;
        let tool = target.name.as_str();
        let input = arguments(&target, &call.arguments).map_err(|error| at_step(call, error))?;
        self.tell(call, tool);
        let witness = Witness::new(expects_redirect(call.step));
        let options = CallOptions {
            timeout: Some(self.remaining().min(target.call_timeout)),
            cancel: self.terms.cancel.clone(),
            consent: self.terms.consent,
            client: self.terms.client,
            fleeting: self.terms.fleeting,
            whole: true,
            ..CallOptions::default()
        };
        let caller = Caller { name: format!("workflow {}", self.connector.source.id) };
        let wish = Wish { name: tool, input, options, witness: Some(witness.clone()) };
        match self.registry.call(&caller, wish).await {
            Ok(_) => Ok(witness.take().map_or_else(|| Came::Nothing(format!("`{tool}` is no API")), Came::Answer)),
            Err(error) => came(call, error, witness.take()),
        }
    }

    /// One that does not keep up misses some.
    fn tell(&self, call: &Call<'_>, tool: &str) {
        let Some(progress) = &self.terms.progress else { return };
        let message = format!("step `{}`: {tool}", shown_short(&call.step.id, 80));
        if let Ok(said) = to_raw_value(&json!({ "progress": call.number, "message": message })) {
            let _missed = progress.try_send(said);
        }
    }
}

fn came(call: &Call<'_>, error: Error, seen: Option<Response>) -> Result<Came> {
    if matches!(error.code, Code::Forbidden | Code::ToolInvalidInput) {
        return Err(at_step(call, error));
    }
    let status = error.details.as_ref().and_then(|details| details.get("status")?.as_u64());
    match seen.filter(|seen| status == Some(seen.status.into())) {
        // The body as the error has it: without what was given to the API in confidence.
        Some(seen) => {
            let body = error.details.and_then(|mut details| details.get_mut("body").map(Value::take));
            let response = Response { body: body.filter(|body| !body.is_null()), ..seen };
            Ok(Came::Refusal { response, said: error.message })
        }
        None => Ok(Came::Nothing(error.message)),
    }
}

/// An error that ends the workflow. What a caller can do about it depends on whether a step was taken before.
fn at_step(call: &Call<'_>, error: Error) -> Error {
    let (step, workflow) = (shown_short(&call.step.id, 80), shown_short(call.workflow, 80));
    let first = call.number == 1;
    let code = match error.code {
        Code::Forbidden => Code::Forbidden,
        Code::ToolInvalidInput if first => Code::ToolInvalidInput,
        Code::ToolInvalidInput => Code::ToolExecutionFailed,
        Code::ToolNotImplemented
        | Code::ToolUnavailable
        | Code::ToolExecutionFailed
        | Code::ConfigInvalid
        | Code::NotFound
        | Code::Conflict
        | Code::Unauthorized
        | Code::StoreUnavailable
        | Code::BadRequest
        | Code::RateLimited
        | Code::Internal => {
            if first {
                Code::ToolUnavailable
            } else {
                Code::ToolExecutionFailed
            }
        }
    };
    let retryable = error.retryable();
    let mut details = json!({ "step": step });
    if let Some(faults) = error.details.as_ref().and_then(|details| details.get("faults")) {
        details["faults"] = faults.clone();
    }
    let message = format!("step `{step}` of the workflow `{workflow}` cannot be taken: {}", error.message);
    Error::new(code, message).with_retryable(retryable).with_details(details)
}

/// Whether what the step says about its answers is about one that points elsewhere.
fn expects_redirect(step: &Step) -> bool {
    let actions = step.on_success.iter().chain(&step.on_failure);
    let criteria = step.success_criteria.iter().chain(actions.flat_map(|action| &action.criteria));
    let mut conditions = criteria.map(|criterion| criterion.condition.as_str());
    conditions.any(|text| ["301", "302", "303", "307", "308"].iter().any(|status| text.contains(status)))
}
