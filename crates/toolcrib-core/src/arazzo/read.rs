//! From a document to its workflows. One that cannot be run is set aside with the place and the reason; the others are
//! not harmed.

mod step;

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::{Document, SourceDescription, SourceKind, Target, Then, What, Workflow, inputs};
use crate::error::{Code, Error, Result};
use crate::expression::weight;
use crate::fingerprint::Fingerprint;
use crate::manifest::SetAside;
use crate::text::shown_short;

impl Document {
    pub fn read(document: &Value) -> Result<Document> {
        let refused = |reason: String| Err(Error::new(Code::ConfigInvalid, reason));
        match document.get("arazzo").and_then(Value::as_str) {
            Some(version) if version == "1" || version.starts_with("1.") => {}
            Some(version) => {
                return refused(format!(
                    "Arazzo `{}` is not supported; write `arazzo: 1.0.1`",
                    shown_short(version, 20)
                ));
            }
            None => return refused("this is no Arazzo document: it has no text `arazzo` with its version".into()),
        }
        let Some(given) = document.get("workflows").and_then(Value::as_array) else {
            return refused("the Arazzo document has no list `workflows`".into());
        };
        if given.len() > MOST_WORKFLOWS {
            return refused(format!("the Arazzo document has more than {MOST_WORKFLOWS} workflows"));
        }
        let mut reader = Reader { document, sources: Vec::new(), room: Cell::new(MOST_BYTES) };
        let mut set_aside = reader.read_sources();
        let mut workflows: Vec<(usize, Workflow)> = Vec::new();
        for (index, value) in given.iter().enumerate() {
            let id = value.get("workflowId").and_then(Value::as_str).filter(|id| !id.is_empty());
            let name = id.map_or_else(|| format!("#{}", index + 1), |id| shown_short(id, 100));
            let read = match id {
                None => Err(Fault::at(format!("/workflows/{index}"), "it has no `workflowId`")),
                Some(id) if workflows.iter().any(|(_, workflow)| workflow.id == id) => {
                    let reason = "an earlier workflow has the same `workflowId`";
                    Err(Fault::at(format!("/workflows/{index}/workflowId"), reason))
                }
                Some(id) => reader.workflow(id, value, &format!("/workflows/{index}")),
            };
            match read {
                Ok(workflow) => workflows.push((index, workflow)),
                Err(fault) => set_aside.push(fault.set_aside(name)),
            }
        }
        remove_dangling(&mut workflows, &mut set_aside);
        let mut workflows: Vec<Workflow> = workflows.into_iter().map(|(_, workflow)| workflow).collect();
        name_tools(&mut workflows);
        let components = document.get("components").cloned().unwrap_or_default();
        Ok(Document { source_descriptions: reader.sources, workflows, set_aside, components })
    }
}

const MOST_WORKFLOWS: usize = 1000;
const MOST_SOURCES: usize = 1000;
/// Of all workflows together.
const MOST_BYTES: usize = 128 * 1024 * 1024;

/// What is wrong, and where.
#[derive(Debug)]
struct Fault {
    pointer: String,
    reason: String,
}

impl Fault {
    fn at(pointer: impl Into<String>, reason: impl Into<String>) -> Fault {
        Fault { pointer: pointer.into(), reason: reason.into() }
    }

    fn set_aside(self, name: String) -> SetAside {
        SetAside { name, reason: format!("{} (at `{}`)", self.reason, shown_short(&self.pointer, 200)) }
    }
}

type Read<T> = std::result::Result<T, Fault>;

struct Reader<'a> {
    document: &'a Value,
    sources: Vec<SourceDescription>,
    /// How many more bytes workflows may take: what many refer to is copied for each.
    room: Cell<usize>,
}

