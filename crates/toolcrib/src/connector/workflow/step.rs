//! One step: the tool it means, called under the caller's terms, and what the API behind it answered.

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::arazzo::{Call, Response, Step};
use toolcrib_core::catalog::Caller;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, SourceId};

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
            trace: self.terms.trace.clone(),
            ..CallOptions::default()
        };
        let caller = on_behalf(&self.terms.caller, &self.connector.source.id);
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
        Code::AuthRequired => Code::AuthRequired,
        Code::RateLimited if first => Code::RateLimited,
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
    for name in ["faults", "upstream_status", "by", "retry_after_ms"] {
        if let Some(detail) = error.details.as_ref().and_then(|details| details.get(name)) {
            details[name] = detail.clone();
        }
    }
    let message = format!("step `{step}` of the workflow `{workflow}` cannot be taken: {}", error.message);
    Error::new(code, message).with_retryable(retryable).with_details(details)
}

/// Who is behind a step, and what is between.
fn on_behalf(caller: &str, workflow: &SourceId) -> Caller {
    let name = match caller {
        "" => format!("workflow {workflow}"),
        caller => format!("{caller} via workflow {workflow}"),
    };
    Caller { name }
}

/// Whether what the step says about its answers is about one that points elsewhere.
fn expects_redirect(step: &Step) -> bool {
    let actions = step.on_success.iter().chain(&step.on_failure);
    let mut criteria = step.success_criteria.iter().chain(actions.flat_map(|action| &action.criteria));
    criteria.any(|criterion| match criterion.context() {
        Some(context) => {
            context.trim() == "$statusCode" && REDIRECTS.iter().any(|status| criterion.condition.contains(status))
        }
        None => compares_with_redirect(&criterion.condition),
    })
}

const REDIRECTS: [&str; 5] = ["301", "302", "303", "307", "308"];

/// Whether `$statusCode` is compared with the number of a redirect, on either side.
fn compares_with_redirect(condition: &str) -> bool {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let quotes = ['\'', '"'];
    let apart = |character: char| character.is_whitespace() || "()&|!=<>'\"".contains(character);
    condition.match_indices("$statusCode").any(|(at, name)| {
        let (before, after) = (condition[..at].trim_end(), condition[at + name.len()..].trim_start());
        let after = OPERATORS.iter().find_map(|operator| after.strip_prefix(operator));
        let after = after.and_then(|after| after.trim_start().trim_start_matches(quotes).split(apart).next());
        let before = OPERATORS.iter().find_map(|operator| before.strip_suffix(operator));
        let before = before.and_then(|before| before.trim_end().trim_end_matches(quotes).rsplit(apart).next());
        [before, after].into_iter().flatten().any(|number| REDIRECTS.contains(&number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_that_is_compared_turns_following_off() {
        for (condition, expected) in [
            ("$statusCode == 302", true),
            ("$statusCode==302", true),
            ("($statusCode == '307')", true),
            ("303 == $statusCode && $response.body#/a == 1", true),
            ("$statusCode == 200 || $statusCode == 301", true),
            ("$statusCode == 3020", false),
            ("$statusCode == 200 && $response.body#/count == 302", false),
            ("$response.body#/302 == $statusCode", false),
            ("$statusCode == 200", false),
            ("$statusCode", false),
        ] {
            assert_eq!(compares_with_redirect(condition), expected, "{condition}");
        }
    }

    #[test]
    fn who_called_a_workflow_is_told_of_its_steps_too() {
        let workflow = SourceId::parse("errands").unwrap();
        assert_eq!(on_behalf("agent", &workflow).name, "agent via workflow errands");
        assert_eq!(on_behalf("", &workflow).name, "workflow errands");
    }
}
