//! Steps: what they call, with what, and what comes after.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Fault, Read, Reader, list, outputs};
use crate::arazzo::payload::{RequestBody, decoded};
use crate::arazzo::{Action, Criterion, OperationReference, Parameter, SourceKind, Step, Target, Then, What};
use crate::execution::Place;
use crate::expression::weight;
use crate::text::shown_short;

impl Reader<'_> {
    pub(super) fn steps(&self, workflow: &Value, at: &str) -> Read<Vec<Step>> {
        let steps = list(workflow, "steps");
        if steps.is_empty() {
            return Err(Fault::at(format!("{at}/steps"), "it has no steps"));
        }
        if steps.len() > MOST_LISTED {
            return Err(Fault::at(format!("{at}/steps"), format!("it has more than {MOST_LISTED} steps")));
        }
        let ids: Vec<&str> =
            steps.iter().map(|step| step.get("stepId").and_then(Value::as_str).unwrap_or_default()).collect();
        let common = Common {
            parameters: list(workflow, "parameters"),
            on_success: self.actions(workflow, "successActions", Outcome::Success, &ids, at)?,
            on_failure: self.actions(workflow, "failureActions", Outcome::Failure, &ids, at)?,
            at,
        };
        let mut read = Vec::new();
        for (index, value) in steps.iter().enumerate() {
            let at = format!("{at}/steps/{index}");
            match ids.iter().position(|id| *id == ids[index]) {
                _ if ids[index].is_empty() => return Err(Fault::at(at, "the step has no `stepId`")),
                Some(first) if first < index => return Err(Fault::at(at, "an earlier step has the same `stepId`")),
                Some(_) | None => read.push(self.step(value, &ids, index, &common, &at)?),
            }
        }
        Ok(read)
    }

    fn step(&self, value: &Value, ids: &[&str], index: usize, common: &Common<'_>, at: &str) -> Read<Step> {
        let what = self.what(value, at)?;
        let calls_workflow = matches!(what, What::Workflow { .. });
        let own = self.parameters(list(value, "parameters"), calls_workflow, &format!("{at}/parameters"))?;
        let inherited = self.parameters(common.parameters, calls_workflow, &format!("{}/parameters", common.at))?;
        let mut given = own;
        for parameter in inherited {
            let same = |own: &Given| own.name == parameter.name && own.place == parameter.place;
            if !given.iter().any(same) {
                given.push(parameter);
            }
        }
        let body = value.get("requestBody").map(RequestBody::read).transpose();
        let mut body = body.map_err(|reason| Fault::at(format!("{at}/requestBody"), reason))?;
        let mut parameters = Vec::new();
        for Given { name, place, value } in given {
            match place {
                Goes::Body => body.get_or_insert_default().put(&name, value),
                Goes::Place(place) => parameters.push(Parameter { name, place: Some(place), value }),
                Goes::Inputs => parameters.push(Parameter { name, place: None, value }),
            }
        }
        Ok(Step {
            id: ids[index].to_owned(),
            what,
            description: value.get("description").and_then(Value::as_str).map(str::to_owned),
            parameters,
            body,
            success_criteria: self.criteria(value, "successCriteria", at)?,
            on_success: self.merged(
                self.actions(value, "onSuccess", Outcome::Success, ids, at)?,
                &common.on_success,
                at,
            )?,
            on_failure: self.merged(
                self.actions(value, "onFailure", Outcome::Failure, ids, at)?,
                &common.on_failure,
                at,
            )?,
            outputs: outputs(value),
        })
    }

    fn what(&self, value: &Value, at: &str) -> Read<What> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        match (text("operationId"), text("operationPath"), text("workflowId")) {
            (Some(id), None, None) => self.operation_id(id, &format!("{at}/operationId")),
            (None, Some(path), None) => self.operation_path(path, &format!("{at}/operationPath")),
            (None, None, Some(id)) => {
                Ok(What::Workflow { id: self.workflow_id(Some(id), &format!("{at}/workflowId"))? })
            }
            (None, None, None) => {
                Err(Fault::at(at, "the step has neither `operationId` nor `operationPath` nor `workflowId`"))
            }
            _ => Err(Fault::at(at, "the step has more than one of `operationId`, `operationPath` and `workflowId`")),
        }
    }

    fn operation_id(&self, id: &str, at: &str) -> Read<What> {
        let inner = id.trim().trim_start_matches('{').trim_end_matches('}');
        if let Some(rest) = inner.strip_prefix("$sourceDescriptions.") {
            let (source, operation) = rest.split_once('.').unwrap_or((rest, ""));
            let operation = operation.strip_prefix("operationId.").unwrap_or(operation);
            if operation.is_empty() {
                return Err(Fault::at(at, "it names no operation after the source description"));
            }
            let source = self.openapi_source(source, at)?;
            return Ok(What::Operation {
                source: Some(source),
                operation: OperationReference::Id(operation.to_owned()),
            });
        }
        let mut usable = self.sources.iter().filter(|source| source.kind == SourceKind::OpenApi);
        let source = match (usable.next(), usable.next()) {
            (None, _) => return Err(Fault::at(at, "the document describes no source of type `openapi`")),
            (Some(only), None) => Some(only.name.clone()),
            (Some(_), Some(_)) => None,
        };
        Ok(What::Operation { source, operation: OperationReference::Id(id.to_owned()) })
    }

    /// `{$sourceDescriptions.shop.url}#/paths/~1pets~1{id}/get`, or with the address itself before the `#`.
    fn operation_path(&self, text: &str, at: &str) -> Read<What> {
        let malformed = || Fault::at(at, "it must be of the form `{$sourceDescriptions.name.url}#/paths/~1pets/get`");
        let (document, pointer) = text.trim().split_once('#').ok_or_else(malformed)?;
        let expression = document.trim_start_matches('{').trim_end_matches('}');
        let source = match expression.strip_prefix("$sourceDescriptions.") {
            Some(rest) => self.openapi_source(rest.strip_suffix(".url").unwrap_or(rest), at)?,
            None => {
                let named = self.sources.iter().find(|source| source.url == document);
                self.openapi_source(named.map_or(document, |source| source.name.as_str()), at)?
            }
        };
        let parts: Vec<String> =
            pointer.split('/').map(|part| decoded(part).replace("~1", "/").replace("~0", "~")).collect();
        match parts.as_slice() {
            [root, paths, path, method] if root.is_empty() && paths == "paths" && path.starts_with('/') => {
                let operation = OperationReference::Path { method: method.to_ascii_uppercase(), path: path.clone() };
                Ok(What::Operation { source: Some(source), operation })
            }
            _ => Err(malformed()),
        }
    }

    fn openapi_source(&self, name: &str, at: &str) -> Read<String> {
        let shown = shown_short(name, 60);
        match self.sources.iter().find(|source| source.name == name) {
            Some(source) if source.kind == SourceKind::OpenApi => Ok(source.name.clone()),
            Some(_) => Err(Fault::at(at, format!("the source description `{shown}` is not of type `openapi`"))),
            None => Err(Fault::at(at, format!("there is no source description `{shown}`"))),
        }
    }

    fn parameters(&self, given: &[Value], calls_workflow: bool, at: &str) -> Read<Vec<Given>> {
        if given.len() > MOST_LISTED {
            return Err(Fault::at(at, format!("there are more than {MOST_LISTED} parameters")));
        }
        let mut parameters: Vec<Given> = Vec::new();
        for (index, value) in given.iter().enumerate() {
            let at = format!("{at}/{index}");
            let (parameter, own) = self.reusable(value, "parameters", &at)?;
            let name = parameter.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| Fault::at(&at, "the parameter has no `name`"))?.to_owned();
            let place = match parameter.get("in").and_then(Value::as_str) {
                _ if calls_workflow => Goes::Inputs,
                Some("path") => Goes::Place(Place::Path),
                Some("query") => Goes::Place(Place::Query),
                Some("header") => Goes::Place(Place::Header),
                Some("cookie") => Goes::Place(Place::Cookie),
                Some("querystring") => Goes::Place(Place::Querystring),
                Some("body") => Goes::Body,
                Some(_) => return Err(Fault::at(at, "`in` is one of `path`, `query`, `header` and `cookie`")),
                None => return Err(Fault::at(at, "the parameter of an operation has no `in`")),
            };
            let value = own.or(parameter.get("value")).ok_or_else(|| Fault::at(&at, "the parameter has no `value`"))?;
            if parameters.iter().any(|other| other.name == name && other.place == place) {
                return Err(Fault::at(at, "an earlier parameter has the same name and place"));
            }
            self.take_room(weight(value) + name.len() + 64, &at)?;
            parameters.push(Given { name, place, value: value.clone() });
        }
        Ok(parameters)
    }

    fn actions(&self, value: &Value, name: &str, outcome: Outcome, ids: &[&str], at: &str) -> Read<Vec<Action>> {
        let mut actions = Vec::new();
        for (index, value) in list(value, name).iter().enumerate() {
            let at = format!("{at}/{name}/{index}");
            let (action, _) = self.reusable(value, outcome.components(), &at)?;
            self.take_room(weight(action), &at)?;
            let text = |name: &str| action.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            let target = match (text("stepId"), text("workflowId")) {
                (None, None) => None,
                (Some(id), None) => {
                    let position = ids.iter().position(|known| *known == id);
                    let missing = || Fault::at(&at, format!("there is no step `{}`", shown_short(id, 60)));
                    Some(Target::Step(position.ok_or_else(missing)?))
                }
                (None, Some(id)) => Some(Target::Workflow(self.workflow_id(Some(id), &at)?)),
                (Some(_), Some(_)) => return Err(Fault::at(at, "the action has both `stepId` and `workflowId`")),
            };
            let then = match (text("type"), outcome) {
                (Some("end"), _) => Then::End,
                (Some("goto"), _) => Then::Goto(
                    target.ok_or_else(|| Fault::at(&at, "`goto` names neither a `stepId` nor a `workflowId`"))?,
                ),
                (Some("retry"), Outcome::Failure) => {
                    let after = action.get("retryAfter").and_then(Value::as_f64).unwrap_or(0.0);
                    let limit = action.get("retryLimit").and_then(Value::as_f64).unwrap_or(1.0);
                    if after < 0.0 || limit < 0.0 {
                        return Err(Fault::at(at, "`retryAfter` and `retryLimit` are not negative"));
                    }
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
                    let limit = limit as u32;
                    Then::Retry { after: Duration::from_secs_f64(after.min(LONGEST_WAIT)), limit, first: target }
                }
                (Some("retry"), Outcome::Success) => return Err(Fault::at(at, "only a failure can be retried")),
                (Some(other), _) => {
                    return Err(Fault::at(at, format!("there is no action of type `{}`", shown_short(other, 40))));
                }
                (None, _) => return Err(Fault::at(at, "the action has no `type`")),
            };
            let name = text("name").map_or_else(|| format!("#{}", index + 1), str::to_owned);
            let mut criteria = self.criteria(action, "criteria", &at)?;
            // Documents also write the only condition without a list around it.
            if let (true, Some(condition)) = (criteria.is_empty(), action.get("condition")) {
                let criterion = Criterion::read(&json!({"condition": condition}));
                criteria.push(criterion.map_err(|reason| Fault::at(&at, reason))?);
            }
            actions.push(Action { name, criteria, then });
        }
        Ok(actions)
    }

    /// The step's own come first, and stand for those of the workflow with the same name.
    fn merged(&self, mut own: Vec<Action>, common: &[Action], at: &str) -> Read<Vec<Action>> {
        if own.len().max(common.len()) > MOST_LISTED {
            return Err(Fault::at(at, format!("there are more than {MOST_LISTED} actions")));
        }
        let inherited: Vec<&Action> =
            common.iter().filter(|action| !own.iter().any(|own| own.name == action.name)).collect();
        for action in inherited {
            let conditions = action.criteria.iter().map(|criterion| criterion.condition.len() + 256);
            self.take_room(256 + conditions.sum::<usize>(), at)?;
            own.push(action.clone());
        }
        Ok(own)
    }

    fn criteria(&self, value: &Value, name: &str, at: &str) -> Read<Vec<Criterion>> {
        let read = list(value, name).iter().enumerate().map(|(index, value)| {
            let at = format!("{at}/{name}/{index}");
            let simple = matches!(value.get("type").map(Value::as_str), None | Some(Some("simple")));
            self.take_room(if simple { 256 } else { ROOM_OF_PATTERN }, &at)?;
            Criterion::read(value).map_err(|reason| Fault::at(at, reason))
        });
        read.collect()
    }

    /// The object itself, or the one in the components that it refers to, with a value of its own.
    fn reusable<'v>(&'v self, value: &'v Value, kind: &str, at: &str) -> Read<(&'v Value, Option<&'v Value>)> {
        let Some(reference) = value.get("reference") else { return Ok((value, None)) };
        let reference = reference.as_str().unwrap_or_default();
        let name = reference.strip_prefix("$components.").and_then(|rest| rest.strip_prefix(kind)?.strip_prefix('.'));
        let found = name.and_then(|name| self.document.get("components")?.get(kind)?.get(name));
        match found {
            Some(found) => Ok((found, value.get("value"))),
            None => Err(Fault::at(at, format!("`{}` leads nowhere", shown_short(reference, 100)))),
        }
    }
}

/// Longer lists would take their time, for their names are compared with each other.
const MOST_LISTED: usize = 1000;

/// What a condition with patterns takes when it is compiled: an action in the components is read again for each step
/// that names it.
const ROOM_OF_PATTERN: usize = 32 * 1024;

/// In seconds. Whoever waits has a deadline of its own.
const LONGEST_WAIT: f64 = 3600.0;

/// What a workflow says for all of its steps.
struct Common<'a> {
    parameters: &'a [Value],
    on_success: Vec<Action>,
    on_failure: Vec<Action>,
    at: &'a str,
}

/// A parameter as it is written.
struct Given {
    name: String,
    place: Goes,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Goes {
    Place(Place),
    /// Of the workflow that is called.
    Inputs,
    /// Arazzo has no such place, yet documents name properties of the body so.
    Body,
}

#[derive(Clone, Copy)]
enum Outcome {
    Success,
    Failure,
}

impl Outcome {
    fn components(self) -> &'static str {
        match self {
            Outcome::Success => "successActions",
            Outcome::Failure => "failureActions",
        }
    }
}
