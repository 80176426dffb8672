//! Parses steps: what they call, with which parameters, and the actions that follow.
//!
//! Parameters and actions of the workflow apply to each of its steps unless a step has its own of the same name. They
//! are merged here, so that an execution reads one list per step:
//!
//! ```json
//! {"stepId": "buy", "operationId": "$sourceDescriptions.shop.buyPet",
//!  "parameters": [{"name": "id", "in": "path", "value": "$inputs.id"}],
//!  "onFailure": [{"name": "again", "type": "retry", "retryAfter": 2, "retryLimit": 3}]}
//! ```

use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_core::execution::ParameterLocation;
use toolcrib_core::json::unescape_pointer_token;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression::approximate_size;
use toolcrib_schema::array_at;

use super::{ArazzoParseError, ArazzoParseResult, ArazzoParser, parse_outputs};
use crate::payload::{RequestBodyTemplate, decode_or_keep};
use crate::{
    ActionKind, Criterion, JumpTarget, OperationReference, SourceDescriptionKind, StepAction, StepParameter,
    StepTarget, WorkflowStep,
};

impl ArazzoParser<'_> {
    /// Parses all steps of a workflow.
    pub(super) fn parse_steps(&self, workflow: &Value, pointer: &str) -> ArazzoParseResult<Vec<WorkflowStep>> {
        let steps = array_at(workflow, "steps");
        if steps.is_empty() {
            return Err(ArazzoParseError::new(format!("{pointer}/steps"), "it has no steps"));
        }
        if steps.len() > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(
                format!("{pointer}/steps"),
                format!("it has more than {MAX_LIST_ITEMS} steps"),
            ));
        }
        // Parse the ids first, as actions refer to later steps too.
        let ids: Vec<&str> =
            steps.iter().map(|step| step.get("stepId").and_then(Value::as_str).unwrap_or_default()).collect();
        let defaults = WorkflowDefaults {
            parameters: array_at(workflow, "parameters"),
            on_success: self.parse_actions(workflow, "successActions", ActionTrigger::Success, &ids, pointer)?,
            on_failure: self.parse_actions(workflow, "failureActions", ActionTrigger::Failure, &ids, pointer)?,
            pointer,
        };
        let mut parsed = Vec::new();
        // One invalid step makes the whole workflow invalid: it could not be executed to its end.
        for (index, value) in steps.iter().enumerate() {
            let pointer = format!("{pointer}/steps/{index}");
            match ids.iter().position(|id| *id == ids[index]) {
                _ if ids[index].is_empty() => return Err(ArazzoParseError::new(pointer, "the step has no `stepId`")),
                Some(first) if first < index => {
                    return Err(ArazzoParseError::new(pointer, "an earlier step has the same `stepId`"));
                }
                Some(_) | None => parsed.push(self.parse_step(value, &ids, index, &defaults, &pointer)?),
            }
        }
        Ok(parsed)
    }

    /// Parses one step and merges the defaults of its workflow into it.
    fn parse_step(
        &self,
        value: &Value,
        ids: &[&str],
        index: usize,
        defaults: &WorkflowDefaults<'_>,
        pointer: &str,
    ) -> ArazzoParseResult<WorkflowStep> {
        let target = self.parse_target(value, pointer)?;
        let calls_workflow = matches!(target, StepTarget::Workflow { .. });
        // Own parameters first, then those of the workflow that the step does not override.
        let mut merged =
            self.parse_parameters(array_at(value, "parameters"), calls_workflow, &format!("{pointer}/parameters"))?;
        let inherited =
            self.parse_parameters(defaults.parameters, calls_workflow, &format!("{}/parameters", defaults.pointer))?;
        // The step's own parameters replace those of the workflow with the same name and destination.
        for parameter in inherited {
            let is_same =
                |own: &ParsedParameter| own.name == parameter.name && own.destination == parameter.destination;
            if !merged.iter().any(is_same) {
                merged.push(parameter);
            }
        }
        // Parameters with `in: body` become properties of the body, which may not exist yet.
        let body = value.get("requestBody").map(RequestBodyTemplate::parse).transpose();
        let mut body = body.map_err(|reason| ArazzoParseError::new(format!("{pointer}/requestBody"), reason))?;
        let mut parameters = Vec::new();
        for ParsedParameter { name, destination, value } in merged {
            match destination {
                ParameterDestination::Body => body.get_or_insert_default().set_property(&name, value),
                ParameterDestination::Request(location) => {
                    parameters.push(StepParameter { name, location: Some(location), value })
                }
                ParameterDestination::Inputs => parameters.push(StepParameter { name, location: None, value }),
            }
        }
        Ok(WorkflowStep {
            id: ids[index].to_owned(),
            target,
            description: value.get("description").and_then(Value::as_str).map(str::to_owned),
            parameters,
            body,
            success_criteria: self.parse_criteria(value, "successCriteria", pointer)?,
            on_success: self.merge_actions(
                self.parse_actions(value, "onSuccess", ActionTrigger::Success, ids, pointer)?,
                &defaults.on_success,
                pointer,
            )?,
            on_failure: self.merge_actions(
                self.parse_actions(value, "onFailure", ActionTrigger::Failure, ids, pointer)?,
                &defaults.on_failure,
                pointer,
            )?,
            outputs: parse_outputs(value),
        })
    }

    /// Parses what a step calls: exactly one of three fields.
    fn parse_target(&self, value: &Value, pointer: &str) -> ArazzoParseResult<StepTarget> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        match (text("operationId"), text("operationPath"), text("workflowId")) {
            (Some(id), None, None) => self.parse_operation_id(id, &format!("{pointer}/operationId")),
            (None, Some(path), None) => self.parse_operation_path(path, &format!("{pointer}/operationPath")),
            (None, None, Some(id)) => {
                Ok(StepTarget::Workflow { id: self.parse_workflow_id(Some(id), &format!("{pointer}/workflowId"))? })
            }
            (None, None, None) => Err(ArazzoParseError::new(
                pointer,
                "the step has neither `operationId` nor `operationPath` nor `workflowId`",
            )),
            _ => Err(ArazzoParseError::new(
                pointer,
                "the step has more than one of `operationId`, `operationPath` and `workflowId`",
            )),
        }
    }

    /// Parses an `operationId`, plain or qualified as `$sourceDescriptions.shop.buyPet`. Whether the operation exists
    /// is only known after the OpenAPI document is loaded.
    fn parse_operation_id(&self, id: &str, pointer: &str) -> ArazzoParseResult<StepTarget> {
        let inner = id.trim().trim_start_matches('{').trim_end_matches('}');
        if let Some(rest) = inner.strip_prefix("$sourceDescriptions.") {
            let (source, operation) = rest.split_once('.').unwrap_or((rest, ""));
            let operation = operation.strip_prefix("operationId.").unwrap_or(operation);
            if operation.is_empty() {
                return Err(ArazzoParseError::new(pointer, "it names no operation after the source description"));
            }
            let source = self.find_openapi_source(source, pointer)?;
            return Ok(StepTarget::Operation {
                source: Some(source),
                operation: OperationReference::Id(operation.to_owned()),
            });
        }
        // Unqualified: unambiguous only if there is a single OpenAPI description.
        let mut openapi_sources = self.sources.iter().filter(|source| source.kind == SourceDescriptionKind::OpenApi);
        let source = match (openapi_sources.next(), openapi_sources.next()) {
            (None, _) => {
                return Err(ArazzoParseError::new(pointer, "the document describes no source of type `openapi`"));
            }
            (Some(only), None) => Some(only.name.clone()),
            // Which document has the operation is only known after they are loaded.
            (Some(_), Some(_)) => None,
        };
        Ok(StepTarget::Operation { source, operation: OperationReference::Id(id.to_owned()) })
    }

    /// Parses `{$sourceDescriptions.shop.url}#/paths/~1pets~1{id}/get`; the part before the `#` may be the URL itself
    /// too.
    fn parse_operation_path(&self, text: &str, pointer: &str) -> ArazzoParseResult<StepTarget> {
        let malformed = || {
            ArazzoParseError::new(pointer, "it must be of the form `{$sourceDescriptions.name.url}#/paths/~1pets/get`")
        };
        // Before the `#`: an expression or a URL. After it: a JSON pointer into the OpenAPI document.
        let (document, pointer) = text.trim().split_once('#').ok_or_else(malformed)?;
        let expression = document.trim_start_matches('{').trim_end_matches('}');
        let source = match expression.strip_prefix("$sourceDescriptions.") {
            Some(rest) => self.find_openapi_source(rest.strip_suffix(".url").unwrap_or(rest), pointer)?,
            None => {
                let description = self.sources.iter().find(|source| source.url == document);
                self.find_openapi_source(description.map_or(document, |source| source.name.as_str()), pointer)?
            }
        };
        // The path template is one segment of the pointer, with `/` escaped as `~1`; some documents percent-encode it.
        let parts: Vec<String> = pointer.split('/').map(|part| unescape_pointer_token(&decode_or_keep(part))).collect();
        match parts.as_slice() {
            [root, paths, path, method] if root.is_empty() && paths == "paths" && path.starts_with('/') => {
                let operation = OperationReference::Path { method: method.to_ascii_uppercase(), path: path.clone() };
                Ok(StepTarget::Operation { source: Some(source), operation })
            }
            _ => Err(malformed()),
        }
    }

    /// Checks that a source description exists and is an OpenAPI document.
    fn find_openapi_source(&self, name: &str, pointer: &str) -> ArazzoParseResult<String> {
        // Arazzo documents can be described as sources too, but their workflows are not called.
        let shown = sanitize_truncated(name, 60);
        match self.sources.iter().find(|source| source.name == name) {
            Some(source) if source.kind == SourceDescriptionKind::OpenApi => Ok(source.name.clone()),
            Some(_) => Err(ArazzoParseError::new(
                pointer,
                format!("the source description `{shown}` is not of type `openapi`"),
            )),
            None => Err(ArazzoParseError::new(pointer, format!("there is no source description `{shown}`"))),
        }
    }

    /// Parses a list of parameters, following references to components.
    fn parse_parameters(
        &self,
        values: &[Value],
        calls_workflow: bool,
        pointer: &str,
    ) -> ArazzoParseResult<Vec<ParsedParameter>> {
        if values.len() > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(pointer, format!("there are more than {MAX_LIST_ITEMS} parameters")));
        }
        let mut parameters: Vec<ParsedParameter> = Vec::new();
        // A repeated name in one list is an error and not an override: which one is meant is unknown.
        for (index, value) in values.iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            let (parameter, override_value) = self.resolve_reusable(value, "parameters", &pointer)?;
            let name = parameter.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| ArazzoParseError::new(&pointer, "the parameter has no `name`"))?.to_owned();
            let destination = match parameter.get("in").and_then(Value::as_str) {
                // `in` has no meaning for a workflow and is ignored.
                _ if calls_workflow => ParameterDestination::Inputs,
                Some("path") => ParameterDestination::Request(ParameterLocation::Path),
                Some("query") => ParameterDestination::Request(ParameterLocation::Query),
                Some("header") => ParameterDestination::Request(ParameterLocation::Header),
                Some("cookie") => ParameterDestination::Request(ParameterLocation::Cookie),
                Some("querystring") => ParameterDestination::Request(ParameterLocation::Querystring),
                Some("body") => ParameterDestination::Body,
                Some(_) => {
                    return Err(ArazzoParseError::new(pointer, "`in` must be `path`, `query`, `header` or `cookie`"));
                }
                None => return Err(ArazzoParseError::new(pointer, "the parameter of an operation has no `in`")),
            };
            let value = override_value
                .or(parameter.get("value"))
                .ok_or_else(|| ArazzoParseError::new(&pointer, "the parameter has no `value`"))?;
            if parameters.iter().any(|other| other.name == name && other.destination == destination) {
                return Err(ArazzoParseError::new(pointer, "an earlier parameter has the same name and `in`"));
            }
            // A reusable parameter is copied for each step that refers to it.
            self.spend_bytes(approximate_size(value) + name.len() + 64, &pointer)?;
            parameters.push(ParsedParameter { name, destination, value: value.clone() });
        }
        Ok(parameters)
    }

    /// Parses a list of actions, following references to components. `ids` are the steps that actions can jump to.
    fn parse_actions(
        &self,
        value: &Value,
        name: &str,
        trigger: ActionTrigger,
        ids: &[&str],
        pointer: &str,
    ) -> ArazzoParseResult<Vec<StepAction>> {
        let mut actions = Vec::new();
        for (index, value) in array_at(value, name).iter().enumerate() {
            let pointer = format!("{pointer}/{name}/{index}");
            let (action, _) = self.resolve_reusable(value, trigger.components_key(), &pointer)?;
            self.spend_bytes(approximate_size(action), &pointer)?;
            let text = |name: &str| action.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            // The target of `goto`, or what a retry executes first.
            let target = match (text("stepId"), text("workflowId")) {
                (None, None) => None,
                (Some(id), None) => {
                    let position = ids.iter().position(|other| *other == id);
                    let missing = || {
                        ArazzoParseError::new(&pointer, format!("there is no step `{}`", sanitize_truncated(id, 60)))
                    };
                    Some(JumpTarget::Step(position.ok_or_else(missing)?))
                }
                (None, Some(id)) => Some(JumpTarget::Workflow(self.parse_workflow_id(Some(id), &pointer)?)),
                (Some(_), Some(_)) => {
                    return Err(ArazzoParseError::new(pointer, "the action has both `stepId` and `workflowId`"));
                }
            };
            // The type decides which of the other fields count.
            let kind = match (text("type"), trigger) {
                (Some("end"), _) => ActionKind::End,
                (Some("goto"), _) => ActionKind::Goto(target.ok_or_else(|| {
                    ArazzoParseError::new(&pointer, "`goto` names neither a `stepId` nor a `workflowId`")
                })?),
                (Some("retry"), ActionTrigger::Failure) => {
                    // Both are read as floats, so that `3.0` counts too. Without a limit there is a single retry, as
                    // Arazzo specifies.
                    let after = action.get("retryAfter").and_then(Value::as_f64).unwrap_or(0.0);
                    let limit = action.get("retryLimit").and_then(Value::as_f64).unwrap_or(1.0);
                    if after < 0.0 || limit < 0.0 {
                        return Err(ArazzoParseError::new(
                            pointer,
                            "`retryAfter` and `retryLimit` must not be negative",
                        ));
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
                    return Err(ArazzoParseError::new(pointer, "only a failure can be retried"));
                }
                (Some(other), _) => {
                    return Err(ArazzoParseError::new(
                        pointer,
                        format!("unknown action type `{}`", sanitize_truncated(other, 40)),
                    ));
                }
                (None, _) => return Err(ArazzoParseError::new(pointer, "the action has no `type`")),
            };
            // An action without name is numbered, so that retries can be counted by name.
            let name = text("name").map_or_else(|| format!("#{}", index + 1), str::to_owned);
            let mut criteria = self.parse_criteria(action, "criteria", &pointer)?;
            // Real documents also write a single condition without a list.
            if let (true, Some(condition)) = (criteria.is_empty(), action.get("condition")) {
                let criterion = Criterion::parse(&json!({"condition": condition}));
                criteria.push(criterion.map_err(|reason| ArazzoParseError::new(&pointer, reason))?);
            }
            actions.push(StepAction { name, criteria, kind });
        }
        Ok(actions)
    }

    /// Appends the workflow's actions to the step's own; an own action replaces one of the same name.
    fn merge_actions(
        &self,
        mut own: Vec<StepAction>,
        defaults: &[StepAction],
        pointer: &str,
    ) -> ArazzoParseResult<Vec<StepAction>> {
        if own.len().max(defaults.len()) > MAX_LIST_ITEMS {
            return Err(ArazzoParseError::new(pointer, format!("there are more than {MAX_LIST_ITEMS} actions")));
        }
        // Own actions come first and are therefore tried first.
        let inherited: Vec<&StepAction> =
            defaults.iter().filter(|action| !own.iter().any(|own| own.name == action.name)).collect();
        for action in inherited {
            // Inherited actions are cloned for each step, so their size counts each time.
            let conditions = action.criteria.iter().map(|criterion| criterion.condition.len() + 256);
            self.spend_bytes(256 + conditions.sum::<usize>(), pointer)?;
            own.push(action.clone());
        }
        Ok(own)
    }

    /// Parses a list of criteria.
    fn parse_criteria(&self, value: &Value, name: &str, pointer: &str) -> ArazzoParseResult<Vec<Criterion>> {
        let criteria = array_at(value, name).iter().enumerate().map(|(index, value)| {
            let pointer = format!("{pointer}/{name}/{index}");
            // Charged before parsing, because a compiled pattern is far larger than its text.
            let is_simple = matches!(value.get("type").map(Value::as_str), None | Some(Some("simple")));
            self.spend_bytes(if is_simple { 256 } else { PATTERN_CRITERION_BYTES }, &pointer)?;
            Criterion::parse(value).map_err(|reason| ArazzoParseError::new(pointer, reason))
        });
        criteria.collect()
    }

    /// Follows a reference to a component. Returns the object, and the value beside the reference, which overrides its
    /// own.
    fn resolve_reusable<'v>(
        &'v self,
        value: &'v Value,
        kind: &str,
        pointer: &str,
    ) -> ArazzoParseResult<(&'v Value, Option<&'v Value>)> {
        // `{"reference": "$components.parameters.page", "value": 2}`
        let Some(reference) = value.get("reference") else { return Ok((value, None)) };
        let reference = reference.as_str().unwrap_or_default();
        let name = reference.strip_prefix("$components.").and_then(|rest| rest.strip_prefix(kind)?.strip_prefix('.'));
        let component = name.and_then(|name| self.document.get("components")?.get(kind)?.get(name));
        match component {
            Some(component) => Ok((component, value.get("value"))),
            None => Err(ArazzoParseError::new(
                pointer,
                format!("`{}` cannot be resolved", sanitize_truncated(reference, 100)),
            )),
        }
    }
}

