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
use toolcrib_openapi::request::media_type::{is_token, is_valid};
use toolcrib_schema::array_at;

use super::{ArazzoNode, ArazzoParseResult, ArazzoParser, MAX_RETRY_AFTER, parse_outputs};
use crate::payload::{RequestBodyTemplate, decode_or_keep};
use crate::{
    ActionKind, Criterion, JumpTarget, OperationReference, SourceDescriptionKind, StepAction, StepParameter,
    StepTarget, WorkflowStep,
};

impl<'a> ArazzoParser<'a> {
    /// Parses all steps of a workflow.
    pub(super) fn parse_steps(&self, workflow: &ArazzoNode<'a>) -> ArazzoParseResult<Vec<WorkflowStep>> {
        // Parse the ids first, as actions refer to later steps too.
        let ids = array_at(workflow.value, "steps").iter().map(|step| step.get("stepId").and_then(Value::as_str));
        let ids: Vec<&str> = ids.map(Option::unwrap_or_default).collect();
        if ids.is_empty() {
            return Err(workflow.child("steps").error("it has no steps"));
        }
        if ids.len() > MAX_LIST_ITEMS {
            return Err(workflow.child("steps").error(format!("it has more than {MAX_LIST_ITEMS} steps")));
        }
        let defaults = WorkflowDefaults {
            workflow,
            on_success: self.parse_actions(workflow, "successActions", ActionTrigger::Success, &ids)?,
            on_failure: self.parse_actions(workflow, "failureActions", ActionTrigger::Failure, &ids)?,
        };
        let mut parsed = Vec::new();
        // One invalid step makes the whole workflow invalid: it could not be executed to its end.
        for (index, step) in workflow.items("steps").enumerate() {
            if ids[index].is_empty() {
                return Err(step.error("the step has no `stepId`"));
            }
            if ids[..index].contains(&ids[index]) {
                return Err(step.error("an earlier step has the same `stepId`"));
            }
            parsed.push(self.parse_step(&step, &ids, index, &defaults)?);
        }
        Ok(parsed)
    }

    /// Parses one step and merges the defaults of its workflow into it.
    fn parse_step(
        &self,
        step: &ArazzoNode<'a>,
        ids: &[&str],
        index: usize,
        defaults: &WorkflowDefaults<'a, '_>,
    ) -> ArazzoParseResult<WorkflowStep> {
        let target = self.parse_target(step)?;
        let calls_workflow = matches!(target, StepTarget::Workflow(_));
        // Own parameters first, then those of the workflow that the step does not override: those with another name or
        // destination.
        let mut merged = self.parse_parameters(step, calls_workflow)?;
        for parameter in self.parse_parameters(defaults.workflow, calls_workflow)? {
            if !merged.iter().any(|own| own.is_same(&parameter)) {
                merged.push(parameter);
            }
        }
        let content_type = parse_content_type(step, &mut merged)?;
        let body = step.value.get("requestBody");
        let body = body.map(|body| RequestBodyTemplate::parse(body, content_type.clone())).transpose();
        let mut body = body.map_err(|reason| step.child("requestBody").error(reason))?;
        // Parameters with `in: body` become properties of the body, which may not exist yet.
        let new_body = || RequestBodyTemplate { content_type: content_type.clone(), ..RequestBodyTemplate::default() };
        let mut parameters = Vec::new();
        for ParsedParameter { name, destination, value } in merged {
            let location = match destination {
                ParameterDestination::Body => {
                    body.get_or_insert_with(new_body).set_property(&name, value);
                    continue;
                }
                ParameterDestination::Request(location) => Some(location),
                ParameterDestination::Inputs => None,
            };
            parameters.push(StepParameter { name, location, value });
        }
        let success_criteria = self.parse_criteria(step, "successCriteria")?;
        let on_success = self.parse_actions(step, "onSuccess", ActionTrigger::Success, ids)?;
        let on_success = self.merge_actions(on_success, &defaults.on_success, step)?;
        let on_failure = self.parse_actions(step, "onFailure", ActionTrigger::Failure, ids)?;
        Ok(WorkflowStep {
            id: ids[index].to_owned(),
            target,
            description: step.value.get("description").and_then(Value::as_str).map(str::to_owned),
            parameters,
            body,
            success_criteria,
            on_success,
            on_failure: self.merge_actions(on_failure, &defaults.on_failure, step)?,
            outputs: parse_outputs(step.value),
        })
    }

