//! One run of a workflow, step by step: it says what to do next and is told what came of it. It sends nothing and reads
//! no clock, and it ends: steps, nesting and what is kept are bounded.

mod frame;
mod protocol;
mod step_result;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::payload::is_absent_input;
use super::{ActionKind, ArazzoDocument, ConditionBudget, JumpTarget, SourceDescriptionKind, StepTarget, WorkflowStep};
use crate::error::{Code, Error, Result};
use crate::execution::ParameterLocation;
use crate::expression::{FillBudget, Scope, approximate_size, fill_value, fill_within};
use crate::text::{did_you_mean, sanitize_truncated};

use frame::{WorkflowFrame, WorkflowPurpose};
pub use protocol::{NextAction, OperationArguments, OperationBody, OperationCall, OperationResponse};
use step_result::StepResult;

/// How many steps one run may take, those of nested workflows and repeated ones included.
pub const MAX_STEPS_PER_RUN: usize = 100;
/// How deep workflows may call each other.
const MAX_WORKFLOW_NESTING: usize = 8;
/// How much of the answers a run may keep, in bytes.
const MAX_RETAINED_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub struct WorkflowExecution<'a> {
    document: &'a ArazzoDocument,
    /// The workflow that is run, and those it called, the innermost last. Never empty before the end.
    frames: Vec<WorkflowFrame<'a>>,
    state: ExecutionState<'a>,
    /// `$sourceDescriptions`
    sources: Value,
    /// `$workflows`
    workflows: Value,
    finished_workflows: BTreeSet<&'a str>,
    steps_taken: usize,
    retained_bytes: usize,
    /// For all conditions together.
    budget: ConditionBudget,
}

#[derive(Debug)]
enum ExecutionState<'a> {
    Ready,
    AwaitingResponse(Box<OperationCall<'a>>),
    Waiting(Duration),
    Finished { outputs: Value, failure: Option<StepFailure> },
}

#[derive(Debug)]
struct StepFailure {
    step: String,
    reason: String,
}

impl<'a> WorkflowExecution<'a> {
    pub fn new(document: &'a ArazzoDocument, workflow: &str, inputs: Value) -> Result<WorkflowExecution<'a>> {
        let Some(workflow) = document.workflow(workflow) else {
            let near = did_you_mean(workflow, document.workflows.iter().map(|workflow| workflow.id.as_str()));
            let message = format!("no workflow named `{}`{near}", sanitize_truncated(workflow, 80));
            return Err(Error::new(Code::ToolNotImplemented, message));
        };
        let described = document.source_descriptions.iter().map(|source| {
            let kind = match source.kind {
                SourceDescriptionKind::OpenApi => "openapi",
                SourceDescriptionKind::Arazzo => "arazzo",
            };
            (source.name.clone(), json!({"name": source.name, "url": source.url, "type": kind}))
        });
        let mut run = WorkflowExecution {
            document,
            frames: Vec::new(),
            state: ExecutionState::Ready,
            sources: Value::Object(described.collect()),
            workflows: json!({}),
            finished_workflows: BTreeSet::new(),
            steps_taken: 0,
            retained_bytes: 0,
            budget: ConditionBudget::default(),
        };
        run.enter_workflow(&workflow.id, inputs, WorkflowPurpose::Tool);
        Ok(run)
    }

    /// What to do next. Asked again before it was told what came of a call, it says the same.
    pub fn next_action(&mut self) -> NextAction<'_> {
        while matches!(self.state, ExecutionState::Ready) {
            self.begin_step();
        }
        if let ExecutionState::Waiting(pause) = self.state {
            self.state = ExecutionState::Ready;
            return NextAction::Wait(pause);
        }
        match &self.state {
            ExecutionState::AwaitingResponse(call) => NextAction::Call(call),
            ExecutionState::Finished { outputs, failure: None } => NextAction::Completed { outputs },
            ExecutionState::Finished { outputs, failure: Some(StepFailure { step, reason }) } => {
                NextAction::Failed { step, reason, outputs }
            }
            // Neither gets here.
            ExecutionState::Ready | ExecutionState::Waiting(_) => NextAction::Wait(Duration::ZERO),
        }
    }

    /// The call that was asked for was answered, whatever with.
    pub fn on_response(&mut self, response: OperationResponse) {
        if let Some(call) = self.take_pending_call() {
            self.finish_step(StepResult::from_response(call, response));
        }
    }

    /// The call that was asked for was not answered, or never sent.
    pub fn on_no_response(&mut self, reason: impl Into<String>) {
        if let Some(call) = self.take_pending_call() {
            self.finish_step(StepResult::without_response(Some(call), reason.into()));
        }
    }