/// Maximum number of items in a list. Names are compared pairwise, which takes quadratic time.
const MAX_LIST_ITEMS: usize = 1000;

/// Memory of a compiled criterion with patterns. Counted for each use, because a reusable action is parsed again for
/// each step that refers to it.
const PATTERN_CRITERION_BYTES: usize = 32 * 1024;

/// Maximum pause before a retry. Callers have deadlines of their own, usually shorter ones. The same bound applies to a
/// server's `Retry-After` (`run/step_result.rs`).
const MAX_RETRY_AFTER_SECONDS: f64 = 3600.0;

/// Parameters and actions of a workflow that apply to all of its steps.
struct WorkflowDefaults<'a> {
    parameters: &'a [Value],
    on_success: Vec<StepAction>,
    on_failure: Vec<StepAction>,
    /// JSON pointer of the workflow.
    pointer: &'a str,
}

/// A parameter before it is assigned to request, inputs or body.
struct ParsedParameter {
    name: String,
    destination: ParameterDestination,
    value: Value,
}

/// Where the value of a parameter goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterDestination {
    Request(ParameterLocation),
    /// Inputs of the called workflow.
    Inputs,
    /// Property of the body. Not part of Arazzo, but real documents write `in: body`.
    Body,
}

/// Outcome of a step that triggers an action.
#[derive(Clone, Copy)]
enum ActionTrigger {
    Success,
    Failure,
}

impl ActionTrigger {
    /// Key of the reusable actions in `components`.
    fn components_key(self) -> &'static str {
        match self {
            ActionTrigger::Success => "successActions",
            ActionTrigger::Failure => "failureActions",
        }
    }
}
