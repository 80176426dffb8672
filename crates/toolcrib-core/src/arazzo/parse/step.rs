//! Steps: what they call, with what, and what comes after.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ArazzoParseError, ArazzoParseResult, ArazzoParser, array_field, parse_outputs};
use crate::arazzo::payload::{RequestBodyTemplate, percent_decode};
use crate::arazzo::{
    ActionKind, Criterion, JumpTarget, OperationReference, SourceDescriptionKind, StepAction, StepParameter,
    StepTarget, WorkflowStep,
};
use crate::execution::ParameterLocation;
use crate::expression::approximate_size;
use crate::text::sanitize_truncated;

impl ArazzoParser<'_> {
    pub(super) fn parse_steps(&self, workflow: &Value, at: &str) -> ArazzoParseResult<Vec<WorkflowStep>> {
        let steps = array_field(workflow, "steps");
        if steps.is_empty() {
            return Err(ArazzoParseError::new(format!("{at}/steps"), "it has no steps"));
        }
        if steps.len() > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(
                format!("{at}/steps"),
                format!("it has more than {MAX_LIST_ITEMS} steps"),
            ));
        }
        let ids: Vec<&str> =
            steps.iter().map(|step| step.get("stepId").and_then(Value::as_str).unwrap_or_default()).collect();
        let common = WorkflowDefaults {
            parameters: array_field(workflow, "parameters"),
            on_success: self.parse_actions(workflow, "successActions", ActionTrigger::Success, &ids, at)?,
            on_failure: self.parse_actions(workflow, "failureActions", ActionTrigger::Failure, &ids, at)?,
            pointer: at,
        };
        let mut read = Vec::new();
        for (index, value) in steps.iter().enumerate() {
            let at = format!("{at}/steps/{index}");
            match ids.iter().position(|id| *id == ids[index]) {
                _ if ids[index].is_empty() => return Err(ArazzoParseError::new(at, "the step has no `stepId`")),
                Some(first) if first < index => {
                    return Err(ArazzoParseError::new(at, "an earlier step has the same `stepId`"));
                }
                Some(_) | None => read.push(self.parse_step(value, &ids, index, &common, &at)?),
            }
        }
        Ok(read)
    }

    fn parse_step(
        &self,
        value: &Value,
        ids: &[&str],
        index: usize,
        common: &WorkflowDefaults<'_>,
        at: &str,
    ) -> ArazzoParseResult<WorkflowStep> {
        let what = self.parse_target(value, at)?;
        let calls_workflow = matches!(what, StepTarget::Workflow { .. });
        let own =
            self.parse_parameters(array_field(value, "parameters"), calls_workflow, &format!("{at}/parameters"))?;
        let inherited =
            self.parse_parameters(common.parameters, calls_workflow, &format!("{}/parameters", common.pointer))?;
        let mut given = own;
        for parameter in inherited {
            let same = |own: &ParsedParameter| own.name == parameter.name && own.destination == parameter.destination;
            if !given.iter().any(same) {
                given.push(parameter);
            }
        }
        let body = value.get("requestBody").map(RequestBodyTemplate::parse).transpose();
        let mut body = body.map_err(|reason| ArazzoParseError::new(format!("{at}/requestBody"), reason))?;
        let mut parameters = Vec::new();
        for ParsedParameter { name, destination: place, value } in given {
            match place {
                ParameterDestination::Body => body.get_or_insert_default().set_property(&name, value),
                ParameterDestination::Request(place) => {
                    parameters.push(StepParameter { name, location: Some(place), value })
                }
                ParameterDestination::Inputs => parameters.push(StepParameter { name, location: None, value }),
            }
        }
        Ok(WorkflowStep {
            id: ids[index].to_owned(),
            target: what,
            description: value.get("description").and_then(Value::as_str).map(str::to_owned),
            parameters,
            body,
            success_criteria: self.parse_criteria(value, "successCriteria", at)?,
            on_success: self.merge_actions(
                self.parse_actions(value, "onSuccess", ActionTrigger::Success, ids, at)?,
                &common.on_success,
                at,
            )?,
            on_failure: self.merge_actions(
                self.parse_actions(value, "onFailure", ActionTrigger::Failure, ids, at)?,
                &common.on_failure,
                at,
            )?,
            outputs: parse_outputs(value),
        })
    }

    fn parse_target(&self, value: &Value, at: &str) -> ArazzoParseResult<StepTarget> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        match (text("operationId"), text("operationPath"), text("workflowId")) {
            (Some(id), None, None) => self.parse_operation_id(id, &format!("{at}/operationId")),
            (None, Some(path), None) => self.parse_operation_path(path, &format!("{at}/operationPath")),
            (None, None, Some(id)) => {
                Ok(StepTarget::Workflow { id: self.parse_workflow_id(Some(id), &format!("{at}/workflowId"))? })
            }
            (None, None, None) => Err(ArazzoParseError::new(
                at,
                "the step has neither `operationId` nor `operationPath` nor `workflowId`",
            )),
            _ => Err(ArazzoParseError::new(
                at,
                "the step has more than one of `operationId`, `operationPath` and `workflowId`",
            )),
        }
    }

    fn parse_operation_id(&self, id: &str, at: &str) -> ArazzoParseResult<StepTarget> {
        let inner = id.trim().trim_start_matches('{').trim_end_matches('}');
        if let Some(rest) = inner.strip_prefix("$sourceDescriptions.") {
            let (source, operation) = rest.split_once('.').unwrap_or((rest, ""));
            let operation = operation.strip_prefix("operationId.").unwrap_or(operation);
            if operation.is_empty() {
                return Err(ArazzoParseError::new(at, "it names no operation after the source description"));
            }
            let source = self.find_openapi_source(source, at)?;
            return Ok(StepTarget::Operation {
                source: Some(source),
                operation: OperationReference::Id(operation.to_owned()),
            });
        }
        let mut usable = self.sources.iter().filter(|source| source.kind == SourceDescriptionKind::OpenApi);
        let source = match (usable.next(), usable.next()) {
            (None, _) => return Err(ArazzoParseError::new(at, "the document describes no source of type `openapi`")),
            (Some(only), None) => Some(only.name.clone()),
            (Some(_), Some(_)) => None,
        };
        Ok(StepTarget::Operation { source, operation: OperationReference::Id(id.to_owned()) })
    }

    /// `{$sourceDescriptions.shop.url}#/paths/~1pets~1{id}/get`, or with the address itself before the `#`.
    fn parse_operation_path(&self, text: &str, at: &str) -> ArazzoParseResult<StepTarget> {
        let malformed =
            || ArazzoParseError::new(at, "it must be of the form `{$sourceDescriptions.name.url}#/paths/~1pets/get`");
        let (document, pointer) = text.trim().split_once('#').ok_or_else(malformed)?;
        let expression = document.trim_start_matches('{').trim_end_matches('}');
        let source = match expression.strip_prefix("$sourceDescriptions.") {
            Some(rest) => self.find_openapi_source(rest.strip_suffix(".url").unwrap_or(rest), at)?,
            None => {
                let named = self.sources.iter().find(|source| source.url == document);
                self.find_openapi_source(named.map_or(document, |source| source.name.as_str()), at)?
            }
        };
        let parts: Vec<String> =
            pointer.split('/').map(|part| percent_decode(part).replace("~1", "/").replace("~0", "~")).collect();
        match parts.as_slice() {
            [root, paths, path, method] if root.is_empty() && paths == "paths" && path.starts_with('/') => {
                let operation = OperationReference::Path { method: method.to_ascii_uppercase(), path: path.clone() };
                Ok(StepTarget::Operation { source: Some(source), operation })
            }
            _ => Err(malformed()),
        }
    }

    fn find_openapi_source(&self, name: &str, at: &str) -> ArazzoParseResult<String> {
        let shown = sanitize_truncated(name, 60);
        match self.sources.iter().find(|source| source.name == name) {
            Some(source) if source.kind == SourceDescriptionKind::OpenApi => Ok(source.name.clone()),
            Some(_) => {
                Err(ArazzoParseError::new(at, format!("the source description `{shown}` is not of type `openapi`")))
            }
            None => Err(ArazzoParseError::new(at, format!("there is no source description `{shown}`"))),
        }
    }

    fn parse_parameters(
        &self,
        given: &[Value],
        calls_workflow: bool,
        at: &str,
    ) -> ArazzoParseResult<Vec<ParsedParameter>> {
        if given.len() > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(at, format!("there are more than {MAX_LIST_ITEMS} parameters")));
        }
        let mut parameters: Vec<ParsedParameter> = Vec::new();
        for (index, value) in given.iter().enumerate() {
            let at = format!("{at}/{index}");
            let (parameter, own) = self.resolve_reusable(value, "parameters", &at)?;
            let name = parameter.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| ArazzoParseError::new(&at, "the parameter has no `name`"))?.to_owned();
            let place = match parameter.get("in").and_then(Value::as_str) {
                _ if calls_workflow => ParameterDestination::Inputs,
                Some("path") => ParameterDestination::Request(ParameterLocation::Path),
                Some("query") => ParameterDestination::Request(ParameterLocation::Query),
                Some("header") => ParameterDestination::Request(ParameterLocation::Header),
                Some("cookie") => ParameterDestination::Request(ParameterLocation::Cookie),
                Some("querystring") => ParameterDestination::Request(ParameterLocation::Querystring),
                Some("body") => ParameterDestination::Body,
                Some(_) => {
                    return Err(ArazzoParseError::new(at, "`in` is one of `path`, `query`, `header` and `cookie`"));
                }
                None => return Err(ArazzoParseError::new(at, "the parameter of an operation has no `in`")),
            };
            let value = own
                .or(parameter.get("value"))
                .ok_or_else(|| ArazzoParseError::new(&at, "the parameter has no `value`"))?;
            if parameters.iter().any(|other| other.name == name && other.destination == place) {
                return Err(ArazzoParseError::new(at, "an earlier parameter has the same name and place"));
            }
            self.spend_bytes(approximate_size(value) + name.len() + 64, &at)?;
            parameters.push(ParsedParameter { name, destination: place, value: value.clone() });
        }
        Ok(parameters)
    }

    fn parse_actions(
        &self,
        value: &Value,
        name: &str,
        outcome: ActionTrigger,
        ids: &[&str],
        at: &str,
    ) -> ArazzoParseResult<Vec<StepAction>> {
        let mut actions = Vec::new();
        for (index, value) in array_field(value, name).iter().enumerate() {
            let at = format!("{at}/{name}/{index}");
            let (action, _) = self.resolve_reusable(value, outcome.components_key(), &at)?;
            self.spend_bytes(approximate_size(action), &at)?;
            let text = |name: &str| action.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            let target = match (text("stepId"), text("workflowId")) {
                (None, None) => None,
                (Some(id), None) => {
                    let position = ids.iter().position(|known| *known == id);
                    let missing =
                        || ArazzoParseError::new(&at, format!("there is no step `{}`", sanitize_truncated(id, 60)));
                    Some(JumpTarget::Step(position.ok_or_else(missing)?))
                }
                (None, Some(id)) => Some(JumpTarget::Workflow(self.parse_workflow_id(Some(id), &at)?)),
                (Some(_), Some(_)) => {
                    return Err(ArazzoParseError::new(at, "the action has both `stepId` and `workflowId`"));
                }
            };
            let then =
                match (text("type"), outcome) {
                    (Some("end"), _) => ActionKind::End,
                    (Some("goto"), _) => ActionKind::Goto(target.ok_or_else(|| {
                        ArazzoParseError::new(&at, "`goto` names neither a `stepId` nor a `workflowId`")
                    })?),
                    (Some("retry"), ActionTrigger::Failure) => {
                        let after = action.get("retryAfter").and_then(Value::as_f64).unwrap_or(0.0);
                        let limit = action.get("retryLimit").and_then(Value::as_f64).unwrap_or(1.0);
                        if after < 0.0 || limit < 0.0 {
                            return Err(ArazzoParseError::new(at, "`retryAfter` and `retryLimit` are not negative"));
                        }
                        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
                        let limit = limit as u32;
                        ActionKind::Retry {
                            after: Duration::from_secs_f64(after.min(MAX_RETRY_AFTER_SECONDS)),
                            limit,
                            run_before: target,
                        }
                    }
                    (Some("retry"), ActionTrigger::Success) => {
                        return Err(ArazzoParseError::new(at, "only a failure can be retried"));
                    }
                    (Some(other), _) => {
                        return Err(ArazzoParseError::new(
                            at,
                            format!("there is no action of type `{}`", sanitize_truncated(other, 40)),
                        ));
                    }
                    (None, _) => return Err(ArazzoParseError::new(at, "the action has no `type`")),
                };
            let name = text("name").map_or_else(|| format!("#{}", index + 1), str::to_owned);
            let mut criteria = self.parse_criteria(action, "criteria", &at)?;
            // Documents also write the only condition without a list around it.
            if let (true, Some(condition)) = (criteria.is_empty(), action.get("condition")) {
                let criterion = Criterion::parse(&json!({"condition": condition}));
                criteria.push(criterion.map_err(|reason| ArazzoParseError::new(&at, reason))?);
            }
            actions.push(StepAction { name, criteria, kind: then });
        }
        Ok(actions)
    }

    /// The step's own come first, and stand for those of the workflow with the same name.
    fn merge_actions(
        &self,
        mut own: Vec<StepAction>,
        common: &[StepAction],
        at: &str,
    ) -> ArazzoParseResult<Vec<StepAction>> {
        if own.len().max(common.len()) > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(at, format!("there are more than {MAX_LIST_ITEMS} actions")));
        }
        let inherited: Vec<&StepAction> =
            common.iter().filter(|action| !own.iter().any(|own| own.name == action.name)).collect();
        for action in inherited {
            let conditions = action.criteria.iter().map(|criterion| criterion.condition.len() + 256);
            self.spend_bytes(256 + conditions.sum::<usize>(), at)?;
            own.push(action.clone());
        }
        Ok(own)
    }

    fn parse_criteria(&self, value: &Value, name: &str, at: &str) -> ArazzoParseResult<Vec<Criterion>> {
        let read = array_field(value, name).iter().enumerate().map(|(index, value)| {
            let at = format!("{at}/{name}/{index}");
            let simple = matches!(value.get("type").map(Value::as_str), None | Some(Some("simple")));
            self.spend_bytes(if simple { 256 } else { PATTERN_CRITERION_BYTES }, &at)?;
            Criterion::parse(value).map_err(|reason| ArazzoParseError::new(at, reason))
        });
        read.collect()
    }

    /// The object itself, or the one in the components that it refers to, with a value of its own.
    fn resolve_reusable<'v>(
        &'v self,
        value: &'v Value,
        kind: &str,
        at: &str,
    ) -> ArazzoParseResult<(&'v Value, Option<&'v Value>)> {
        let Some(reference) = value.get("reference") else { return Ok((value, None)) };
        let reference = reference.as_str().unwrap_or_default();
        let name = reference.strip_prefix("$components.").and_then(|rest| rest.strip_prefix(kind)?.strip_prefix('.'));
        let found = name.and_then(|name| self.document.get("components")?.get(kind)?.get(name));
        match found {
            Some(found) => Ok((found, value.get("value"))),
            None => Err(ArazzoParseError::new(at, format!("`{}` leads nowhere", sanitize_truncated(reference, 100)))),
        }
    }
}

/// Longer lists would take their time, for their names are compared with each other.
const MAX_LIST_ITEMS: usize = 1000;

/// What a condition with patterns takes when it is compiled: an action in the components is read again for each step
/// that names it.
const PATTERN_CRITERION_BYTES: usize = 32 * 1024;

/// In seconds. Whoever waits has a deadline of its own.
const MAX_RETRY_AFTER_SECONDS: f64 = 3600.0;

/// What a workflow says for all of its steps.
struct WorkflowDefaults<'a> {
    parameters: &'a [Value],
    on_success: Vec<StepAction>,
    on_failure: Vec<StepAction>,
    pointer: &'a str,
}

/// A parameter as it is written.
struct ParsedParameter {
    name: String,
    destination: ParameterDestination,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterDestination {
    Request(ParameterLocation),
    /// Of the workflow that is called.
    Inputs,
    /// Arazzo has no such place, yet documents name properties of the body so.
    Body,
}

#[derive(Clone, Copy)]
enum ActionTrigger {
    Success,
    Failure,
}

impl ActionTrigger {
    fn components_key(self) -> &'static str {
        match self {
            ActionTrigger::Success => "successActions",
            ActionTrigger::Failure => "failureActions",
        }
    }
}
