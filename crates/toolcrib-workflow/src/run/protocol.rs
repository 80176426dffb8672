//! Types exchanged between a workflow execution and its caller. The caller finds the tool of the operation, calls it
//! through the registry, and reports the recorded HTTP response.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::{OperationReference, SourceDescription, Workflow, WorkflowStep};

/// Next action of the caller.
#[derive(Debug)]
pub enum NextAction<'r> {
    /// Make the call and report its result with [`super::WorkflowExecution::on_response`] or
    /// [`super::WorkflowExecution::on_no_response`].
    Call(&'r OperationCall<'r>),
    /// Validate the inputs of a nested workflow and report them with [`super::WorkflowExecution::on_valid_inputs`].
    Enter(&'r NestedInputs<'r>),
    /// Wait, and ask again.
    Wait(Duration),
    /// The workflow ended successfully.
    Completed { outputs: &'r Value },
    /// A step failed and no action continues the workflow.
    Failed {
        /// Id of the step; empty if the failure concerns no step.
        step: &'r str,
        reason: &'r str,
        /// Outputs that could be evaluated.
        outputs: &'r Value,
    },
}

/// Call of an operation that a step requests.
#[derive(Debug, Clone)]
pub struct OperationCall<'a> {
    /// Position of the document of the step among the linked ones.
    pub document: usize,
    /// Id of the workflow that the step belongs to, which may be a nested one.
    pub workflow: &'a str,
    pub step: &'a WorkflowStep,
    /// Number of the step in this execution, counted from 1.
    pub number: usize,
    /// Whether no operation was called before in this execution.
    pub is_first: bool,
    /// `None` if the document has several source descriptions and does not say which.
    pub source: Option<&'a SourceDescription>,
    pub operation: &'a OperationReference,
    pub arguments: OperationArguments,
}

/// Inputs of a nested workflow, before its first step.
#[derive(Debug, Clone)]
pub struct NestedInputs<'a> {
    pub caller: CallingStep<'a>,
    /// Position of the document of the nested workflow.
    pub document: usize,
    pub workflow: &'a Workflow,
    pub inputs: Value,
    /// Whether no operation was called before in this execution.
    pub is_first: bool,
}

/// Step that runs a nested workflow. For dependencies of a workflow it is the step that comes next.
#[derive(Debug, Clone, Copy)]
pub struct CallingStep<'a> {
    /// Position of its document.
    pub document: usize,
    pub workflow: &'a str,
    pub step: &'a str,
}

/// Argument values by their names in the request, before serialisation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationArguments {
    pub path: Map<String, Value>,
    pub query: Map<String, Value>,
    pub headers: Map<String, Value>,
    pub cookies: Map<String, Value>,
    /// The entire query string (OpenAPI 3.2).
    pub querystring: Option<Value>,
    pub body: Option<OperationBody>,
}

/// Request body.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationBody {
    /// `None` if the step does not specify it; the operation determines it then.
    pub content_type: Option<String>,
    pub value: Value,
}