    /// Parses what a step calls: exactly one of three fields.
    fn parse_target(&self, step: &ArazzoNode<'a>) -> ArazzoParseResult<StepTarget> {
        match (step.text("operationId"), step.text("operationPath"), step.text("workflowId")) {
            (Some(id), None, None) => self.parse_operation_id(id, &step.child("operationId")),
            (None, Some(path), None) => self.parse_operation_path(path, &step.child("operationPath")),
            (None, None, Some(id)) => {
                Ok(StepTarget::Workflow(self.parse_workflow_id(Some(id), &step.child("workflowId"))?))
            }
            (None, None, None) => {
                Err(step.error("the step has neither `operationId` nor `operationPath` nor `workflowId`"))
            }
            _ => Err(step.error("the step has more than one of `operationId`, `operationPath` and `workflowId`")),
        }
    }

    /// Parses an `operationId`, plain or qualified as `$sourceDescriptions.shop.buyPet`. Whether the operation exists
    /// is only known after the OpenAPI document is loaded.
    fn parse_operation_id(&self, id: &str, node: &ArazzoNode<'a>) -> ArazzoParseResult<StepTarget> {
        let inner = id.trim().trim_start_matches('{').trim_end_matches('}');
        if let Some(rest) = inner.strip_prefix("$sourceDescriptions.") {
            let (source, operation) = rest.split_once('.').unwrap_or((rest, ""));
            let operation = operation.strip_prefix("operationId.").unwrap_or(operation);
            if operation.is_empty() {
                return Err(node.error("it names no operation after the source description"));
            }
            let source = Some(self.find_openapi_source(source, node)?);
            return Ok(StepTarget::Operation { source, operation: OperationReference::Id(operation.to_owned()) });
        }
        // Unqualified: unambiguous only if there is a single OpenAPI description.
        let mut openapi_sources = self.sources.iter().filter(|source| source.kind == SourceDescriptionKind::OpenApi);
        let source = match (openapi_sources.next(), openapi_sources.next()) {
            (None, _) => return Err(node.error("the document describes no source of type `openapi`")),
            (Some(only), None) => Some(only.name.clone()),
            // Which document has the operation is only known after they are loaded.
            (Some(_), Some(_)) => None,
        };
        Ok(StepTarget::Operation { source, operation: OperationReference::Id(id.to_owned()) })
    }

    /// Parses `{$sourceDescriptions.shop.url}#/paths/~1pets~1{id}/get`; the part before the `#` may be the URL itself
    /// too, and the method may be missing.
    fn parse_operation_path(&self, text: &str, node: &ArazzoNode<'a>) -> ArazzoParseResult<StepTarget> {
        let malformed = || node.error("it must be of the form `{$sourceDescriptions.name.url}#/paths/~1pets/get`");
        // Before the `#`: an expression or a URL. After it: a JSON pointer into the OpenAPI document.
        let (document, pointer) = text.trim().split_once('#').ok_or_else(malformed)?;
        if document.is_empty() {
            return Err(
                node.error("it names no document before the `#`; write `{$sourceDescriptions.name.url}#/paths/…`")
            );
        }
        let expression = document.trim_start_matches('{').trim_end_matches('}');
        let name = match expression.strip_prefix("$sourceDescriptions.") {
            Some(rest) => rest.strip_suffix(".url").unwrap_or(rest),
            None => {
                let description = self.sources.iter().find(|source| source.url == document);
                description.map_or(document, |source| source.name.as_str())
            }
        };
        let source = self.find_openapi_source(name, node)?;
        // The path template is one segment of the pointer, with `/` escaped as `~1`; some documents percent-encode it.
        let parts: Vec<String> = pointer.split('/').map(|part| unescape_pointer_token(&decode_or_keep(part))).collect();
        let (path, method) = match parts.as_slice() {
            [root, paths, path, method @ ..] if root.is_empty() && paths == "paths" && path.starts_with('/') => {
                (path, method)
            }
            _ => return Err(malformed()),
        };
        let method = match method {
            [] => None,
            [method] if !method.is_empty() => Some(method.to_ascii_uppercase()),
            _ => return Err(malformed()),
        };
        let operation = OperationReference::Path { method, path: path.clone() };
        Ok(StepTarget::Operation { source: Some(source), operation })
    }

