//! From a document to its workflows. One that cannot be run is set aside with the place and the reason; the others are
//! not harmed.

mod step;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::{
    ActionKind, ArazzoDocument, JumpTarget, SourceDescription, SourceDescriptionKind, StepTarget, Workflow, inputs,
};
use crate::error::{Code, Error, Result};
use crate::expression::approximate_size;
use crate::fingerprint::Fingerprint;
use crate::manifest::SetAsideTool;
use crate::text::sanitize_truncated;

impl ArazzoDocument {
    pub fn parse(document: &Value) -> Result<ArazzoDocument> {
        let refused = |reason: String| Err(Error::new(Code::ConfigInvalid, reason));
        match document.get("arazzo").and_then(Value::as_str) {
            Some(version) if version == "1" || version.starts_with("1.") => {}
            Some(version) => {
                return refused(format!(
                    "Arazzo `{}` is not supported; write `arazzo: 1.0.1`",
                    sanitize_truncated(version, 20)
                ));
            }
            None => return refused("this is no Arazzo document: it has no text `arazzo` with its version".into()),
        }
        let Some(given) = document.get("workflows").and_then(Value::as_array) else {
            return refused("the Arazzo document has no list `workflows`".into());
        };
        if given.len() > MAX_WORKFLOWS {
            return refused(format!("the Arazzo document has more than {MAX_WORKFLOWS} workflows"));
        }
        let mut reader = ArazzoParser { document, sources: Vec::new(), bytes_left: Cell::new(MAX_WORKFLOW_BYTES) };
        let mut set_aside = reader.parse_source_descriptions();
        let mut workflows: Vec<(usize, Workflow)> = Vec::new();
        for (index, value) in given.iter().enumerate() {
            let id = value.get("workflowId").and_then(Value::as_str).filter(|id| !id.is_empty());
            let name = id.map_or_else(|| format!("#{}", index + 1), |id| sanitize_truncated(id, 100));
            let read = match id {
                None => Err(ArazzoParseError::new(format!("/workflows/{index}"), "it has no `workflowId`")),
                Some(id) if workflows.iter().any(|(_, workflow)| workflow.id == id) => {
                    let reason = "an earlier workflow has the same `workflowId`";
                    Err(ArazzoParseError::new(format!("/workflows/{index}/workflowId"), reason))
                }
                Some(id) => reader.parse_workflow(id, value, &format!("/workflows/{index}")),
            };
            match read {
                Ok(workflow) => workflows.push((index, workflow)),
                Err(fault) => set_aside.push(fault.into_excluded(name)),
            }
        }
        remove_dangling_workflows(&mut workflows, &mut set_aside);
        let mut workflows: Vec<Workflow> = workflows.into_iter().map(|(_, workflow)| workflow).collect();
        assign_tool_names(&mut workflows);
        let components = document.get("components").cloned().unwrap_or_default();
        Ok(ArazzoDocument { source_descriptions: reader.sources, workflows, excluded: set_aside, components })
    }
}

const MAX_WORKFLOWS: usize = 1000;
const MAX_SOURCE_DESCRIPTIONS: usize = 1000;
/// Of all workflows together.
const MAX_WORKFLOW_BYTES: usize = 128 * 1024 * 1024;

/// What is wrong, and where.
#[derive(Debug)]
struct ArazzoParseError {
    pointer: String,
    reason: String,
}

impl ArazzoParseError {
    fn new(pointer: impl Into<String>, reason: impl Into<String>) -> ArazzoParseError {
        ArazzoParseError { pointer: pointer.into(), reason: reason.into() }
    }

    fn into_excluded(self, name: String) -> SetAsideTool {
        SetAsideTool { name, reason: format!("{} (at `{}`)", self.reason, sanitize_truncated(&self.pointer, 200)) }
    }
}

type ArazzoParseResult<T> = std::result::Result<T, ArazzoParseError>;

struct ArazzoParser<'a> {
    document: &'a Value,
    sources: Vec<SourceDescription>,
    /// How many more bytes workflows may take: what many refer to is copied for each.
    bytes_left: Cell<usize>,
}

