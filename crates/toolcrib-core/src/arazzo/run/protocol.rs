//! What is said between a run and whoever carries it out.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::arazzo::{OperationReference, SourceDescription, WorkflowStep};

/// What to do next.
#[derive(Debug)]
pub enum NextAction<'r> {
    /// Send this, and then say [`super::Run::answer`] or [`super::Run::no_answer`].
    Call(&'r OperationCall<'r>),
    /// Let so much time pass, and ask again.
    Wait(Duration),
    Completed {
        outputs: &'r Value,
    },
    /// A step failed and nothing in the workflow says how to go on, or it says to end there.
    Failed {
        step: &'r str,
        reason: &'r str,
        /// As far as they are known.
        outputs: &'r Value,
    },
}

/// One request that a step wants.
#[derive(Debug, Clone)]
pub struct OperationCall<'a> {
    /// The id of the workflow that the step belongs to, which may be a nested one.
    pub workflow: &'a str,
    pub step: &'a WorkflowStep,
    /// How many steps were begun, this one included.
    pub number: usize,
    /// None where the document has several and does not say which.
    pub source: Option<&'a SourceDescription>,
    pub operation: &'a OperationReference,
    pub arguments: OperationArguments,
}

/// Values by their names on the wire.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OperationArguments {
    pub path: Map<String, Value>,
    pub query: Map<String, Value>,
    pub headers: Map<String, Value>,
    pub cookies: Map<String, Value>,
    /// The whole query at once.
    pub querystring: Option<Value>,
    pub body: Option<OperationBody>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OperationBody {
    /// Where the step says it; otherwise the operation does.
    pub content_type: Option<String>,
    pub value: Value,
}

#[derive(Debug, Clone)]
pub struct OperationResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Option<Value>,
    pub url: String,
    pub method: String,
}