    /// Checks that a source description exists and is an OpenAPI document.
    fn find_openapi_source(&self, name: &str, node: &ArazzoNode<'_>) -> ArazzoParseResult<String> {
        // Arazzo documents can be described as sources too, but their workflows are not called.
        let shown = sanitize_truncated(name, 60);
        match self.sources.iter().find(|source| source.name == name) {
            Some(source) if source.kind == SourceDescriptionKind::OpenApi => Ok(source.name.clone()),
            Some(_) => Err(node.error(format!("the source description `{shown}` is not of type `openapi`"))),
            None => Err(node.error(format!("there is no source description `{shown}`"))),
        }
    }

    /// Parses the parameters of a step or a workflow, following references to components.
    fn parse_parameters(
        &self,
        parent: &ArazzoNode<'a>,
        calls_workflow: bool,
    ) -> ArazzoParseResult<Vec<ParsedParameter>> {
        if array_at(parent.value, "parameters").len() > MAX_LIST_ITEMS {
            let reason = format!("there are more than {MAX_LIST_ITEMS} parameters");
            return Err(parent.child("parameters").error(reason));
        }
        let mut parameters: Vec<ParsedParameter> = Vec::new();
        // A repeated name in one list is an error and not an override: which one is meant is unknown.
        for node in parent.items("parameters") {
            let parameter = self.resolve_reusable(&node, "parameters")?;
            let name = parameter.text("name").ok_or_else(|| node.error("the parameter has no `name`"))?.to_owned();
            let location = parameter.value.get("in").and_then(Value::as_str);
            let destination = match (location, location.and_then(ParameterLocation::parse)) {
                // `in` has no meaning for a workflow and is ignored.
                _ if calls_workflow => ParameterDestination::Inputs,
                (_, Some(location)) => ParameterDestination::Request(location),
                (Some("body"), None) => ParameterDestination::Body,
                (Some(_), None) => return Err(node.error("`in` must be `path`, `query`, `header` or `cookie`")),
                (None, None) => return Err(node.error("the parameter of an operation has no `in`")),
            };
            // The value beside a reference overrides that of the component.
            let value = node.value.get("value").or(parameter.value.get("value"));
            let value = value.ok_or_else(|| node.error("the parameter has no `value`"))?.clone();
            // An invalid name could begin another header.
            if destination == ParameterDestination::Request(ParameterLocation::Header) && !is_token(&name) {
                return Err(node.error("its `name` is not the name of a header"));
            }
            let parsed = ParsedParameter { name, destination, value };
            if parameters.iter().any(|other| other.is_same(&parsed)) {
                return Err(node.error("an earlier parameter has the same name and `in`"));
            }
            // A reusable parameter is copied for each step that refers to it.
            self.spend_bytes(approximate_size(&parsed.value) + parsed.name.len() + 64, &node)?;
            parameters.push(parsed);
        }
        Ok(parameters)
    }