impl Reader<'_> {
    fn take_room(&self, bytes: usize, at: &str) -> Read<()> {
        match self.room.get().checked_sub(bytes) {
            Some(left) => {
                self.room.set(left);
                Ok(())
            }
            None => {
                self.room.set(0);
                Err(Fault::at(at, "the document is too large once its references are followed"))
            }
        }
    }

    /// A source description that cannot be used harms only the workflows that need it.
    fn read_sources(&mut self) -> Vec<SetAside> {
        let mut set_aside = Vec::new();
        for (index, value) in list(self.document, "sourceDescriptions").iter().take(MOST_SOURCES).enumerate() {
            let text = |name: &str| value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
            let name = text("name").map_or_else(|| format!("#{}", index + 1), |name| shown_short(name, 100));
            let read = match (text("name"), text("url"), text("type")) {
                (None, _, _) => Err("a source description has no `name`"),
                (_, None, _) => Err("the source description has no `url`"),
                (Some(name), _, _) if self.sources.iter().any(|source| source.name == name) => {
                    Err("an earlier source description has the same `name`")
                }
                (Some(name), Some(url), None | Some("openapi")) => Ok((name, url, SourceKind::OpenApi)),
                (Some(name), Some(url), Some("arazzo")) => Ok((name, url, SourceKind::Arazzo)),
                (_, _, Some(_)) => Err("a source description is of type `openapi` or `arazzo`"),
            };
            match read {
                Ok((name, url, kind)) => {
                    self.sources.push(SourceDescription { name: name.to_owned(), url: url.to_owned(), kind });
                }
                Err(reason) => {
                    set_aside.push(Fault::at(format!("/sourceDescriptions/{index}"), reason).set_aside(name));
                }
            }
        }
        set_aside
    }

    fn workflow(&self, id: &str, value: &Value, at: &str) -> Read<Workflow> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        // Nothing more is looked at once there is no room.
        self.take_room(1, at)?;
        let inputs = match value.get("inputs") {
            Some(given) => inputs::resolved(self.document, given, self.room.get())
                .map_err(|reason| Fault::at(format!("{at}/inputs"), reason))?,
            None => Value::Object(serde_json::Map::new()),
        };
        self.take_room(weight(&inputs), at)?;
        let steps = self.steps(value, at)?;
        let mut depends_on = Vec::new();
        for (index, other) in list(value, "dependsOn").iter().enumerate() {
            depends_on.push(self.workflow_id(other.as_str(), &format!("{at}/dependsOn/{index}"))?);
        }
        Ok(Workflow {
            id: id.to_owned(),
            tool: String::new(),
            summary: text("summary"),
            description: text("description"),
            inputs,
            steps,
            outputs: outputs(value),
            depends_on,
        })
    }

    /// The id of a workflow of this document.
    fn workflow_id(&self, id: Option<&str>, at: &str) -> Read<String> {
        match id {
            None | Some("") => Err(Fault::at(at, "it names no workflow")),
            Some(id) if id.trim_start_matches('{').starts_with("$sourceDescriptions.") => {
                Err(Fault::at(at, "workflows of other Arazzo documents are not followed"))
            }
            Some(id) => Ok(id.to_owned()),
        }
    }
}

/// What a list has of this name; nothing where it is none.
fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn outputs(value: &Value) -> Vec<(String, Value)> {
    let given = value.get("outputs").and_then(Value::as_object).into_iter().flatten();
    given.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A workflow that needs one that is not there cannot be run either; nor can what needs it. Each need is looked at once,
/// however long the chain is that breaks.
fn remove_dangling(workflows: &mut Vec<(usize, Workflow)>, set_aside: &mut Vec<SetAside>) {
    let known: HashSet<&str> = workflows.iter().map(|(_, workflow)| workflow.id.as_str()).collect();
    let mut needed_by: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut missing: VecDeque<&str> = VecDeque::new();
    for (position, (_, workflow)) in workflows.iter().enumerate() {
        for id in needed(workflow) {
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
                let reason = format!("it needs the workflow `{}`, which is not there", shown_short(id, 60));
                let fault = Fault::at(format!("/workflows/{index}"), reason);
                set_aside.push(fault.set_aside(shown_short(&workflow.id, 100)));
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

fn needed(workflow: &Workflow) -> Vec<&str> {
    let mut ids: Vec<&str> = workflow.depends_on.iter().map(String::as_str).collect();
    for step in &workflow.steps {
        if let What::Workflow { id } = &step.what {
            ids.push(id);
        }
        for action in step.on_success.iter().chain(&step.on_failure) {
            match &action.then {
                Then::Goto(Target::Workflow(id)) | Then::Retry { first: Some(Target::Workflow(id)), .. } => {
                    ids.push(id)
                }
                Then::End | Then::Goto(Target::Step(_)) | Then::Retry { .. } => {}
            }
        }
    }
    ids
}

/// Ids that become the same legal name are told apart by a hash, so that their order does not matter.
fn name_tools(workflows: &mut [Workflow]) {
    let legal = |id: &str| -> String {
        let legal = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
        id.chars().map(|character| if legal(character) { character } else { '_' }).collect()
    };
    let names: Vec<String> = workflows.iter().map(|workflow| legal(&workflow.id)).collect();
    for (workflow, name) in workflows.iter_mut().zip(&names) {
        let shared = names.iter().filter(|other| *other == name).count() > 1;
        let hashed = shared && workflow.id != *name;
        let hash = Fingerprint::of(&workflow.id);
        workflow.tool = if hashed { format!("{name}_{}", hash.short(8)) } else { name.clone() };
    }
}

#[cfg(test)]
mod tests;
