//! Parses Arazzo documents. A workflow that cannot be executed is skipped with the JSON pointer and the reason; the
//! others are not affected.
//!
//! Parsing is tolerant where real documents deviate (braces around expressions, `in: body`, a single condition
//! instead of a list) and strict where an execution would guess. Reusable objects in `components` are copied into the
//! steps that refer to them, so an execution follows no references; a byte budget bounds the copies.

mod step;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_openapi::expression::approximate_size;
use toolcrib_schema::array_at;

use super::{
    ActionKind, ArazzoDocument, JumpTarget, SourceDescription, SourceDescriptionKind, StepTarget, Workflow,
    WorkflowReference, inputs,
};

impl ArazzoDocument {
    /// Parses a document.
    ///
    /// # Errors
    /// `CONFIG_INVALID` if it is no Arazzo 1.x document. Invalid workflows are listed in `skipped` instead.
    pub fn parse(document: &Value) -> Result<ArazzoDocument> {
        let invalid = |reason: String| Err(Error::new(Code::ConfigInvalid, reason));
        // Check the version and the overall structure; errors here concern the whole document.
        match document.get("arazzo").and_then(Value::as_str) {
            Some(version) if version == "1" || version.starts_with("1.") => {}
            Some(version) => {
                return invalid(format!(
                    "Arazzo `{}` is not supported; Arazzo 1.x documents are supported",
                    sanitize_truncated(version, 20)
                ));
            }
            None => {
                return invalid(
                    "this is not an Arazzo document: the string `arazzo` with the version is missing".into(),
                );
            }
        }
        let Some(workflow_values) = document.get("workflows").and_then(Value::as_array) else {
            return invalid("the Arazzo document has no list `workflows`".into());
        };
        if workflow_values.len() > MAX_WORKFLOWS {
            return invalid(format!("the Arazzo document has more than {MAX_WORKFLOWS} workflows"));
        }
        // Parse each workflow on its own, so that an invalid one does not affect the others.
        let mut parser = ArazzoParser { document, sources: Vec::new(), bytes_left: Cell::new(MAX_WORKFLOW_BYTES) };
        let mut skipped = parser.parse_source_descriptions();
        let mut workflows: Vec<(usize, Workflow)> = Vec::new();
        let root = ArazzoNode { value: document, pointer: String::new() };
        for (index, node) in root.items("workflows").enumerate() {
            let id = node.text("workflowId");
            // A workflow without id is listed as skipped by its number.
            let name = id.map_or_else(|| format!("#{}", index + 1), |id| sanitize_truncated(id, 100));
            let parsed = match id {
                None => Err(node.error("it has no `workflowId`")),
                Some(id) if workflows.iter().any(|(_, workflow)| workflow.id == id) => {
                    Err(node.child("workflowId").error("an earlier workflow has the same `workflowId`"))
                }
                Some(id) => parser.parse_workflow(id, &node),
            };
            match parsed {
                Ok(workflow) => workflows.push((index, workflow)),
                Err(error) => skipped.push(error.into_skipped(name)),
            }
        }
        // Remove workflows that cannot run because of missing ones, and name the tools of the rest.
        remove_dangling_workflows(&mut workflows, &mut skipped);
        let mut workflows: Vec<Workflow> = workflows.into_iter().map(|(_, workflow)| workflow).collect();
        assign_tool_names(&mut workflows);
        let components = document.get("components").cloned().unwrap_or_default();
        Ok(ArazzoDocument { source_descriptions: parser.sources, workflows, skipped, components })
    }
}

/// Maximum number of workflows. Ids are compared pairwise while parsing; a document with more is rejected as a whole.
const MAX_WORKFLOWS: usize = 1000;
/// Maximum number of source descriptions; further ones are ignored.
const MAX_SOURCE_DESCRIPTIONS: usize = 1000;
/// Maximum size of all workflows together, in memory. Workflows beyond it are skipped.
const MAX_WORKFLOW_BYTES: usize = 128 * 1024 * 1024;

/// Maximum pause before a retry. Callers have deadlines of their own, usually shorter ones. Applies to `retryAfter` of
/// the document and to a server's `Retry-After`.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Error in one workflow, with its JSON pointer. Becomes a [`SkippedTool`] with the reason and `(at POINTER)`.
#[derive(Debug)]
struct ArazzoParseError {
    pointer: String,
    reason: String,
}

/// A value of the document with its JSON pointer, which errors name.
#[derive(Clone)]
struct ArazzoNode<'a> {
    value: &'a Value,
    pointer: String,
}

