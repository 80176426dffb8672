//! Documents whose workflows call each other: the one that a source names, and those that it describes as sources of type
//! `arazzo`, directly or through others.
//!
//! ```yaml
//! sourceDescriptions: [{ name: payments, url: ./payments.arazzo.yaml, type: arazzo }]
//! workflows:
//!   - workflowId: buy
//!     steps: [{ stepId: pay, workflowId: $sourceDescriptions.payments.pay }]
//! ```
//!
//! Only documents that a workflow refers to are read. Documents may refer to each other; workflows that call each other in
//! a cycle fail when they are executed.

use std::collections::{BTreeMap, HashSet};

use toolcrib_core::error::Result;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::text::sanitize_truncated;
use url::Url;

use crate::parse::referenced_workflows;
use crate::{ArazzoDocument, SourceDescriptionKind, Workflow, WorkflowReference};

/// Maximum number of documents, the first one included.
const MAX_LINKED_DOCUMENTS: usize = 16;

/// Documents with the links between them. The first is the one whose workflows are tools.
#[derive(Debug)]
pub struct LinkedDocuments(Vec<LinkedDocument>);

/// One document of a set.
#[derive(Debug)]
pub struct LinkedDocument {
    /// Its source descriptions are relative to it.
    pub url: Url,
    pub document: ArazzoDocument,
    /// Position of a described document, or why it cannot be used, by the name of its description.
    links: BTreeMap<String, Result<usize, String>>,
}

/// A way to refer to a workflow in expressions of a document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkflowAlias<'a> {
    /// Position of the document with the expressions.
    pub(crate) document: usize,
    /// Name of the description of the workflow's document; `None` in that document itself.
    pub(crate) source: Option<&'a str>,
    /// Whether no other workflow that the document can run has the same id.
    pub(crate) is_unique: bool,
}

impl LinkedDocuments {
    /// Reads the documents that workflows of the first one refer to. One that cannot be read makes the workflows that need
    /// it unusable, with the reason; others are not affected. `read` decides what may be read.
    pub fn load(
        url: Url,
        document: ArazzoDocument,
        mut read: impl FnMut(&Url) -> Result<ArazzoDocument>,
    ) -> LinkedDocuments {
        let mut documents = vec![LinkedDocument { url, document, links: BTreeMap::new() }];
        let mut position = 0;
        // Grows while it is read, up to the limit.
        while position < documents.len() {
            for (name, relative_url) in needed_documents(&documents[position].document) {
                let link = match documents[position].url.join(&relative_url) {
                    Err(_) => Err("its `url` is invalid".to_owned()),
                    Ok(url) => match documents.iter().position(|other| other.url == url) {
                        Some(known) => Ok(known),
                        None if documents.len() == MAX_LINKED_DOCUMENTS => {
                            Err(format!("there are more than {MAX_LINKED_DOCUMENTS} documents"))
                        }
                        None => read(&url).map_err(|error| error.message).map(|document| {
                            documents.push(LinkedDocument { url, document, links: BTreeMap::new() });
                            documents.len() - 1
                        }),
                    },
                };
                documents[position].links.insert(name, link);
            }
            position += 1;
        }
        let mut linked = LinkedDocuments(documents);
        linked.remove_broken_workflows();
        linked
    }

    /// The document whose workflows are tools.
    pub fn main(&self) -> &ArazzoDocument {
        &self.0[0].document
    }

    /// All documents; calls of operations refer to them by position.
    pub fn documents(&self) -> &[LinkedDocument] {
        &self.0
    }

    /// Finds a workflow that the document at a position refers to, with the position of its own document.
    pub(crate) fn resolve(&self, position: usize, reference: &WorkflowReference) -> Result<(usize, &Workflow), String> {
        let shown_id = sanitize_truncated(&reference.id, 60);
        let Some(linked) = self.0.get(position) else { return Err("internal error: no such document".to_owned()) };
        let Some(name) = &reference.source else {
            let workflow = linked.document.workflow(&reference.id);
            return workflow
                .map(|workflow| (position, workflow))
                .ok_or_else(|| format!("there is no workflow `{shown_id}`"));
        };
        let shown_name = sanitize_truncated(name, 60);
        let target = match linked.links.get(name) {
            Some(Ok(target)) => *target,
            Some(Err(reason)) => return Err(format!("the document `{shown_name}` cannot be used: {reason}")),
            None => return Err(format!("the document `{shown_name}` is not described")),
        };
        let workflow = self.0[target].document.workflow(&reference.id);
        let workflow = workflow.map(|workflow| (target, workflow));
        workflow.ok_or_else(|| format!("the document `{shown_name}` has no workflow `{shown_id}` that can run"))
    }