    /// The call that is waited for, where there is one.
    fn take_pending_call(&mut self) -> Option<OperationCall<'a>> {
        match std::mem::replace(&mut self.state, ExecutionState::Ready) {
            ExecutionState::AwaitingResponse(call) => Some(*call),
            other @ (ExecutionState::Ready | ExecutionState::Waiting(_) | ExecutionState::Finished { .. }) => {
                self.state = other;
                None
            }
        }
    }

    /// Begins the step that is due, or first the workflow that this one depends on.
    fn begin_step(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return self.abort("", "there is nothing to do".into()) };
        if let Some(dependency) = frame.dependencies.pop() {
            if !self.finished_workflows.contains(dependency) {
                let inputs = frame.inputs.clone();
                self.enter_workflow(dependency, inputs, WorkflowPurpose::Dependency);
            }
            return;
        }
        let Some(step) = frame.workflow.steps.get(frame.current_step) else { return self.leave_workflow(None) };
        self.steps_taken += 1;
        if self.steps_taken > MAX_STEPS_PER_RUN {
            return self.abort(&step.id, format!("the workflow takes more than {MAX_STEPS_PER_RUN} steps"));
        }
        match &step.target {
            StepTarget::Operation { source, operation } => match self.build_arguments(step) {
                Err(error) => self.finish_step(StepResult::without_response(None, error.message)),
                Ok(arguments) => {
                    let source = source.as_deref().and_then(|name| self.document.source_description(name));
                    let workflow = self.frames.last().map(|frame| frame.workflow.id.as_str()).unwrap_or_default();
                    let call = OperationCall { workflow, step, number: self.steps_taken, source, operation, arguments };
                    self.state = ExecutionState::AwaitingResponse(Box::new(call));
                }
            },
            StepTarget::Workflow { id } => match self.build_nested_inputs(step) {
                Err(error) => self.finish_step(StepResult::without_response(None, error.message)),
                Ok(inputs) => self.enter_workflow(id, inputs, WorkflowPurpose::Step),
            },
        }
    }

    fn build_arguments(&self, step: &WorkflowStep) -> Result<OperationArguments> {
        let mut arguments = OperationArguments::default();
        let Some(frame) = self.frames.last() else { return Ok(arguments) };
        let scope = self.scope(frame, None);
        let mut room = FillBudget::default();
        for parameter in &step.parameters {
            if is_absent_input(&parameter.value, &frame.absent_inputs) {
                continue;
            }
            let value = fill_within(&parameter.value, &scope, &mut room)?;
            let name = parameter.name.clone();
            match parameter.location {
                Some(ParameterLocation::Path) => arguments.path.insert(name, value),
                Some(ParameterLocation::Header) => arguments.headers.insert(name, value),
                Some(ParameterLocation::Cookie) => arguments.cookies.insert(name, value),
                Some(ParameterLocation::Querystring) => arguments.querystring.replace(value),
                Some(ParameterLocation::Query) | None => arguments.query.insert(name, value),
            };
        }
        if let Some(body) = &step.body {
            let value = body.fill(&scope, &frame.absent_inputs, &mut room)?;
            arguments.body = Some(OperationBody { content_type: body.content_type.clone(), value });
        }
        Ok(arguments)
    }

    fn build_nested_inputs(&self, step: &WorkflowStep) -> Result<Value> {
        let mut inputs = Map::new();
        let Some(frame) = self.frames.last() else { return Ok(Value::Object(inputs)) };
        let scope = self.scope(frame, None);
        let mut room = FillBudget::default();
        for parameter in &step.parameters {
            if !is_absent_input(&parameter.value, &frame.absent_inputs) {
                inputs.insert(parameter.name.clone(), fill_within(&parameter.value, &scope, &mut room)?);
            }
        }
        Ok(Value::Object(inputs))
    }

    fn scope<'s>(&'s self, frame: &'s WorkflowFrame<'a>, attempt: Option<&'s StepResult<'a>>) -> Scope<'s> {
        Scope {
            request: attempt.and_then(StepResult::request_scope),
            response: attempt.and_then(StepResult::response_scope),
            outputs: attempt.and_then(|attempt| attempt.nested_outputs.as_ref()),
            inputs: Some(&frame.inputs),
            steps: Some(&frame.steps),
            workflows: Some(&self.workflows),
            source_descriptions: Some(&self.sources),
            components: Some(&self.document.components),
        }
    }

    /// What came of the step that is due: whether that is a success, what is kept of it, and where it goes from here.
    fn finish_step(&mut self, attempt: StepResult<'a>) {
        let Some(frame) = self.frames.last() else { return };
        let Some(step) = frame.workflow.steps.get(frame.current_step) else { return };
        let scope = self.scope(frame, Some(&attempt));
        let failure = attempt.evaluate_failure(step, &scope, &self.budget);
        let actions = if failure.is_none() { &step.on_success } else { &step.on_failure };
        let action = actions.iter().find(|action| {
            let holds =
                action.criteria.iter().all(|criterion| criterion.evaluate(&scope, &self.budget).unwrap_or(false));
            holds && frame.can_take(action)
        });
        let outputs = match failure {
            Some(_) => Ok(Value::Null),
            // A step that is a workflow and says nothing of outputs has the workflow's.
            None => match &attempt.nested_outputs {
                Some(nested) if step.outputs.is_empty() => Ok(nested.clone()),
                Some(_) | None => self.evaluate_outputs(&step.outputs, &scope),
            },
        };
        let pause = attempt.retry_after();
        let kept = outputs.as_ref().map_or(0, approximate_size);
        let Ok(outputs) = outputs else { return self.abort(&step.id, TOO_MUCH_RETAINED.into()) };
        self.retained_bytes += kept;
        let Some(frame) = self.frames.last_mut() else { return };
        frame.last_response = attempt.into_response();
        if failure.is_none() {
            frame.record_success(&step.id, outputs);
            if frame.return_from_detour() {
                return;
            }
        }
        match (action.map(|action| &action.kind), failure) {
            (None, None) => {
                frame.current_step += 1;
            }
            (Some(ActionKind::End), None) => self.leave_workflow(None),
            (None | Some(ActionKind::End), Some(reason)) => {
                self.leave_workflow(Some(StepFailure { step: step.id.clone(), reason }))
            }
            (Some(ActionKind::Goto(JumpTarget::Step(position))), _) => frame.go_to(*position),
            (Some(ActionKind::Goto(JumpTarget::Workflow(id))), _) => self.transfer_to_workflow(id),
            (Some(ActionKind::Retry { after, run_before: first, .. }), _) => {
                if let Some(action) = action {
                    frame.count_retry(action);
                }
                self.schedule_retry(pause.unwrap_or(*after), first.as_ref());
            }
        }
    }

    fn schedule_retry(&mut self, pause: Duration, first: Option<&'a JumpTarget>) {
        let Some(frame) = self.frames.last_mut() else { return };
        match first {
            None => {}
            Some(JumpTarget::Step(position)) => frame.detour_to(*position),
            Some(JumpTarget::Workflow(id)) => {
                let inputs = frame.inputs.clone();
                self.enter_workflow(id, inputs, WorkflowPurpose::BeforeRetry);
            }
        }
        if !pause.is_zero() && matches!(self.state, ExecutionState::Ready) {
            self.state = ExecutionState::Waiting(pause);
        }
    }

    /// Goes over to another workflow for good; whoever called this one gets the other's outputs.
    fn transfer_to_workflow(&mut self, id: &'a str) {
        let Some(frame) = self.frames.pop() else { return };
        self.enter_workflow(id, frame.inputs, frame.purpose);
    }

    fn enter_workflow(&mut self, id: &'a str, inputs: Value, purpose: WorkflowPurpose) {
        let Some(workflow) = self.document.workflow(id) else {
            return self.abort("", format!("no workflow named `{}`", sanitize_truncated(id, 80)));
        };
        let frame = WorkflowFrame::new(workflow, inputs, purpose);
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
        self.workflows[id] = json!({"inputs": frame.inputs});
        self.frames.push(frame);
    }

    /// The innermost workflow is over.
    fn leave_workflow(&mut self, failure: Option<StepFailure>) {
        let Some(frame) = self.frames.pop() else { return };
        let outputs = self.evaluate_outputs(&frame.workflow.outputs, &self.scope(&frame, None));
        let Ok(outputs) = outputs else { return self.abort(&frame.first_step_id(), TOO_MUCH_RETAINED.into()) };
        self.retained_bytes += approximate_size(&outputs);
        let id = frame.workflow.id.as_str();
        self.workflows[id]["outputs"] = outputs.clone();
        if failure.is_none() {
            self.finished_workflows.insert(id);
        }
        let inner = |failure: &StepFailure| {
            format!("the workflow `{id}` failed at its step `{}`: {}", failure.step, failure.reason)
        };
        match (frame.purpose, failure) {
            (WorkflowPurpose::Tool, failure) => self.state = ExecutionState::Finished { outputs, failure },
            (WorkflowPurpose::Step, failure) => {
                let reason = failure.as_ref().map(inner);
                self.finish_step(StepResult::from_nested_workflow(outputs, frame.last_response, reason));
            }
            (WorkflowPurpose::Dependency | WorkflowPurpose::BeforeRetry, None) => {}
            (WorkflowPurpose::Dependency | WorkflowPurpose::BeforeRetry, Some(failure)) => {
                let step = self.frames.last().map(WorkflowFrame::current_step_id).unwrap_or_default();
                self.leave_workflow(Some(StepFailure { step, reason: inner(&failure) }));
            }
        }
    }

    /// Ends everything, whatever the workflows say.
    fn abort(&mut self, step: &str, reason: String) {
        self.frames.clear();
        self.state = ExecutionState::Finished {
            outputs: json!({}),
            failure: Some(StepFailure { step: step.to_owned(), reason }),
        };
    }

    /// One that leads nowhere is left out: what needs it will say so. Fails where too much is kept.
    fn evaluate_outputs(&self, given: &[(String, Value)], scope: &Scope<'_>) -> Result<Value, ()> {
        let mut outputs = Map::new();
        let mut room = MAX_RETAINED_BYTES.saturating_sub(self.retained_bytes);
        for (name, template) in given {
            if let Ok(value) = fill_value(template, scope) {
                room = room.checked_sub(approximate_size(&value)).ok_or(())?;
                outputs.insert(name.clone(), value);
            }
        }
        Ok(Value::Object(outputs))
    }
}

const TOO_MUCH_RETAINED: &str = "the workflow keeps more than 64 MiB of answers";

#[cfg(test)]
mod tests;