impl<'a> ArazzoNode<'a> {
    /// Returns the text of a field, unless it is empty.
    fn text(&self, name: &str) -> Option<&'a str> {
        self.value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns a field; null if it is missing.
    fn child(&self, name: &str) -> ArazzoNode<'a> {
        let value = self.value.get(name).unwrap_or(&Value::Null);
        ArazzoNode { value, pointer: format!("{}/{name}", self.pointer) }
    }

    /// Returns the items of a list; none if the field is no list.
    fn items(&self, name: &str) -> impl Iterator<Item = ArazzoNode<'a>> {
        let items = array_at(self.value, name).iter().enumerate();
        items.map(move |(index, value)| ArazzoNode { value, pointer: format!("{}/{name}/{index}", self.pointer) })
    }

    /// Returns an error about this value.
    fn error(&self, reason: impl Into<String>) -> ArazzoParseError {
        ArazzoParseError { pointer: self.pointer.clone(), reason: reason.into() }
    }
}

impl ArazzoParseError {
    /// Converts to an entry of [`ArazzoDocument::skipped`].
    fn into_skipped(self, name: String) -> SkippedTool {
        SkippedTool { name, reason: format!("{} (at `{}`)", self.reason, sanitize_truncated(&self.pointer, 200)) }
    }
}

/// Result of parsing a part of a workflow.
type ArazzoParseResult<T> = std::result::Result<T, ArazzoParseError>;

/// Parses the parts of one document.
struct ArazzoParser<'a> {
    document: &'a Value,
    /// Valid source descriptions.
    sources: Vec<SourceDescription>,
    /// Remaining size of the workflows: reusable objects are copied for each use, so the total can exceed the document.
    bytes_left: Cell<usize>,
}

impl<'a> ArazzoParser<'a> {
    /// Takes bytes from the budget; fails, and leaves nothing, if too few are left.
    fn spend_bytes(&self, bytes: usize, node: &ArazzoNode<'_>) -> ArazzoParseResult<()> {
        let remaining = self.bytes_left.get().checked_sub(bytes);
        self.bytes_left.set(remaining.unwrap_or(0));
        remaining.map(drop).ok_or_else(|| node.error("the document is too large once its references are followed"))
    }

    /// Parses the source descriptions and returns the invalid ones. These only affect workflows that use them.
    fn parse_source_descriptions(&mut self) -> Vec<SkippedTool> {
        let mut skipped = Vec::new();
        let root = ArazzoNode { value: self.document, pointer: String::new() };
        for (index, node) in root.items("sourceDescriptions").take(MAX_SOURCE_DESCRIPTIONS).enumerate() {
            let name =
                node.text("name").map_or_else(|| format!("#{}", index + 1), |name| sanitize_truncated(name, 100));
            // Without `type`, a description is taken for an OpenAPI document, the common case.
            let parsed = match (node.text("name"), node.text("url"), node.text("type")) {
                (None, _, _) => Err("a source description has no `name`"),
                (_, None, _) => Err("the source description has no `url`"),
                (Some(name), _, _) if self.sources.iter().any(|source| source.name == name) => {
                    Err("an earlier source description has the same `name`")
                }
                (Some(name), Some(url), None | Some("openapi")) => Ok((name, url, SourceDescriptionKind::OpenApi)),
                (Some(name), Some(url), Some("arazzo")) => Ok((name, url, SourceDescriptionKind::Arazzo)),
                (_, _, Some(_)) => Err("a source description is of type `openapi` or `arazzo`"),
            };
            match parsed {
                Ok((name, url, kind)) => {
                    self.sources.push(SourceDescription { name: name.to_owned(), url: url.to_owned(), kind });
                }
                Err(reason) => skipped.push(node.error(reason).into_skipped(name)),
            }
        }
        skipped
    }

    /// Parses one workflow; the tool name is assigned later.
    fn parse_workflow(&self, id: &str, node: &ArazzoNode<'a>) -> ArazzoParseResult<Workflow> {
        let text = |name: &str| node.value.get(name).and_then(Value::as_str).map(str::to_owned);
        // Once the budget is used up, further workflows fail at once.
        self.spend_bytes(1, node)?;
        let inputs = match node.value.get("inputs") {
            Some(schema) => inputs::resolve_inputs(self.document, schema, self.bytes_left.get())
                .map_err(|reason| node.child("inputs").error(reason))?,
            None => Value::Object(serde_json::Map::new()),
        };
        self.spend_bytes(approximate_size(&inputs), node)?;
        // The first error skips the workflow.
        let steps = self.parse_steps(node)?;
        let depends_on = node.items("dependsOn").map(|other| self.parse_workflow_id(other.value.as_str(), &other));
        let depends_on = depends_on.collect::<ArazzoParseResult<_>>()?;
        Ok(Workflow {
            id: id.to_owned(),
            tool: String::new(),
            summary: text("summary"),
            description: text("description"),
            inputs,
            steps,
            outputs: parse_outputs(node.value),
            depends_on,
            input_validator: OnceLock::new(),
        })
    }

