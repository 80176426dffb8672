//! State machine that executes a workflow: [`WorkflowExecution::next_action`] tells the caller what to do, and the
//! caller reports the result. It sends nothing and reads no clock. It always terminates: steps, nesting and retained
//! data are bounded.
//!
//! ```text
//! loop {
//!     Call(call)    -> send it, then on_response or on_no_response
//!     Enter(nested) -> validate the inputs of a nested workflow, then on_valid_inputs
//!     Wait(pause)   -> sleep
//!     Completed or Failed -> done
//! }
//! ```
//!
//! Workflows that call others form a stack of frames (`frame`). A response of any status is a result (`step_result`);
//! criteria decide whether it is a success. `abort` is for exceeded limits and skips all actions, because a document
//! must not be able to catch its own limit and go on.

mod frame;
mod protocol;
mod step_result;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::execution::{OperationResponse, ParameterLocation};
use toolcrib_core::text::{did_you_mean, sanitize_truncated};
use toolcrib_openapi::expression::{FillBudget, Scope, approximate_size, fill_value, fill_within};

use super::linked::WorkflowAlias;
use super::payload::is_absent_input;
use super::{
    ActionKind, ArazzoDocument, ConditionBudget, JumpTarget, LinkedDocuments, SourceDescriptionKind, StepParameter,
    StepTarget, WorkflowReference, WorkflowStep,
};

use frame::{FrameInputs, WorkflowFrame, WorkflowPurpose};
pub use protocol::{CallingStep, NestedInputs, NextAction, OperationArguments, OperationBody, OperationCall};
use step_result::StepResult;

/// Maximum number of steps of one execution, including nested workflows and repetitions. Ends loops of `goto` and
/// retries.
pub const MAX_STEPS_PER_RUN: usize = 100;
/// Maximum nesting of workflows. Ends workflows that call themselves.
const MAX_WORKFLOW_NESTING: usize = 8;
/// Maximum size of inputs and outputs that an execution retains, in bytes. Expressions copy values, so small responses
/// could grow with each step.
const MAX_RETAINED_BYTES: usize = 64 * 1024 * 1024;

/// Execution of one workflow with the workflows that it calls.
#[derive(Debug)]
pub struct WorkflowExecution<'a> {
    documents: &'a LinkedDocuments,
    /// Call stack, innermost workflow last. Not empty until the execution is finished.
    frames: Vec<WorkflowFrame<'a>>,
    state: ExecutionState<'a>,
    /// `$sourceDescriptions` and `$workflows` of each document.
    document_scopes: Vec<DocumentScope>,
    /// Document and id of workflows that ended successfully; as dependencies they are not executed again.
    finished_workflows: BTreeSet<(usize, &'a str)>,
    /// Compared with [`MAX_STEPS_PER_RUN`].
    steps_taken: usize,
    /// Whether an operation was called, so that there may be effects.
    has_called: bool,
    /// Compared with [`MAX_RETAINED_BYTES`]. Data of finished frames is not subtracted.
    retained_bytes: usize,
    /// Shared by all conditions.
    budget: ConditionBudget,
}

/// Values that all workflows of a document share.
#[derive(Debug)]
struct DocumentScope {
    /// `$sourceDescriptions`
    sources: Value,
    /// `$workflows`
    workflows: Value,
}