    /// Parses a list of actions, following references to components. `ids` are the steps that actions can jump to.
    fn parse_actions(
        &self,
        parent: &ArazzoNode<'a>,
        name: &str,
        trigger: ActionTrigger,
        ids: &[&str],
    ) -> ArazzoParseResult<Vec<StepAction>> {
        let mut actions = Vec::new();
        for (index, node) in parent.items(name).enumerate() {
            let action = self.resolve_reusable(&node, trigger.components_key())?;
            self.spend_bytes(approximate_size(action.value), &node)?;
            // The target of `goto`, or what a retry executes first.
            let target = match (action.text("stepId"), action.text("workflowId")) {
                (None, None) => None,
                (Some(id), None) => {
                    let position = ids.iter().position(|other| *other == id);
                    let missing = || node.error(format!("there is no step `{}`", sanitize_truncated(id, 60)));
                    Some(JumpTarget::Step(position.ok_or_else(missing)?))
                }
                (None, Some(id)) => Some(JumpTarget::Workflow(self.parse_workflow_id(Some(id), &node)?)),
                (Some(_), Some(_)) => return Err(node.error("the action has both `stepId` and `workflowId`")),
            };
            // The type decides which of the other fields count.
            let kind = match (action.text("type"), trigger) {
                (Some("end"), _) => ActionKind::End,
                (Some("goto"), _) => {
                    let missing = || node.error("`goto` names neither a `stepId` nor a `workflowId`");
                    ActionKind::Goto(target.ok_or_else(missing)?)
                }
                (Some("retry"), ActionTrigger::Failure) => {
                    // Both are read as floats, so that `3.0` counts too. Without a limit there is a single retry, as
                    // Arazzo specifies.
                    let number = |name: &str| action.value.get(name).and_then(Value::as_f64);
                    let after = number("retryAfter").unwrap_or(0.0);
                    let limit = number("retryLimit").unwrap_or(1.0);
                    if after < 0.0 || limit < 0.0 {
                        return Err(node.error("`retryAfter` and `retryLimit` must not be negative"));
                    }
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
                    let limit = limit as u32;
                    let after = Duration::from_secs_f64(after.min(MAX_RETRY_AFTER.as_secs_f64()));
                    ActionKind::Retry { after, limit, run_before: target }
                }
                (Some("retry"), ActionTrigger::Success) => return Err(node.error("only a failure can be retried")),
                (Some(other), _) => {
                    return Err(node.error(format!("unknown action type `{}`", sanitize_truncated(other, 40))));
                }
                (None, _) => return Err(node.error("the action has no `type`")),
            };
            // An action without name is numbered, so that retries can be counted by name.
            let name = action.text("name").map_or_else(|| format!("#{}", index + 1), str::to_owned);
            let mut criteria = self.parse_criteria(&action, "criteria")?;
            // Real documents also write a single condition without a list.
            if let (true, Some(condition)) = (criteria.is_empty(), action.value.get("condition")) {
                let criterion = Criterion::parse(&json!({"condition": condition}));
                criteria.push(criterion.map_err(|reason| node.error(reason))?);
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
        step: &ArazzoNode<'_>,
    ) -> ArazzoParseResult<Vec<StepAction>> {
        if own.len().max(defaults.len()) > MAX_LIST_ITEMS {
            return Err(step.error(format!("there are more than {MAX_LIST_ITEMS} actions")));
        }
        // Own actions come first and are therefore tried first.
        let inherited: Vec<&StepAction> =
            defaults.iter().filter(|action| !own.iter().any(|own| own.name == action.name)).collect();
        for action in inherited {
            // Inherited actions are cloned for each step, so their size counts each time.
            let conditions = action.criteria.iter().map(|criterion| criterion.condition.len() + 256);
            self.spend_bytes(256 + conditions.sum::<usize>(), step)?;
            own.push(action.clone());
        }
        Ok(own)
    }

    /// Parses a list of criteria.
    fn parse_criteria(&self, parent: &ArazzoNode<'a>, name: &str) -> ArazzoParseResult<Vec<Criterion>> {
        let criteria = parent.items(name).map(|node| {
            // Charged before parsing, because a compiled pattern is far larger than its text.
            let is_simple = matches!(node.value.get("type").map(Value::as_str), None | Some(Some("simple")));
            self.spend_bytes(if is_simple { 256 } else { PATTERN_CRITERION_BYTES }, &node)?;
            Criterion::parse(node.value).map_err(|reason| node.error(reason))
        });
        criteria.collect()
    }

    /// Follows a reference to a component. Errors still name the place of the reference.
    fn resolve_reusable(&self, node: &ArazzoNode<'a>, kind: &str) -> ArazzoParseResult<ArazzoNode<'a>> {
        // `{"reference": "$components.parameters.page", "value": 2}`
        let Some(reference) = node.value.get("reference") else { return Ok(node.clone()) };
        let reference = reference.as_str().unwrap_or_default();
        let name = reference.strip_prefix("$components.").and_then(|rest| rest.strip_prefix(kind)?.strip_prefix('.'));
        let component = name.and_then(|name| self.document.get("components")?.get(kind)?.get(name));
        match component {
            Some(value) => Ok(ArazzoNode { value, pointer: node.pointer.clone() }),
            None => Err(node.error(format!("`{}` cannot be resolved", sanitize_truncated(reference, 100)))),
        }
    }
}

/// Takes the media type of the body: `contentType`, or else a header parameter `Content-Type`. Without a body there is
/// none.
fn parse_content_type(
    step: &ArazzoNode<'_>,
    parameters: &mut Vec<ParsedParameter>,
) -> ArazzoParseResult<Option<String>> {
    let header = parameters.iter().find(|parameter| parameter.is_content_type()).map(|header| header.value.clone());
    parameters.retain(|parameter| !parameter.is_content_type());
    let has_body = step.value.get("requestBody").is_some()
        || parameters.iter().any(|parameter| parameter.destination == ParameterDestination::Body);
    let field = step.child("requestBody").child("contentType");
    let (value, node) = match (field.value, header) {
        (Value::Null, Some(header)) => (header, step.child("parameters")),
        (value, _) => (value.clone(), field),
    };
    if !has_body || value.is_null() {
        return Ok(None);
    }
    match value.as_str().map(str::trim).filter(|text| is_valid(text)) {
        Some(text) => Ok(Some(text.to_owned())),
        None => Err(node.error("the content type must be a media type such as `application/json`, not an expression")),
    }
}

/// Maximum number of items in a list. Names are compared pairwise, which takes quadratic time.
const MAX_LIST_ITEMS: usize = 1000;

/// Memory of a compiled criterion with patterns. Counted for each use, because a reusable action is parsed again for
/// each step that refers to it.
const PATTERN_CRITERION_BYTES: usize = 32 * 1024;

/// Parameters and actions of a workflow that apply to all of its steps.
struct WorkflowDefaults<'a, 'n> {
    /// The workflow, whose parameters are parsed for each step.
    workflow: &'n ArazzoNode<'a>,
    on_success: Vec<StepAction>,
    on_failure: Vec<StepAction>,
}

/// A parameter before it is assigned to request, inputs or body.
struct ParsedParameter {
    name: String,
    destination: ParameterDestination,
    value: Value,
}

impl ParsedParameter {
    /// Whether another parameter has the same name and destination.
    fn is_same(&self, other: &ParsedParameter) -> bool {
        self.name == other.name && self.destination == other.destination
    }

    /// Whether it is the header `Content-Type`.
    fn is_content_type(&self) -> bool {
        self.destination == ParameterDestination::Request(ParameterLocation::Header)
            && self.name.eq_ignore_ascii_case("content-type")
    }
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