    /// Returns how expressions can refer to a workflow of the document at a position.
    pub(crate) fn aliases<'a>(&'a self, position: usize, id: &'a str) -> impl Iterator<Item = WorkflowAlias<'a>> {
        let own = WorkflowAlias { document: position, source: None, is_unique: true };
        let described = self.0.iter().enumerate().flat_map(move |(document, linked)| {
            let links = move || linked.links.iter().filter_map(|(name, link)| Some((name, *link.as_ref().ok()?)));
            let has_workflow = |document: usize| self.0[document].document.workflow(id).is_some();
            let is_unique = move || {
                let others = links().map(|(_, target)| target).chain([document]);
                !others.filter(|other| *other != position).any(has_workflow)
            };
            let names = links().filter(move |(_, target)| *target == position && document != position);
            names.map(move |(name, _)| WorkflowAlias { document, source: Some(name.as_str()), is_unique: is_unique() })
        });
        [own].into_iter().chain(described)
    }

    /// Skips workflows that refer to a missing document or workflow, and those that refer to them in turn. The rounds are
    /// bounded: longer chains are nested deeper than an execution allows.
    fn remove_broken_workflows(&mut self) {
        for _ in 0..MAX_LINKED_DOCUMENTS {
            let broken: Vec<(usize, String, String)> = self.find_broken_workflows();
            if broken.is_empty() {
                return;
            }
            let ids: HashSet<(usize, &str)> = broken.iter().map(|(position, id, _)| (*position, id.as_str())).collect();
            for (position, linked) in self.0.iter_mut().enumerate() {
                linked.document.workflows.retain(|workflow| !ids.contains(&(position, workflow.id.as_str())));
            }
            for (position, id, reason) in broken {
                let skipped = SkippedTool { name: sanitize_truncated(&id, 100), reason };
                self.0[position].document.skipped.push(skipped);
            }
        }
    }

    /// Position, id and reason of each workflow whose references cannot all be resolved.
    fn find_broken_workflows(&self) -> Vec<(usize, String, String)> {
        // An index for each round: documents may have a thousand workflows.
        let known: HashSet<(usize, &str)> = (0..self.0.len())
            .flat_map(|position| {
                self.0[position].document.workflows.iter().map(move |workflow| (position, workflow.id.as_str()))
            })
            .collect();
        let is_known = |position: usize, reference: &WorkflowReference| {
            let target = match &reference.source {
                None => Some(position),
                Some(name) => self.0[position].links.get(name).and_then(|link| link.as_ref().ok().copied()),
            };
            target.is_some_and(|target| known.contains(&(target, reference.id.as_str())))
        };
        let mut broken = Vec::new();
        for (position, linked) in self.0.iter().enumerate() {
            for workflow in &linked.document.workflows {
                let missing =
                    referenced_workflows(workflow).into_iter().find(|reference| !is_known(position, reference));
                if let Some(reason) = missing.and_then(|reference| self.resolve(position, reference).err()) {
                    broken.push((position, workflow.id.clone(), reason));
                }
            }
        }
        broken
    }
}

/// Names and URLs of the Arazzo documents that workflows of a document refer to.
fn needed_documents(document: &ArazzoDocument) -> BTreeMap<String, String> {
    let references = document.workflows.iter().flat_map(referenced_workflows);
    let names: HashSet<&str> = references.filter_map(|reference| reference.source.as_deref()).collect();
    let descriptions = document.source_descriptions.iter();
    descriptions
        .filter(|description| {
            description.kind == SourceDescriptionKind::Arazzo && names.contains(description.name.as_str())
        })
        .map(|description| (description.name.clone(), description.url.clone()))
        .collect()
}
