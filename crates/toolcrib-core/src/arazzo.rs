//! Arazzo 1.0: workflows whose steps are operations of OpenAPI documents, read tolerantly and advanced step by step.
//! Whoever sends the requests is elsewhere.

mod budget;
mod condition;
mod criterion;
mod inputs;
mod jsonpath;
mod parse;
mod payload;
mod run;
mod tool;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::execution::ParameterLocation;
use crate::manifest::SetAsideTool;

pub use budget::ConditionBudget;
pub use criterion::Criterion;
pub use payload::RequestBodyTemplate;
pub use run::{
    MAX_STEPS_PER_RUN, NextAction, OperationArguments, OperationBody, OperationCall, OperationResponse,
    WorkflowExecution,
};
pub use tool::build_workflow_tool;

/// What was read of a document: the workflows that can be run, and why others cannot.
#[derive(Debug, Clone)]
pub struct ArazzoDocument {
    pub source_descriptions: Vec<SourceDescription>,
    pub workflows: Vec<Workflow>,
    pub excluded: Vec<SetAsideTool>,
    /// For expressions.
    components: Value,
}

impl ArazzoDocument {
    /// The APIs that its steps may call, each by name and document.
    pub fn described_apis(&self) -> BTreeSet<String> {
        let described = self.source_descriptions.iter();
        described.map(|description| format!("{} ({})", description.name, description.url)).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceDescription {
    pub name: String,
    /// As the document has it: it may be relative.
    pub url: String,
    pub kind: SourceDescriptionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDescriptionKind {
    OpenApi,
    Arazzo,
}

#[derive(Debug, Clone)]
pub struct Workflow {
    pub id: String,
    /// The id made legal, and told apart from others that become the same.
    pub tool: String,
    pub summary: Option<String>,
    pub description: Option<String>,
    /// A JSON Schema that stands alone: what it refers to lies in its `$defs`.
    pub inputs: Value,
    pub steps: Vec<WorkflowStep>,
    pub outputs: Vec<(String, Value)>,
    /// Ids of workflows that are run first, with the same inputs.
    pub depends_on: Vec<String>,
}

/// One step. What its workflow says for all steps (parameters, actions) is laid out in it.
#[derive(Debug, Clone)]
pub struct WorkflowStep {
    pub id: String,
    pub target: StepTarget,
    pub description: Option<String>,
    pub parameters: Vec<StepParameter>,
    pub body: Option<RequestBodyTemplate>,
    /// Without any, an answer of 2xx is a success, and a workflow that came to its end.
    pub success_criteria: Vec<Criterion>,
    pub on_success: Vec<StepAction>,
    pub on_failure: Vec<StepAction>,
    pub outputs: Vec<(String, Value)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepTarget {
    /// Of the source description of this name; of whichever has it where none is named and there are several.
    Operation {
        source: Option<String>,
        operation: OperationReference,
    },
    Workflow {
        id: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationReference {
    Id(String),
    /// The method in capitals, the path as the document has it.
    Path {
        method: String,
        path: String,
    },
}

#[derive(Debug, Clone)]
pub struct StepParameter {
    pub name: String,
    /// None where a workflow is called: then it is one of its inputs.
    pub location: Option<ParameterLocation>,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub struct StepAction {
    pub name: String,
    pub criteria: Vec<Criterion>,
    pub kind: ActionKind,
}

#[derive(Debug, Clone)]
pub enum ActionKind {
    End,
    Goto(JumpTarget),
    /// After a failure only. `first` is run before the step is tried again.
    Retry {
        after: Duration,
        limit: u32,
        run_before: Option<JumpTarget>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JumpTarget {
    /// By its position.
    Step(usize),
    Workflow(String),
}

impl ArazzoDocument {
    pub fn workflow(&self, id: &str) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.id == id)
    }

    pub fn source_description(&self, name: &str) -> Option<&SourceDescription> {
        self.source_descriptions.iter().find(|source| source.name == name)
    }
}
