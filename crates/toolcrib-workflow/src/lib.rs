//! Arazzo 1.0 documents: workflows whose steps are operations of OpenAPI documents. Parses documents tolerantly and
//! executes workflows as a state machine without I/O; the connector calls the tools of the operations.
//!
//! A document passes through these stages:
//!
//! ```text
//! parse.rs     JSON value        -> ArazzoDocument (workflows that can run, the rest in `skipped`)
//! linked.rs    ArazzoDocument    -> LinkedDocuments, with the documents whose workflows it runs
//! tool.rs      Workflow          -> tool with input schema, listed like any other
//! run.rs       Workflow + inputs -> WorkflowExecution, a state machine that asks for one call at a time
//! criterion.rs, condition.rs, jsonpath.rs, lexer.rs   conditions of steps and actions, under one budget
//! payload.rs, coerce.rs   request bodies of steps
//! runner.rs    connector: loads the document, finds the tools of operations, calls them through a `ToolCaller`
//! ```
//!
//! Runtime expressions (`$inputs.id`, `$response.body#/id`) are resolved in `toolcrib_openapi::expression`.

mod budget;
mod coerce;
mod condition;
mod criterion;
mod inputs;
mod jsonpath;
mod lexer;
mod linked;
mod parse;
mod payload;
mod run;
mod runner;
mod tool;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use toolcrib_core::execution::ParameterLocation;
use toolcrib_core::json::to_exact_raw;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::{Code, Result, ResultExt};
use toolcrib_schema::Validator;

pub use budget::ConditionBudget;
pub use criterion::Criterion;
pub use linked::{LinkedDocument, LinkedDocuments};
pub use payload::RequestBodyTemplate;
pub use run::{
    CallingStep, MAX_STEPS_PER_RUN, NestedInputs, NextAction, OperationArguments, OperationBody, OperationCall,
    WorkflowExecution,
};
pub use runner::{WorkflowConnector, read_described_apis};
pub use tool::build_workflow_tool;
use tool::input_schema;

/// A parsed document: the workflows that can be executed, and why others cannot.
#[derive(Debug, Clone)]
pub struct ArazzoDocument {
    pub source_descriptions: Vec<SourceDescription>,
    pub workflows: Vec<Workflow>,
    /// Workflows and source descriptions that are invalid, with the reasons.
    pub skipped: Vec<SkippedTool>,
    /// `$components` of runtime expressions.
    components: Value,
}

impl ArazzoDocument {
    /// Names and URLs of the APIs that its steps may call. Sorted, so that the result does not depend on the order in
    /// the document.
    pub fn described_apis(&self) -> BTreeSet<String> {
        let descriptions = self.source_descriptions.iter();
        descriptions.map(|description| format!("{} ({})", description.name, description.url)).collect()
    }
}

/// An OpenAPI or Arazzo document that steps refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDescription {
    pub name: String,
    /// As written in the document; may be relative.
    pub url: String,
    pub kind: SourceDescriptionKind,
}

/// Type of a source description: steps call operations of OpenAPI documents and workflows of Arazzo documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDescriptionKind {
    OpenApi,
    Arazzo,
}

/// A workflow, which becomes one tool.
#[derive(Debug, Clone)]
pub struct Workflow {
    pub id: String,
    /// Name of the tool: the sanitised id, with a hash if another id has the same result.
    pub tool: String,
    pub summary: Option<String>,
    pub description: Option<String>,
    /// Self-contained JSON Schema: schemas that it refers to are in its `$defs`.
    pub inputs: Value,
    pub steps: Vec<WorkflowStep>,
    /// Names and templates with runtime expressions.
    pub outputs: Vec<(String, Value)>,
    /// Workflows that are executed first, with the same inputs.
    pub depends_on: Vec<WorkflowReference>,
    /// Validates the inputs if another workflow runs this one. Made on first use.
    input_validator: OnceLock<Arc<Validator>>,
}

impl Workflow {
    /// Returns the validator of the inputs. Takes time for a large schema.
    pub(crate) fn input_validator(&self) -> Result<Arc<Validator>> {
        if let Some(validator) = self.input_validator.get() {
            return Ok(validator.clone());
        }
        let schema = to_exact_raw(&input_schema(&self.inputs)).context(Code::Internal, "cannot serialize a schema")?;
        Ok(self.input_validator.get_or_init(|| Arc::new(Validator::new(schema.into()))).clone())
    }
}

/// One step. Parameters and actions that its workflow defines for all steps are merged in.
#[derive(Debug, Clone)]
pub struct WorkflowStep {
    pub id: String,
    pub target: StepTarget,
    pub description: Option<String>,
    pub parameters: Vec<StepParameter>,
    pub body: Option<RequestBodyTemplate>,
    /// Without any, a step succeeds on status 2xx, and a nested workflow if it reaches its end.
    pub success_criteria: Vec<Criterion>,
    pub on_success: Vec<StepAction>,
    pub on_failure: Vec<StepAction>,
    /// Names and templates with runtime expressions.
    pub outputs: Vec<(String, Value)>,
}

/// Target of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepTarget {
    /// Operation of an OpenAPI document.
    Operation {
        /// Name of the source description. `None` if the document has several and does not say which; the caller
        /// finds the one that has the operation then.
        source: Option<String>,
        operation: OperationReference,
    },
    /// Another workflow.
    Workflow(WorkflowReference),
}

/// Reference to a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowReference {
    /// Name of the source description of its document; `None` for the same document.
    pub source: Option<String>,
    pub id: String,
}

/// Reference to an operation in an OpenAPI document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationReference {
    /// `operationId`
    Id(String),
    /// Method in upper case, and path template. Without a method, the path must have a single operation.
    Path { method: Option<String>, path: String },
}

/// Parameter of a step.
#[derive(Debug, Clone)]
pub struct StepParameter {
    pub name: String,
    /// `None` if the step calls a workflow; the parameter is one of its inputs then.
    pub location: Option<ParameterLocation>,
    /// Template with runtime expressions.
    pub value: Value,
}

/// Action after a step (`onSuccess`, `onFailure`). The first one whose criteria are all met is taken.
#[derive(Debug, Clone)]
pub struct StepAction {
    pub name: String,
    pub criteria: Vec<Criterion>,
    pub kind: ActionKind,
}

/// Type of an action.
#[derive(Debug, Clone)]
pub enum ActionKind {
    /// Ends the workflow. After a success the workflow is completed, after a failure it has failed.
    End,
    /// Continues at a step of the same workflow, or replaces the workflow by another one.
    Goto(JumpTarget),
    /// Only after a failure.
    Retry {
        after: Duration,
        /// Maximum number of retries. Counted for each step and action since the last success of the step.
        limit: u32,
        /// Step or workflow to execute before the retry.
        run_before: Option<JumpTarget>,
    },
}

/// Target of `goto`, or of a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JumpTarget {
    /// Position in the workflow's steps.
    Step(usize),
    Workflow(WorkflowReference),
}

impl ArazzoDocument {
    /// Returns a workflow by id. Skipped workflows are not found.
    pub fn workflow(&self, id: &str) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.id == id)
    }

    /// Returns a source description by name.
    pub fn source_description(&self, name: &str) -> Option<&SourceDescription> {
        self.source_descriptions.iter().find(|source| source.name == name)
    }
}
