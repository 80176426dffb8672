//! A workflow in progress: its inputs, what its steps gave, and which of them is due.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::OperationResponse;
use crate::arazzo::tool::input_schema;
use crate::arazzo::{ActionKind, StepAction, Workflow};

#[derive(Debug)]
pub(super) struct WorkflowFrame<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) purpose: WorkflowPurpose,
    pub(super) inputs: Value,
    /// Inputs that were not given and need not be.
    pub(super) absent_inputs: HashSet<String>,
    /// `$steps`
    pub(super) steps: Value,
    /// The step that is due.
    pub(super) current_step: usize,
    /// The answer to the last step that had one.
    pub(super) last_response: Option<OperationResponse>,
    /// The next one last.
    pub(super) dependencies: Vec<&'a str>,
    /// Steps to go back to after the one that is due.
    return_steps: Vec<usize>,
    /// By step and name of the action, since the step's last success.
    retries: BTreeMap<(usize, &'a str), u32>,
}

/// What a workflow is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkflowPurpose {
    Tool,
    /// It is a step of the one before.
    Step,
    /// The one before depends on it.
    Dependency,
    /// A step of the one before is tried again after it.
    BeforeRetry,
}

impl<'a> WorkflowFrame<'a> {
    /// What is not given has its default, where the schema has one.
    pub(super) fn new(workflow: &'a Workflow, inputs: Value, purpose: WorkflowPurpose) -> WorkflowFrame<'a> {
        let schema = input_schema(&workflow.inputs);
        let declared = schema.get("properties").and_then(Value::as_object);
        let mut given = match inputs {
            Value::Object(given) => given,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        for (name, property) in declared.into_iter().flatten() {
            if let Some(default) = property.get("default").filter(|_| !given.contains_key(name)) {
                given.insert(name.clone(), default.clone());
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: HashSet<&str> = required.filter_map(Value::as_str).collect();
        let absent = declared.into_iter().flat_map(Map::keys).filter(|name| !given.contains_key(*name));
        let absent = absent.filter(|name| !required.contains(name.as_str())).cloned().collect();
        WorkflowFrame {
            workflow,
            purpose,
            inputs: Value::Object(given),
            absent_inputs: absent,
            steps: json!({}),
            current_step: 0,
            last_response: None,
            dependencies: workflow.depends_on.iter().rev().map(String::as_str).collect(),
            return_steps: Vec::new(),
            retries: BTreeMap::new(),
        }
    }

    /// Whether an action can still be taken: a retry only so many times.
    pub(super) fn can_take(&self, action: &'a StepAction) -> bool {
        match action.kind {
            ActionKind::Retry { limit, .. } => {
                self.retries.get(&(self.current_step, action.name.as_str())).copied().unwrap_or(0) < limit
            }
            ActionKind::End | ActionKind::Goto(_) => true,
        }
    }

    pub(super) fn count_retry(&mut self, action: &'a StepAction) {
        *self.retries.entry((self.current_step, action.name.as_str())).or_default() += 1;
    }

    pub(super) fn record_success(&mut self, step: &str, outputs: Value) {
        self.steps[step] = json!({});
        self.steps[step]["outputs"] = outputs;
        let at = self.current_step;
        self.retries.retain(|(position, _), _| *position != at);
    }

    pub(super) fn go_to(&mut self, position: usize) {
        self.return_steps.clear();
        self.current_step = position;
    }

    /// Runs another step, and then the one that is due.
    pub(super) fn detour_to(&mut self, position: usize) {
        self.return_steps.push(self.current_step);
        self.current_step = position;
    }

    pub(super) fn return_from_detour(&mut self) -> bool {
        let back = self.return_steps.pop();
        self.current_step = back.unwrap_or(self.current_step);
        back.is_some()
    }

    pub(super) fn first_step_id(&self) -> String {
        self.workflow.steps.first().map(|step| step.id.clone()).unwrap_or_default()
    }

    pub(super) fn current_step_id(&self) -> String {
        self.workflow.steps.get(self.current_step).map(|step| step.id.clone()).unwrap_or_default()
    }
}