    /// Parses the id of a workflow: of this document, or of another one as `$sourceDescriptions.name.id`. Whether it exists
    /// is checked later.
    fn parse_workflow_id(&self, id: Option<&str>, node: &ArazzoNode<'_>) -> ArazzoParseResult<WorkflowReference> {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Err(node.error("the id of the workflow is missing"));
        };
        let expression = id.trim().trim_start_matches('{').trim_end_matches('}');
        let Some(rest) = expression.strip_prefix("$sourceDescriptions.") else {
            return Ok(WorkflowReference { source: None, id: id.to_owned() });
        };
        let (name, id) = rest.split_once('.').unwrap_or((rest, ""));
        let shown_name = sanitize_truncated(name, 60);
        match self.sources.iter().find(|source| source.name == name) {
            _ if id.is_empty() => Err(node.error("it names no workflow after the source description")),
            Some(source) if source.kind == SourceDescriptionKind::Arazzo => {
                Ok(WorkflowReference { source: Some(source.name.clone()), id: id.to_owned() })
            }
            Some(_) => Err(node.error(format!("the source description `{shown_name}` is not of type `arazzo`"))),
            None => Err(node.error(format!("there is no source description `{shown_name}`"))),
        }
    }
}

/// Names and templates of outputs.
fn parse_outputs(value: &Value) -> Vec<(String, Value)> {
    let outputs = value.get("outputs").and_then(Value::as_object).into_iter().flatten();
    outputs.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Removes workflows that refer to missing ones, and those that refer to them in turn. Takes linear time in the number
/// of references, however long a broken chain is.
fn remove_dangling_workflows(workflows: &mut Vec<(usize, Workflow)>, skipped: &mut Vec<SkippedTool>) {
    let known_ids: HashSet<&str> = workflows.iter().map(|(_, workflow)| workflow.id.as_str()).collect();
    // Index the references by target, and start with the targets that do not exist.
    let mut needed_by: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut missing: VecDeque<&str> = VecDeque::new();
    for (position, (_, workflow)) in workflows.iter().enumerate() {
        // Those of other documents are checked when these are known.
        let references = referenced_workflows(workflow).into_iter().filter(|reference| reference.source.is_none());
        for id in references.map(|reference| reference.id.as_str()) {
            // The first reference to an unknown id queues it; later ones only add their position.
            let positions = needed_by.entry(id).or_default();
            if positions.is_empty() && !known_ids.contains(id) {
                missing.push_back(id);
            }
            if positions.last() != Some(&position) {
                positions.push(position);
            }
        }
    }
    // Breadth first from the missing ids: each removed workflow is missing for those that refer to it.
    let mut removed: HashSet<usize> = HashSet::new();
    while let Some(id) = missing.pop_front() {
        for &position in needed_by.get(id).into_iter().flatten() {
            let (index, workflow) = &workflows[position];
            if removed.insert(position) {
                let reason = format!("it refers to the missing workflow `{}`", sanitize_truncated(id, 60));
                let error = ArazzoParseError { pointer: format!("/workflows/{index}"), reason };
                skipped.push(error.into_skipped(sanitize_truncated(&workflow.id, 100)));
                missing.push_back(&workflow.id);
            }
        }
    }
    // `retain` gives no index, so it is counted.
    let mut position = 0;
    workflows.retain(|_| {
        position += 1;
        !removed.contains(&(position - 1))
    });
}

/// All workflows that a workflow refers to. As dependencies, as targets of steps, and as targets of actions; a reference
/// may occur several times.
pub(super) fn referenced_workflows(workflow: &Workflow) -> Vec<&WorkflowReference> {
    let mut references: Vec<&WorkflowReference> = workflow.depends_on.iter().collect();
    for step in &workflow.steps {
        if let StepTarget::Workflow(reference) = &step.target {
            references.push(reference);
        }
        for action in step.on_success.iter().chain(&step.on_failure) {
            match &action.kind {
                ActionKind::Goto(JumpTarget::Workflow(reference))
                | ActionKind::Retry { run_before: Some(JumpTarget::Workflow(reference)), .. } => {
                    references.push(reference);
                }
                ActionKind::End | ActionKind::Goto(JumpTarget::Step(_)) | ActionKind::Retry { .. } => {}
            }
        }
    }
    references
}

/// Sanitises ids to tool names. Ids with equal results get a hash, so that names do not depend on the order.
fn assign_tool_names(workflows: &mut [Workflow]) {
    let sanitize = |id: &str| -> String {
        let sanitize = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
        id.chars().map(|character| if sanitize(character) { character } else { '_' }).collect()
    };
    let names: Vec<String> = workflows.iter().map(|workflow| sanitize(&workflow.id)).collect();
    for (workflow, name) in workflows.iter_mut().zip(&names) {
        let is_shared = names.iter().filter(|other| *other == name).count() > 1;
        // The id that is a legal name already keeps it.
        let needs_hash = is_shared && workflow.id != *name;
        let hash = Fingerprint::digest(&workflow.id);
        workflow.tool = if needs_hash { format!("{name}_{}", hash.short_hex(8)) } else { name.clone() };
    }
}

#[cfg(test)]
mod tests;
