//! Frame of the call stack: a workflow in progress with its inputs, the outputs of its steps, and its current step. It
//! decides nothing: which action follows a step is determined in `run`.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};
use toolcrib_schema::array_at;

use super::{CallingStep, OperationResponse};
use crate::coerce::coerce_type;
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
    /// Step that the workflow was entered from, until its inputs are validated.
    pub(super) unvalidated_from: Option<CallingStep<'a>>,
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

/// Inputs of a workflow, by their origin.
#[derive(Debug)]
pub(super) enum FrameInputs {
    /// Arguments of the tool, which were validated.
    Valid(Value),
    /// Parameters of a step, converted to the types in the schema.
    Parameters(Value),
    /// Inputs of the workflow that refers to this one, also converted. Those that this one excludes
    /// (`additionalProperties: false`) are left out, because no document passes them on purpose.
    Inherited(Value),
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
        inputs: FrameInputs,
        purpose: WorkflowPurpose,
    ) -> WorkflowFrame<'a> {
        let mut frame = WorkflowFrame {
            document,
            workflow,
            purpose,
            inputs: Value::Null,
            unvalidated_from: None,
            absent_inputs: HashSet::new(),
            steps: json!({}),
            current_step: 0,
            last_response: None,
            // Taken from the end, so reversed.
            dependencies: workflow.depends_on.iter().rev().collect(),
            return_steps: Vec::new(),
            retries: BTreeMap::new(),
        };
        frame.set_inputs(inputs.into_value(&workflow.inputs));
        frame
    }

    /// Sets the inputs, with the defaults of the schema for missing ones. Anything but an object counts as no inputs.
    pub(super) fn set_inputs(&mut self, inputs: Value) {
        let schema = input_schema(&self.workflow.inputs);
        let declared = schema.get("properties").and_then(Value::as_object);
        let mut values = into_object(inputs);
        for (name, property) in declared.into_iter().flatten() {
            if let Some(default) = property.get("default").filter(|_| !values.contains_key(name)) {
                values.insert(name.clone(), default.clone());
            }
        }
        // A required input without value is not absent on purpose: an expression that uses it fails.
        let required: HashSet<&str> = array_at(&schema, "required").iter().filter_map(Value::as_str).collect();
        let absent_inputs = declared.into_iter().flat_map(Map::keys).filter(|name| !values.contains_key(*name));
        self.absent_inputs = absent_inputs.filter(|name| !required.contains(name.as_str())).cloned().collect();
        self.inputs = Value::Object(values);
    }

    /// The current step, as the one that enters another workflow.
    pub(super) fn calling_step(&self) -> CallingStep<'a> {
        let step = self.workflow.steps.get(self.current_step).map(|step| step.id.as_str()).unwrap_or_default();
        CallingStep { document: self.document, workflow: &self.workflow.id, step }
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
}

impl FrameInputs {
    /// Returns the inputs for a workflow with this schema, in the types that it declares.
    fn into_value(self, schema: &Value) -> Value {
        let (inputs, is_inherited) = match self {
            FrameInputs::Valid(inputs) => return inputs,
            FrameInputs::Parameters(inputs) => (inputs, false),
            FrameInputs::Inherited(inputs) => (inputs, true),
        };
        let schema = input_schema(schema);
        let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        let declares = |name: &str| schema.get("properties").is_some_and(|declared| declared.get(name).is_some());
        let mut values = into_object(inputs);
        values.retain(|name, _| !is_inherited || !is_closed || declares(name));
        values
            .into_iter()
            .map(|(name, value)| {
                let value = coerce_type(&value, &schema, &name);
                (name, value)
            })
            .collect()
    }
}

/// The fields of an object; none of anything else.
fn into_object(inputs: Value) -> Map<String, Value> {
    match inputs {
        Value::Object(values) => values,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}