/// State of an execution between two calls of `next_action`.
#[derive(Debug)]
enum ExecutionState<'a> {
    /// The next step can begin.
    Ready,
    /// The caller must send the call and report the result.
    AwaitingResponse(Box<OperationCall<'a>>),
    /// The caller must validate the inputs of the innermost workflow and report them.
    AwaitingInputs(Box<NestedInputs<'a>>),
    /// The caller must wait before the next step.
    Waiting(Duration),
    Finished {
        outputs: Value,
        failure: Option<StepFailure>,
    },
}

/// A failure that ended a workflow.
#[derive(Debug)]
struct StepFailure {
    /// Id of the step, empty if no step is concerned.
    step: String,
    reason: String,
}

impl<'a> WorkflowExecution<'a> {
    /// Starts a workflow of the main document.
    ///
    /// # Errors
    /// `TOOL_NOT_IMPLEMENTED` if the document has no such workflow.
    pub fn new(documents: &'a LinkedDocuments, workflow: &str, inputs: Value) -> Result<WorkflowExecution<'a>> {
        let document = documents.main();
        let Some(workflow) = document.workflow(workflow) else {
            let suggestion = did_you_mean(workflow, document.workflows.iter().map(|workflow| workflow.id.as_str()));
            let message = format!("no workflow named `{}`{suggestion}", sanitize_truncated(workflow, 80));
            return Err(Error::new(Code::ToolNotImplemented, message));
        };
        let mut execution = WorkflowExecution {
            documents,
            frames: Vec::new(),
            state: ExecutionState::Ready,
            document_scopes: documents.documents().iter().map(|linked| DocumentScope::new(&linked.document)).collect(),
            finished_workflows: BTreeSet::new(),
            steps_taken: 0,
            has_called: false,
            retained_bytes: 0,
            budget: ConditionBudget::default(),
        };
        execution.push_frame(WorkflowFrame::new(0, workflow, FrameInputs::Valid(inputs), WorkflowPurpose::Tool));
        Ok(execution)
    }

    /// Returns what to do next. Until the result of a call is reported, it returns the same call again.
    pub fn next_action(&mut self) -> NextAction<'_> {
        // A step may end without a call: a nested workflow is entered, or its arguments cannot be built.
        while matches!(self.state, ExecutionState::Ready) {
            self.begin_step();
        }
        if let ExecutionState::Waiting(pause) = self.state {
            self.state = ExecutionState::Ready;
            return NextAction::Wait(pause);
        }
        match &self.state {
            ExecutionState::AwaitingResponse(call) => NextAction::Call(call),
            ExecutionState::AwaitingInputs(nested) => NextAction::Enter(nested),
            ExecutionState::Finished { outputs, failure: None } => NextAction::Completed { outputs },
            ExecutionState::Finished { outputs, failure: Some(StepFailure { step, reason }) } => {
                NextAction::Failed { step, reason, outputs }
            }
            // Unreachable: the loop above leaves `Ready`, and `Waiting` returned already.
            ExecutionState::Ready | ExecutionState::Waiting(_) => NextAction::Wait(Duration::ZERO),
        }
    }

    /// Reports the response to the pending call, of any status. Ignored if no call is pending.
    pub fn on_response(&mut self, response: OperationResponse) {
        if let Some(call) = self.take_pending_call() {
            self.finish_step(StepResult { call: Some(call), response: Some(response), ..StepResult::default() });
        }
    }

    /// Reports that the pending call got no response or could not be sent. Ignored if no call is pending.
    pub fn on_no_response(&mut self, reason: impl Into<String>) {
        if let Some(call) = self.take_pending_call() {
            self.finish_step(StepResult { call: Some(call), ..StepResult::unsent(reason.into()) });
        }
    }

    /// Reports the valid inputs of the workflow that is entered. Ignored if none is.
    pub fn on_valid_inputs(&mut self, inputs: Value) {
        if matches!(self.state, ExecutionState::AwaitingInputs(_))
            && let Some(frame) = self.frames.last_mut()
        {
            frame.set_inputs(inputs);
            self.state = ExecutionState::Ready;
            self.share_inputs();
        }
    }

    /// Takes the pending call, if there is one.
    fn take_pending_call(&mut self) -> Option<OperationCall<'a>> {
        match std::mem::replace(&mut self.state, ExecutionState::Ready) {
            ExecutionState::AwaitingResponse(call) => Some(*call),
            other @ (ExecutionState::Ready
            | ExecutionState::AwaitingInputs(_)
            | ExecutionState::Waiting(_)
            | ExecutionState::Finished { .. }) => {
                self.state = other;
                None
            }
        }
    }

    /// Begins the current step, or a workflow that the current one depends on.
    fn begin_step(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            return self.abort("", "internal error: no workflow is active".into());
        };
        if let Some(caller) = frame.unvalidated_from.take() {
            self.state = ExecutionState::AwaitingInputs(Box::new(NestedInputs {
                caller,
                document: frame.document,
                workflow: frame.workflow,
                inputs: frame.inputs.clone(),
                is_first: !self.has_called,
            }));
            return;
        }
        // Dependencies are executed before the first step and at most once in an execution.
        if let Some(dependency) = frame.dependencies.pop() {
            let caller = frame.calling_step();
            let inputs = FrameInputs::Inherited(frame.inputs.clone());
            let found = self.documents.resolve(caller.document, dependency).ok();
            if !found.is_some_and(|(document, found)| self.finished_workflows.contains(&(document, found.id.as_str())))
            {
                self.enter_workflow(caller, dependency, inputs, WorkflowPurpose::Dependency);
            }
            return;
        }
        let caller = frame.calling_step();
        let Some(step) = frame.workflow.steps.get(frame.current_step) else { return self.leave_workflow(None) };
        self.steps_taken += 1;
        if self.steps_taken > MAX_STEPS_PER_RUN {
            return self.abort(&step.id, format!("the workflow takes more than {MAX_STEPS_PER_RUN} steps"));
        }
        match &step.target {
            StepTarget::Operation { source, operation } => match self.build_arguments(step) {
                // An unresolvable expression fails the step like a failed request, so that `onFailure` applies.
                Err(error) => self.finish_step(StepResult::unsent(error.message)),
                Ok(arguments) => {
                    let CallingStep { document, workflow, .. } = caller;
                    let linked = self.documents.documents().get(document);
                    let source = source.as_deref().and_then(|name| linked?.document.source_description(name));
                    let number = self.steps_taken;
                    let is_first = !std::mem::replace(&mut self.has_called, true);
                    let call =
                        OperationCall { document, workflow, step, number, is_first, source, operation, arguments };
                    self.state = ExecutionState::AwaitingResponse(Box::new(call));
                }
            },
            StepTarget::Workflow(reference) => match self.build_nested_inputs(step) {
                Err(error) => self.finish_step(StepResult::unsent(error.message)),
                Ok(inputs) => {
                    self.enter_workflow(caller, reference, FrameInputs::Parameters(inputs), WorkflowPurpose::Step);
                }
            },
        }
    }

    /// Fills the parameters and the body of an operation.
    fn build_arguments(&self, step: &WorkflowStep) -> Result<OperationArguments> {
        let mut arguments = OperationArguments::default();
        let Some(frame) = self.frames.last() else { return Ok(arguments) };
        // One budget for all parameters and the body: together they become one request.
        let mut budget = FillBudget::default();
        for (name, location, value) in self.fill_parameters(frame, step, &mut budget)? {
            match location {
                Some(ParameterLocation::Path) => arguments.path.insert(name, value),
                Some(ParameterLocation::Header) => arguments.headers.insert(name, value),
                Some(ParameterLocation::Cookie) => arguments.cookies.insert(name, value),
                Some(ParameterLocation::Querystring) => arguments.querystring.replace(value),
                Some(ParameterLocation::Query) | None => arguments.query.insert(name, value),
            };
        }
        if let Some(body) = &step.body {
            let value = body.fill(&self.scope(frame, None), &frame.absent_inputs, &mut budget)?;
            arguments.body = Some(OperationBody { content_type: body.content_type.clone(), value });
        }
        Ok(arguments)
    }

    /// Fills the inputs of a nested workflow.
    fn build_nested_inputs(&self, step: &WorkflowStep) -> Result<Value> {
        let Some(frame) = self.frames.last() else { return Ok(json!({})) };
        let filled = self.fill_parameters(frame, step, &mut FillBudget::default())?;
        Ok(filled.into_iter().map(|(name, _, value)| (name, value)).collect())
    }

    /// Fills the parameters of a step, except absent inputs.
    fn fill_parameters(
        &self,
        frame: &WorkflowFrame<'a>,
        step: &WorkflowStep,
        budget: &mut FillBudget,
    ) -> Result<Vec<(String, Option<ParameterLocation>, Value)>> {
        let scope = self.scope(frame, None);
        let present = step.parameters.iter().filter(|given| !is_absent_input(&given.value, &frame.absent_inputs));
        let filled = present.map(|StepParameter { name, location, value }| {
            Ok((name.clone(), *location, fill_within(value, &scope, budget)?))
        });
        filled.collect()
    }

    /// Scope of expressions in a frame, with the result of the current step if there is one.
    fn scope<'s>(&'s self, frame: &'s WorkflowFrame<'a>, result: Option<&'s StepResult<'a>>) -> Scope<'s> {
        let document_scope = self.document_scopes.get(frame.document);
        let linked = self.documents.documents().get(frame.document);
        Scope {
            request: result.and_then(StepResult::request_scope),
            response: result.and_then(StepResult::response_scope),
            outputs: result.and_then(|result| result.nested_outputs.as_ref()),
            inputs: Some(&frame.inputs),
            steps: Some(&frame.steps),
            workflows: document_scope.map(|scope| &scope.workflows),
            source_descriptions: document_scope.map(|scope| &scope.sources),
            components: linked.map(|linked| &linked.document.components),
        }
    }

    /// Evaluates the result of the current step: determines success, stores the outputs, takes the matching action.
    fn finish_step(&mut self, result: StepResult<'a>) {
        let Some(frame) = self.frames.last() else { return };
        let Some(step) = frame.workflow.steps.get(frame.current_step) else { return };
        let scope = self.scope(frame, Some(&result));
        // Determine success or failure first: it decides which actions are considered.
        let failure = result.evaluate_failure(step, &scope, &self.budget);
        // The first action whose criteria are met and that is within its retry limit.
        let actions = if failure.is_none() { &step.on_success } else { &step.on_failure };
        let action = actions.iter().find(|action| {
            let is_met =
                action.criteria.iter().all(|criterion| criterion.evaluate(&scope, &self.budget).unwrap_or(false));
            is_met && frame.can_take(action)
        });
        // A failed step has no outputs, even if some of its expressions could be resolved.
        let outputs = match failure {
            Some(_) => Ok(Value::Null),
            // A step that calls a workflow and defines no outputs takes over those of the workflow.
            None => match &result.nested_outputs {
                Some(nested) if step.outputs.is_empty() => Ok(nested.clone()),
                Some(_) | None => self.evaluate_outputs(&step.outputs, &scope),
            },
        };
        // Last use of the borrowed scope: the frame is changed from here on.
        let server_pause = result.retry_after();
        let outputs_size = outputs.as_ref().map_or(0, approximate_size);
        let Ok(outputs) = outputs else { return self.abort(&step.id, TOO_MUCH_RETAINED.into()) };
        self.retained_bytes += outputs_size;
        let Some(frame) = self.frames.last_mut() else { return };
        frame.last_response = result.response;
        if failure.is_none() {
            frame.record_success(&step.id, outputs);
            // A detour before a retry ends with its step: the actions of that step do not apply.
            if frame.return_from_detour() {
                return;
            }
        }
        // Take the action, or the default: the next step after a success, the end after a failure.
        match (action.map(|action| &action.kind), failure) {
            (None, None) => {
                frame.current_step += 1;
            }
            (Some(ActionKind::End), None) => self.leave_workflow(None),
            (None | Some(ActionKind::End), Some(reason)) => {
                self.leave_workflow(Some(StepFailure { step: step.id.clone(), reason }))
            }
            (Some(ActionKind::Goto(JumpTarget::Step(position))), _) => frame.go_to(*position),
            (Some(ActionKind::Goto(JumpTarget::Workflow(reference))), _) => self.transfer_to_workflow(reference),
            (Some(ActionKind::Retry { after, run_before, .. }), _) => {
                if let Some(action) = action {
                    frame.count_retry(action);
                }
                self.schedule_retry(server_pause.unwrap_or(*after), run_before.as_ref());
            }
        }
    }

    /// Repeats the current step after a pause, and after `run_before` if given.
    fn schedule_retry(&mut self, pause: Duration, run_before: Option<&'a JumpTarget>) {
        let Some(frame) = self.frames.last_mut() else { return };
        match run_before {
            None => {}
            Some(JumpTarget::Step(position)) => frame.detour_to(*position),
            Some(JumpTarget::Workflow(reference)) => {
                let caller = frame.calling_step();
                let inputs = FrameInputs::Inherited(frame.inputs.clone());
                self.enter_workflow(caller, reference, inputs, WorkflowPurpose::BeforeRetry);
            }
        }
        // The pause comes before what is executed next, also before the detour. An aborted execution does not wait.
        if !pause.is_zero() && matches!(self.state, ExecutionState::Ready) {
            self.state = ExecutionState::Waiting(pause);
        }
    }

    /// Replaces the current workflow by another one (`goto`); the caller of the current one gets the other's outputs.
    fn transfer_to_workflow(&mut self, reference: &'a WorkflowReference) {
        let Some(frame) = self.frames.pop() else { return };
        self.enter_workflow(frame.calling_step(), reference, FrameInputs::Inherited(frame.inputs), frame.purpose);
    }

    /// Enters a workflow that a step or its workflow refers to.
    fn enter_workflow(
        &mut self,
        caller: CallingStep<'a>,
        reference: &'a WorkflowReference,
        inputs: FrameInputs,
        purpose: WorkflowPurpose,
    ) {
        // Workflows with unknown targets were skipped, so a failure is not expected.
        let (target, workflow) = match self.documents.resolve(caller.document, reference) {
            Ok(found) => found,
            Err(reason) => return self.abort(caller.step, reason),
        };
        // Within a document a workflow may call itself until a condition ends it. Across documents that is a mistake,
        // which their authors do not see.
        let is_active = |frame: &WorkflowFrame<'_>| frame.document == target && frame.workflow.id == workflow.id;
        if target != caller.document && self.frames.iter().any(is_active) {
            let ids = self.frames.iter().skip_while(|frame| !is_active(frame)).map(|frame| frame.workflow.id.as_str());
            let cycle: Vec<String> =
                ids.chain([workflow.id.as_str()]).map(|id| format!("`{}`", sanitize_truncated(id, 60))).collect();
            let reason = format!("workflows of several documents call each other in a cycle: {}", cycle.join(" → "));
            return self.abort(caller.step, reason);
        }
        let mut frame = WorkflowFrame::new(target, workflow, inputs, purpose);
        frame.unvalidated_from = Some(caller);
        self.push_frame(frame);
    }

    /// Pushes the frame of a workflow, unless a limit is exceeded.
    fn push_frame(&mut self, frame: WorkflowFrame<'a>) {
        self.retained_bytes += approximate_size(&frame.inputs);
        if self.frames.len() >= MAX_WORKFLOW_NESTING {
            return self.abort(
                &frame.first_step_id(),
                format!("workflows are nested deeper than {MAX_WORKFLOW_NESTING} levels"),
            );
        }
        if self.retained_bytes > MAX_RETAINED_BYTES {
            return self.abort(&frame.first_step_id(), TOO_MUCH_RETAINED.into());
        }
        self.frames.push(frame);
        self.share_inputs();
    }

    /// Lets expressions of later steps refer to the inputs of the innermost workflow as `$workflows.id.inputs`.
    fn share_inputs(&mut self) {
        let Some(frame) = self.frames.last() else { return };
        let values = json!({"inputs": frame.inputs});
        self.share_values(frame.document, &frame.workflow.id, &values);
    }

    /// Lets expressions refer to inputs and outputs of a workflow: as `$workflows.id` in its own document, and as
    /// `$sourceDescriptions.name.id` in those that describe it. These may also write `$workflows.id` if that means no other.
    fn share_values(&mut self, document: usize, id: &'a str, values: &Value) {
        for WorkflowAlias { document, source, is_unique } in self.documents.aliases(document, id) {
            let Some(DocumentScope { sources, workflows }) = self.document_scopes.get_mut(document) else { continue };
            let Some(source) = source else {
                workflows[id] = values.clone();
                continue;
            };
            // A workflow with the id `url` cannot be referred to by its description.
            let described = sources.get_mut(source).filter(|fields| fields.get(id).is_none_or(Value::is_object));
            for scope in described.into_iter().chain(is_unique.then_some(workflows)) {
                self.retained_bytes += approximate_size(values);
                let replaced = scope.as_object_mut().and_then(|scope| scope.insert(id.to_owned(), values.clone()));
                self.retained_bytes -= replaced.as_ref().map_or(0, approximate_size);
            }
        }
    }

    /// Ends the innermost workflow and hands its outputs or its failure to the one that called it.
    fn leave_workflow(&mut self, failure: Option<StepFailure>) {
        let Some(frame) = self.frames.pop() else { return };
        // Outputs of a failed workflow are evaluated too: they may describe how far it came.
        let outputs = self.evaluate_outputs(&frame.workflow.outputs, &self.scope(&frame, None));
        let Ok(outputs) = outputs else { return self.abort(&frame.first_step_id(), TOO_MUCH_RETAINED.into()) };
        self.retained_bytes += approximate_size(&outputs);
        let id = frame.workflow.id.as_str();
        self.share_values(frame.document, id, &json!({"inputs": frame.inputs, "outputs": outputs}));
        if self.retained_bytes > MAX_RETAINED_BYTES {
            return self.abort(&frame.first_step_id(), TOO_MUCH_RETAINED.into());
        }
        if failure.is_none() {
            self.finished_workflows.insert((frame.document, id));
        }
        // A failure of a nested workflow is reported at the step that called it.
        let describe_failure = |failure: &StepFailure| {
            format!("the workflow `{id}` failed at its step `{}`: {}", failure.step, failure.reason)
        };
        match (frame.purpose, failure) {
            (WorkflowPurpose::Tool, failure) => self.state = ExecutionState::Finished { outputs, failure },
            (WorkflowPurpose::Step, failure) => {
                let failure_reason = failure.as_ref().map(describe_failure);
                let nested_outputs = Some(outputs);
                let response = frame.last_response;
                self.finish_step(StepResult { call: None, response, nested_outputs, failure_reason });
            }
            // The frame below continues where it was.
            (WorkflowPurpose::Dependency | WorkflowPurpose::BeforeRetry, None) => {}
            (WorkflowPurpose::Dependency | WorkflowPurpose::BeforeRetry, Some(failure)) => {
                let step = self.frames.last().map(|frame| frame.calling_step().step.to_owned()).unwrap_or_default();
                self.leave_workflow(Some(StepFailure { step, reason: describe_failure(&failure) }));
            }
        }
    }

    /// Ends the whole execution with a failure, regardless of actions in the workflows.
    fn abort(&mut self, step: &str, reason: String) {
        self.frames.clear();
        self.state = ExecutionState::Finished {
            outputs: json!({}),
            failure: Some(StepFailure { step: step.to_owned(), reason }),
        };
    }

    /// Evaluates outputs. Unresolvable ones are left out; a step that uses them will fail. `Err` if they are too large.
    fn evaluate_outputs(&self, templates: &[(String, Value)], scope: &Scope<'_>) -> Result<Value, ()> {
        let mut outputs = Map::new();
        let mut bytes_left = MAX_RETAINED_BYTES.saturating_sub(self.retained_bytes);
        for (name, template) in templates {
            if let Ok(value) = fill_value(template, scope) {
                bytes_left = bytes_left.checked_sub(approximate_size(&value)).ok_or(())?;
                outputs.insert(name.clone(), value);
            }
        }
        Ok(Value::Object(outputs))
    }
}

impl DocumentScope {
    fn new(document: &ArazzoDocument) -> DocumentScope {
        let descriptions = document.source_descriptions.iter().map(|source| {
            let kind = match source.kind {
                SourceDescriptionKind::OpenApi => "openapi",
                SourceDescriptionKind::Arazzo => "arazzo",
            };
            (source.name.clone(), json!({"name": source.name, "url": source.url, "type": kind}))
        });
        DocumentScope { sources: Value::Object(descriptions.collect()), workflows: json!({}) }
    }
}

/// Message for exceeding [`MAX_RETAINED_BYTES`].
const TOO_MUCH_RETAINED: &str = "the workflow retains more than 64 MiB of response data";

#[cfg(test)]
mod tests;
