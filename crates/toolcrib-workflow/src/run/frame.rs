//! Frame of the call stack: a workflow in progress with its inputs, the outputs of its steps, and its current step. It
//! decides nothing: which action follows a step is determined in `run`.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};
use toolcrib_schema::array_at;

use super::OperationResponse;
use crate::tool::input_schema;
use crate::{ActionKind, StepAction, Workflow, WorkflowReference};

/// One workflow in progress.
#[derive(Debug)]
pub(super) struct WorkflowFrame<'a> {
    /// Position of the document of the workflow.
    pub(super) document: usize,
    pub(super) workflow: &'a Workflow,
    pub(super) purpose: WorkflowPurpose,
    pub(super) inputs: Value,
    /// Optional inputs without value; parameters and fields that consist of them are left out.
    pub(super) absent_inputs: HashSet<String>,
    /// `$steps`
    pub(super) steps: Value,
    /// Position of the current step.
    pub(super) current_step: usize,
    /// Last response of any step.
    pub(super) last_response: Option<OperationResponse>,
    /// Workflows to execute before the first step, in reverse order.
    pub(super) dependencies: Vec<&'a WorkflowReference>,
    /// Steps to return to after a detour, innermost last.
    return_steps: Vec<usize>,
    /// Number of retries by step and action since the last success of the step.
    retries: BTreeMap<(usize, &'a str), u32>,
}

/// Why a workflow is executed; determines what happens when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkflowPurpose {
    /// It was called as a tool.
    Tool,
    /// It is the target of a step of the frame below.
    Step,
    /// The frame below depends on it.
    Dependency,
    /// A step of the frame below is retried after it.
    BeforeRetry,
}

impl<'a> WorkflowFrame<'a> {
    /// Creates a frame. Missing inputs get the defaults of the schema.
    pub(super) fn new(
        document: usize,
        workflow: &'a Workflow,
        inputs: Value,
        purpose: WorkflowPurpose,
    ) -> WorkflowFrame<'a> {
        let schema = input_schema(&workflow.inputs);
        let declared = schema.get("properties").and_then(Value::as_object);
        // Anything but an object counts as no inputs.
        let mut values = match inputs {
            Value::Object(values) => values,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        for (name, property) in declared.into_iter().flatten() {
            if let Some(default) = property.get("default").filter(|_| !values.contains_key(name)) {
                values.insert(name.clone(), default.clone());
            }
        }
        // A required input without value is not absent on purpose: an expression that uses it fails.
        let required: HashSet<&str> = array_at(&schema, "required").iter().filter_map(Value::as_str).collect();
        let absent_inputs = declared.into_iter().flat_map(Map::keys).filter(|name| !values.contains_key(*name));
        let absent_inputs = absent_inputs.filter(|name| !required.contains(name.as_str())).cloned().collect();
        WorkflowFrame {
            document,
            workflow,
            purpose,
            inputs: Value::Object(values),
            absent_inputs,
            steps: json!({}),
            current_step: 0,
            last_response: None,
            // Taken from the end, so reversed.
            dependencies: workflow.depends_on.iter().rev().collect(),
            return_steps: Vec::new(),
            retries: BTreeMap::new(),
        }
    }

    /// Whether an action can be taken: a retry only within its limit.
    pub(super) fn can_take(&self, action: &'a StepAction) -> bool {
        match action.kind {
            ActionKind::Retry { limit, .. } => {
                self.retries.get(&(self.current_step, action.name.as_str())).copied().unwrap_or(0) < limit
            }
            ActionKind::End | ActionKind::Goto(_) => true,
        }
    }

    /// Counts a retry of the current step.
    pub(super) fn count_retry(&mut self, action: &'a StepAction) {
        *self.retries.entry((self.current_step, action.name.as_str())).or_default() += 1;
    }

    /// Stores the outputs of the current step and resets its retries.
    pub(super) fn record_success(&mut self, step: &str, outputs: Value) {
        // Replaces the outputs of an earlier execution of the same step.
        self.steps[step] = json!({});
        self.steps[step]["outputs"] = outputs;
        let current_step = self.current_step;
        self.retries.retain(|(position, _), _| *position != current_step);
    }

    /// Continues with another step, for good.
    pub(super) fn go_to(&mut self, position: usize) {
        // A jump out of a detour abandons the retry.
        self.return_steps.clear();
        self.current_step = position;
    }

    /// Executes another step once, and then the current one again.
    pub(super) fn detour_to(&mut self, position: usize) {
        self.return_steps.push(self.current_step);
        self.current_step = position;
    }

    /// Returns to the step before a detour, if there is one.
    pub(super) fn return_from_detour(&mut self) -> bool {
        let back = self.return_steps.pop();
        self.current_step = back.unwrap_or(self.current_step);
        back.is_some()
    }

    /// Id of the first step, for messages.
    pub(super) fn first_step_id(&self) -> String {
        self.workflow.steps.first().map(|step| step.id.clone()).unwrap_or_default()
    }

    /// Id of the current step, for messages.
    pub(super) fn current_step_id(&self) -> String {
        self.workflow.steps.get(self.current_step).map(|step| step.id.clone()).unwrap_or_default()
    }
}
