//! One run of a workflow, step by step: it says what to do next and is told what came of it. It sends nothing and reads
//! no clock, and it ends: steps, nesting and what is kept are bounded.

mod attempt;
mod exchange;
mod frame;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::payload::is_absent;
use super::{Budget, Document, SourceKind, Step, Target, Then, What};
use crate::error::{Code, Error, Result};
use crate::execution::Place;
use crate::expression::{Room, Scope, fill_value, fill_within, weight};
use crate::text::{did_you_mean, shown_short};

use attempt::Attempt;
pub use exchange::{Arguments, Body, Call, Do, Response};
use frame::{Frame, Purpose};

/// How many steps one run may take, those of nested workflows and repeated ones included.
pub const MOST_STEPS: usize = 100;
/// How deep workflows may call each other.
const DEEPEST: usize = 8;
/// How much of the answers a run may keep, in bytes.
const MOST_KEPT: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub struct Run<'a> {
    document: &'a Document,
    /// The workflow that is run, and those it called, the innermost last. Never empty before the end.
    frames: Vec<Frame<'a>>,
    state: State<'a>,
    /// `$sourceDescriptions`
    sources: Value,
    /// `$workflows`
    workflows: Value,
    finished: BTreeSet<&'a str>,
    taken: usize,
    kept: usize,
    /// For all conditions together.
    budget: Budget,
}

#[derive(Debug)]
enum State<'a> {
    Ready,
    Asking(Box<Call<'a>>),
    Pausing(Duration),
    Over { outputs: Value, failure: Option<Failure> },
}

#[derive(Debug)]
struct Failure {
    step: String,
    reason: String,
}

impl<'a> Run<'a> {
    pub fn new(document: &'a Document, workflow: &str, inputs: Value) -> Result<Run<'a>> {
        let Some(workflow) = document.workflow(workflow) else {
            let near = did_you_mean(workflow, document.workflows.iter().map(|workflow| workflow.id.as_str()));
            let message = format!("no workflow named `{}`{near}", shown_short(workflow, 80));
            return Err(Error::new(Code::ToolNotImplemented, message));
        };
        let described = document.source_descriptions.iter().map(|source| {
            let kind = match source.kind {
                SourceKind::OpenApi => "openapi",
                SourceKind::Arazzo => "arazzo",
            };
            (source.name.clone(), json!({"name": source.name, "url": source.url, "type": kind}))
        });
        let mut run = Run {
            document,
            frames: Vec::new(),
            state: State::Ready,
            sources: Value::Object(described.collect()),
            workflows: json!({}),
            finished: BTreeSet::new(),
            taken: 0,
            kept: 0,
            budget: Budget::default(),
        };
        run.enter(&workflow.id, inputs, Purpose::Tool);
        Ok(run)
    }

    /// What to do next. Asked again before it was told what came of a call, it says the same.
    pub fn next_action(&mut self) -> Do<'_> {
        while matches!(self.state, State::Ready) {
            self.begin();
        }
        if let State::Pausing(pause) = self.state {
            self.state = State::Ready;
            return Do::Wait(pause);
        }
        match &self.state {
            State::Asking(call) => Do::Call(call),
            State::Over { outputs, failure: None } => Do::Done { outputs },
            State::Over { outputs, failure: Some(Failure { step, reason }) } => Do::Failed { step, reason, outputs },
            // Neither gets here.
            State::Ready | State::Pausing(_) => Do::Wait(Duration::ZERO),
        }
    }

    /// The call that was asked for was answered, whatever with.
    pub fn answer(&mut self, response: Response) {
        if let Some(call) = self.asked() {
            self.conclude(Attempt::answered(call, response));
        }
    }

    /// The call that was asked for was not answered, or never sent.
    pub fn no_answer(&mut self, reason: impl Into<String>) {
        if let Some(call) = self.asked() {
            self.conclude(Attempt::unanswered(Some(call), reason.into()));
        }
    }