impl ArazzoParser<'_> {
    fn spend_bytes(&self, bytes: usize, at: &str) -> ArazzoParseResult<()> {
        match self.bytes_left.get().checked_sub(bytes) {
            Some(left) => {
                self.bytes_left.set(left);
                Ok(())
            }
            None => {
                self.bytes_left.set(0);
                Err(ArazzoParseError::new(at, "the document is too large once its references are followed"))
            }
        }
    }

    /// A source description that cannot be used harms only the workflows that need it.
    fn parse_source_descriptions(&mut self) -> Vec<SetAsideTool> {
        let mut set_aside = Vec::new();
        for (index, value) in
            array_field(self.document, "sourceDescriptions").iter().take(MAX_SOURCE_DESCRIPTIONS).enumerate()
        {
            let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            let name = text("name").map_or_else(|| format!("#{}", index + 1), |name| sanitize_truncated(name, 100));
            let read = match (text("name"), text("url"), text("type")) {
                (None, _, _) => Err("a source description has no `name`"),
                (_, None, _) => Err("the source description has no `url`"),
                (Some(name), _, _) if self.sources.iter().any(|source| source.name == name) => {
                    Err("an earlier source description has the same `name`")
                }
                (Some(name), Some(url), None | Some("openapi")) => Ok((name, url, SourceDescriptionKind::OpenApi)),
                (Some(name), Some(url), Some("arazzo")) => Ok((name, url, SourceDescriptionKind::Arazzo)),
                (_, _, Some(_)) => Err("a source description is of type `openapi` or `arazzo`"),
            };
            match read {
                Ok((name, url, kind)) => {
                    self.sources.push(SourceDescription { name: name.to_owned(), url: url.to_owned(), kind });
                }
                Err(reason) => {
                    set_aside.push(
                        ArazzoParseError::new(format!("/sourceDescriptions/{index}"), reason).into_excluded(name),
                    );
                }
            }
        }
        set_aside
    }

    fn parse_workflow(&self, id: &str, value: &Value, at: &str) -> ArazzoParseResult<Workflow> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        // Nothing more is looked at once there is no room.
        self.spend_bytes(1, at)?;
        let inputs = match value.get("inputs") {
            Some(given) => inputs::resolve_inputs(self.document, given, self.bytes_left.get())
                .map_err(|reason| ArazzoParseError::new(format!("{at}/inputs"), reason))?,
            None => Value::Object(serde_json::Map::new()),
        };
        self.spend_bytes(approximate_size(&inputs), at)?;
        let steps = self.parse_steps(value, at)?;
        let mut depends_on = Vec::new();
        for (index, other) in array_field(value, "dependsOn").iter().enumerate() {
            depends_on.push(self.parse_workflow_id(other.as_str(), &format!("{at}/dependsOn/{index}"))?);
        }
        Ok(Workflow {
            id: id.to_owned(),
            tool: String::new(),
            summary: text("summary"),
            description: text("description"),
            inputs,
            steps,
            outputs: parse_outputs(value),
            depends_on,
        })
    }

    /// The id of a workflow of this document.
    fn parse_workflow_id(&self, id: Option<&str>, at: &str) -> ArazzoParseResult<String> {
        match id {
            None | Some("") => Err(ArazzoParseError::new(at, "it names no workflow")),
            Some(id) if id.trim_start_matches('{').starts_with("$sourceDescriptions.") => {
                Err(ArazzoParseError::new(at, "workflows of other Arazzo documents are not followed"))
            }
            Some(id) => Ok(id.to_owned()),
        }
    }
}

/// What a list has of this name; nothing where it is none.
fn array_field<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn parse_outputs(value: &Value) -> Vec<(String, Value)> {
    let given = value.get("outputs").and_then(Value::as_object).into_iter().flatten();
    given.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A workflow that needs one that is not there cannot be run either; nor can what needs it. Each need is looked at once,
/// however long the chain is that breaks.
fn remove_dangling_workflows(workflows: &mut Vec<(usize, Workflow)>, set_aside: &mut Vec<SetAsideTool>) {
    let known: HashSet<&str> = workflows.iter().map(|(_, workflow)| workflow.id.as_str()).collect();
    let mut needed_by: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut missing: VecDeque<&str> = VecDeque::new();
    for (position, (_, workflow)) in workflows.iter().enumerate() {
        for id in referenced_workflows(workflow) {
            let positions = needed_by.entry(id).or_default();
            if positions.is_empty() && !known.contains(id) {
                missing.push_back(id);
            }
            if positions.last() != Some(&position) {
                positions.push(position);
            }
        }
    }
    let mut removed: HashSet<usize> = HashSet::new();
    while let Some(id) = missing.pop_front() {
        for &position in needed_by.get(id).into_iter().flatten() {
            let (index, workflow) = &workflows[position];
            if removed.insert(position) {
                let reason = format!("it needs the workflow `{}`, which is not there", sanitize_truncated(id, 60));
                let fault = ArazzoParseError::new(format!("/workflows/{index}"), reason);
                set_aside.push(fault.into_excluded(sanitize_truncated(&workflow.id, 100)));
                missing.push_back(&workflow.id);
            }
        }
    }
    let mut position = 0;
    workflows.retain(|_| {
        position += 1;
        !removed.contains(&(position - 1))
    });
}

fn referenced_workflows(workflow: &Workflow) -> Vec<&str> {
    let mut ids: Vec<&str> = workflow.depends_on.iter().map(String::as_str).collect();
    for step in &workflow.steps {
        if let StepTarget::Workflow { id } = &step.target {
            ids.push(id);
        }
        for action in step.on_success.iter().chain(&step.on_failure) {
            match &action.kind {
                ActionKind::Goto(JumpTarget::Workflow(id))
                | ActionKind::Retry { run_before: Some(JumpTarget::Workflow(id)), .. } => ids.push(id),
                ActionKind::End | ActionKind::Goto(JumpTarget::Step(_)) | ActionKind::Retry { .. } => {}
            }
        }
    }
    ids
}

/// Ids that become the same legal name are told apart by a hash, so that their order does not matter.
fn assign_tool_names(workflows: &mut [Workflow]) {
    let legal = |id: &str| -> String {
        let legal = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
        id.chars().map(|character| if legal(character) { character } else { '_' }).collect()
    };
    let names: Vec<String> = workflows.iter().map(|workflow| legal(&workflow.id)).collect();
    for (workflow, name) in workflows.iter_mut().zip(&names) {
        let shared = names.iter().filter(|other| *other == name).count() > 1;
        let hashed = shared && workflow.id != *name;
        let hash = Fingerprint::digest(&workflow.id);
        workflow.tool = if hashed { format!("{name}_{}", hash.short_hex(8)) } else { name.clone() };
    }
}

#[cfg(test)]
mod tests;