    /// The call that is waited for, where there is one.
    fn asked(&mut self) -> Option<Call<'a>> {
        match std::mem::replace(&mut self.state, State::Ready) {
            State::Asking(call) => Some(*call),
            other @ (State::Ready | State::Pausing(_) | State::Over { .. }) => {
                self.state = other;
                None
            }
        }
    }

    /// Begins the step that is due, or first the workflow that this one depends on.
    fn begin(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return self.stop("", "there is nothing to do".into()) };
        if let Some(dependency) = frame.dependencies.pop() {
            if !self.finished.contains(dependency) {
                let inputs = frame.inputs.clone();
                self.enter(dependency, inputs, Purpose::Dependency);
            }
            return;
        }
        let Some(step) = frame.workflow.steps.get(frame.at) else { return self.leave(None) };
        self.taken += 1;
        if self.taken > MOST_STEPS {
            return self.stop(&step.id, format!("the workflow takes more than {MOST_STEPS} steps"));
        }
        match &step.what {
            What::Operation { source, operation } => match self.arguments(step) {
                Err(error) => self.conclude(Attempt::unanswered(None, error.message)),
                Ok(arguments) => {
                    let source = source.as_deref().and_then(|name| self.document.source_description(name));
                    let workflow = self.frames.last().map(|frame| frame.workflow.id.as_str()).unwrap_or_default();
                    let call = Call { workflow, step, number: self.taken, source, operation, arguments };
                    self.state = State::Asking(Box::new(call));
                }
            },
            What::Workflow { id } => match self.nested_inputs(step) {
                Err(error) => self.conclude(Attempt::unanswered(None, error.message)),
                Ok(inputs) => self.enter(id, inputs, Purpose::Step),
            },
        }
    }

    fn arguments(&self, step: &Step) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        let Some(frame) = self.frames.last() else { return Ok(arguments) };
        let scope = self.scope(frame, None);
        let mut room = Room::default();
        for parameter in &step.parameters {
            if is_absent(&parameter.value, &frame.absent) {
                continue;
            }
            let value = fill_within(&parameter.value, &scope, &mut room)?;
            let name = parameter.name.clone();
            match parameter.place {
                Some(Place::Path) => arguments.path.insert(name, value),
                Some(Place::Header) => arguments.headers.insert(name, value),
                Some(Place::Cookie) => arguments.cookies.insert(name, value),
                Some(Place::Querystring) => arguments.querystring.replace(value),
                Some(Place::Query) | None => arguments.query.insert(name, value),
            };
        }
        if let Some(body) = &step.body {
            let value = body.filled(&scope, &frame.absent, &mut room)?;
            arguments.body = Some(Body { content_type: body.content_type.clone(), value });
        }
        Ok(arguments)
    }

    fn nested_inputs(&self, step: &Step) -> Result<Value> {
        let mut inputs = Map::new();
        let Some(frame) = self.frames.last() else { return Ok(Value::Object(inputs)) };
        let scope = self.scope(frame, None);
        let mut room = Room::default();
        for parameter in &step.parameters {
            if !is_absent(&parameter.value, &frame.absent) {
                inputs.insert(parameter.name.clone(), fill_within(&parameter.value, &scope, &mut room)?);
            }
        }
        Ok(Value::Object(inputs))
    }

    fn scope<'s>(&'s self, frame: &'s Frame<'a>, attempt: Option<&'s Attempt<'a>>) -> Scope<'s> {
        Scope {
            request: attempt.and_then(Attempt::request),
            response: attempt.and_then(Attempt::response),
            outputs: attempt.and_then(|attempt| attempt.nested.as_ref()),
            inputs: Some(&frame.inputs),
            steps: Some(&frame.steps),
            workflows: Some(&self.workflows),
            source_descriptions: Some(&self.sources),
            components: Some(&self.document.components),
        }
    }

    /// What came of the step that is due: whether that is a success, what is kept of it, and where it goes from here.
    fn conclude(&mut self, attempt: Attempt<'a>) {
        let Some(frame) = self.frames.last() else { return };
        let Some(step) = frame.workflow.steps.get(frame.at) else { return };
        let scope = self.scope(frame, Some(&attempt));
        let failure = attempt.failure(step, &scope, &self.budget);
        let actions = if failure.is_none() { &step.on_success } else { &step.on_failure };
        let action = actions.iter().find(|action| {
            let holds = action.criteria.iter().all(|criterion| criterion.holds(&scope, &self.budget).unwrap_or(false));
            holds && frame.may_take(action)
        });
        let outputs = match failure {
            Some(_) => Ok(Value::Null),
            // A step that is a workflow and says nothing of outputs has the workflow's.
            None => match &attempt.nested {
                Some(nested) if step.outputs.is_empty() => Ok(nested.clone()),
                Some(_) | None => self.outputs(&step.outputs, &scope),
            },
        };
        let pause = attempt.retry_after();
        let kept = outputs.as_ref().map_or(0, weight);
        let Ok(outputs) = outputs else { return self.stop(&step.id, TOO_MUCH.into()) };
        self.kept += kept;
        let Some(frame) = self.frames.last_mut() else { return };
        frame.answer = attempt.into_answer();
        if failure.is_none() {
            frame.succeeded(&step.id, outputs);
            if frame.back_from_detour() {
                return;
            }
        }
        match (action.map(|action| &action.then), failure) {
            (None, None) => {
                frame.at += 1;
            }
            (Some(Then::End), None) => self.leave(None),
            (None | Some(Then::End), Some(reason)) => self.leave(Some(Failure { step: step.id.clone(), reason })),
            (Some(Then::Goto(Target::Step(position))), _) => frame.go_to(*position),
            (Some(Then::Goto(Target::Workflow(id))), _) => self.transfer(id),
            (Some(Then::Retry { after, first, .. }), _) => {
                if let Some(action) = action {
                    frame.count_retry(action);
                }
                self.retry(pause.unwrap_or(*after), first.as_ref());
            }
        }
    }

    fn retry(&mut self, pause: Duration, first: Option<&'a Target>) {
        let Some(frame) = self.frames.last_mut() else { return };
        match first {
            None => {}
            Some(Target::Step(position)) => frame.detour(*position),
            Some(Target::Workflow(id)) => {
                let inputs = frame.inputs.clone();
                self.enter(id, inputs, Purpose::BeforeRetry);
            }
        }
        if !pause.is_zero() && matches!(self.state, State::Ready) {
            self.state = State::Pausing(pause);
        }
    }

    /// Goes over to another workflow for good; whoever called this one gets the other's outputs.
    fn transfer(&mut self, id: &'a str) {
        let Some(frame) = self.frames.pop() else { return };
        self.enter(id, frame.inputs, frame.purpose);
    }

    fn enter(&mut self, id: &'a str, inputs: Value, purpose: Purpose) {
        let Some(workflow) = self.document.workflow(id) else {
            return self.stop("", format!("no workflow named `{}`", shown_short(id, 80)));
        };
        let frame = Frame::new(workflow, inputs, purpose);
        self.kept += weight(&frame.inputs);
        if self.frames.len() >= DEEPEST {
            return self.stop(&frame.first_step(), format!("workflows are nested deeper than {DEEPEST} levels"));
        }
        if self.kept > MOST_KEPT {
            return self.stop(&frame.first_step(), TOO_MUCH.into());
        }
        self.workflows[id] = json!({"inputs": frame.inputs});
        self.frames.push(frame);
    }

    /// The innermost workflow is over.
    fn leave(&mut self, failure: Option<Failure>) {
        let Some(frame) = self.frames.pop() else { return };
        let outputs = self.outputs(&frame.workflow.outputs, &self.scope(&frame, None));
        let Ok(outputs) = outputs else { return self.stop(&frame.first_step(), TOO_MUCH.into()) };
        self.kept += weight(&outputs);
        let id = frame.workflow.id.as_str();
        self.workflows[id]["outputs"] = outputs.clone();
        if failure.is_none() {
            self.finished.insert(id);
        }
        let inner = |failure: &Failure| {
            format!("the workflow `{id}` failed at its step `{}`: {}", failure.step, failure.reason)
        };
        match (frame.purpose, failure) {
            (Purpose::Tool, failure) => self.state = State::Over { outputs, failure },
            (Purpose::Step, failure) => {
                let reason = failure.as_ref().map(inner);
                self.conclude(Attempt::nested(outputs, frame.answer, reason));
            }
            (Purpose::Dependency | Purpose::BeforeRetry, None) => {}
            (Purpose::Dependency | Purpose::BeforeRetry, Some(failure)) => {
                let step = self.frames.last().map(Frame::due_step).unwrap_or_default();
                self.leave(Some(Failure { step, reason: inner(&failure) }));
            }
        }
    }

    /// Ends everything, whatever the workflows say.
    fn stop(&mut self, step: &str, reason: String) {
        self.frames.clear();
        self.state = State::Over { outputs: json!({}), failure: Some(Failure { step: step.to_owned(), reason }) };
    }

    /// One that leads nowhere is left out: what needs it will say so. Fails where too much is kept.
    fn outputs(&self, given: &[(String, Value)], scope: &Scope<'_>) -> Result<Value, ()> {
        let mut outputs = Map::new();
        let mut room = MOST_KEPT.saturating_sub(self.kept);
        for (name, template) in given {
            if let Ok(value) = fill_value(template, scope) {
                room = room.checked_sub(weight(&value)).ok_or(())?;
                outputs.insert(name.clone(), value);
            }
        }
        Ok(Value::Object(outputs))
    }
}

const TOO_MUCH: &str = "the workflow keeps more than 64 MiB of answers";

#[cfg(test)]
mod tests;
