//! Graph of the subschemas of a schema, with an edge for each one that another applies. References are edges, so the
//! graph is never larger than the schema.
//!
//! Edges are of three kinds: to the same value (`in_place`), to members, and to items. Only paths through `in_place`
//! edges can multiply for one value; the others consume a level of it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::pattern::PatternCost;
use super::{Unbounded, value_bytes, value_steps};
use crate::reference::LocalReference;

/// Index of a subschema.
pub(super) type SchemaNodeId = usize;

/// All subschemas reachable from the root.
#[derive(Debug)]
pub(super) struct SubschemaGraph {
    /// Indexed by [`SchemaNodeId`]; the root is the first.
    nodes: Vec<SubschemaNode>,
    /// A match that may not finish makes `jsonschema` validate again under each possible outcome.
    pub(super) has_backtracking: bool,
    /// Estimated size of all compiled patterns.
    pub(super) pattern_bytes: u64,
}

/// One subschema: what its own keywords cost, and the subschemas it applies.
#[derive(Debug, Default)]
pub(super) struct SubschemaNode {
    /// Steps of one visit, without its subschemas: the size of its own keywords.
    pub(super) weight: u64,
    /// Length of its longest keyword, as a part of a path.
    pub(super) key_bytes: usize,
    /// Applied to the same value: `allOf`, `$ref` and the like.
    pub(super) in_place: Vec<SchemaNodeId>,
    /// Has `anyOf` or `oneOf`, which validate once more to list errors, and copy the value into each of them.
    pub(super) has_alternatives: bool,
    /// Maximum number of errors of its own keywords.
    pub(super) max_errors: u64,
    /// Bytes of `not`, which an error copies.
    pub(super) not_bytes: u64,
    pub(super) members: Option<Box<MemberKeywords>>,
    pub(super) items: Option<Box<ItemKeywords>>,
    pub(super) pattern: Option<PatternCost>,
    /// Has `uniqueItems`, which compares items with each other.
    pub(super) unique_items: bool,
    /// Has `unevaluatedProperties` or `unevaluatedItems`.
    pub(super) reads_evaluated: bool,
}

/// Subschemas for the members of an object.
#[derive(Debug, Default)]
pub(super) struct MemberKeywords {
    /// `properties`.
    pub(super) by_name: HashMap<String, SchemaNodeId>,
    /// Applied to every member, assumed for every keyword whose names are not matched.
    pub(super) every: Vec<SchemaNodeId>,
    /// Matched against the name of every member.
    pub(super) patterns: Vec<PatternCost>,
    /// Applied to the names themselves: `propertyNames`.
    pub(super) names: Vec<SchemaNodeId>,
}

/// Subschemas for the items of an array.
#[derive(Debug, Default)]
pub(super) struct ItemKeywords {
    /// One list for `prefixItems`, one for an array in `items`: which of them applies depends on the draft.
    pub(super) by_position: Vec<Vec<SchemaNodeId>>,
    pub(super) every: Vec<SchemaNodeId>,
}

/// Number and depth of paths from one subschema through those that apply to the same value.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpandedPaths {
    pub(super) count: u64,
    pub(super) depth: usize,
}

impl SubschemaGraph {
    pub(super) const ROOT: SchemaNodeId = 0;

    /// Reads every reachable subschema once.
    pub(super) fn build(schema: &Value) -> Result<SubschemaGraph, Unbounded> {
        // A subschema with an `$id` changes the base of the references inside it, even for a JSON pointer that leads
        // past it.
        let has_draft_4 = has_draft_4(schema);
        if schema.as_object().is_some_and(|root| root.values().any(|value| has_address(value, has_draft_4))) {
            return Err(Unbounded::Reference);
        }
        let mut builder = GraphBuilder { root: schema, anchors: None, ids: HashMap::new(), unread: Vec::new() };
        builder.node_id(schema);
        let mut graph = SubschemaGraph { nodes: Vec::new(), has_backtracking: false, pattern_bytes: 0 };
        // Breadth does not matter: each subschema is read once, in any order.
        while let Some((id, schema)) = builder.unread.pop() {
            let node = match schema.as_object() {
                Some(keywords) => builder.read(keywords)?,
                // `true` and `false`.
                None => SubschemaNode { weight: 1, max_errors: 1, ..SubschemaNode::default() },
            };
            let names = node.members.iter().flat_map(|members| &members.patterns);
            for pattern in node.pattern.iter().chain(names) {
                graph.has_backtracking |= pattern.has_backtracking;
                graph.pattern_bytes = graph.pattern_bytes.saturating_add(pattern.compiled_bytes);
            }
            graph.nodes.resize_with(builder.ids.len(), SubschemaNode::default);
            graph.nodes[id] = node;
        }
        Ok(graph)
    }

    /// Returns a subschema by id.
    pub(super) fn node(&self, id: SchemaNodeId) -> &SubschemaNode {
        &self.nodes[id]
    }

    /// Steps of compiling the schema, given its expanded paths. `jsonschema` follows all of them to find what
    /// discriminates between alternatives, and keeps a tree of them for `unevaluatedProperties` and `unevaluatedItems`.
    pub(super) fn compile_steps(&self, paths: &[ExpandedPaths]) -> u64 {
        // `jsonschema` looks for a discriminator among at least this many alternatives.
        const MIN_DISCRIMINATED: usize = 3;
        // Building a node of that tree costs about as much as this many steps.
        const EVALUATED_TREE_STEPS: u64 = 50;
        let steps = self.nodes.iter().zip(paths).map(|(node, paths)| {
            let discriminated = if node.in_place.len() >= MIN_DISCRIMINATED { paths.count } else { 0 };
            let evaluated = if node.reads_evaluated { paths.count.saturating_mul(EVALUATED_TREE_STEPS) } else { 0 };
            discriminated.saturating_add(evaluated)
        });
        steps.fold(0, u64::saturating_add)
    }

    /// Counts from each subschema, using the count of those it applies; `None` where one leads back to itself. Without
    /// recursion, since a chain of references may be as long as the schema.
    pub(super) fn expanded_paths(&self) -> Vec<Option<ExpandedPaths>> {
        let mut counted: Vec<Option<ExpandedPaths>> = vec![None; self.nodes.len()];
        let mut entered: HashSet<SchemaNodeId> = HashSet::new();
        let mut stack: Vec<(SchemaNodeId, VisitStep)> =
            (0..self.nodes.len()).map(|id| (id, VisitStep::Enter)).collect();
        while let Some((id, step)) = stack.pop() {
            let children = &self.nodes[id].in_place;
            match step {
                VisitStep::Enter if entered.insert(id) => {
                    stack.push((id, VisitStep::Leave));
                    let unentered = children.iter().filter(|child| !entered.contains(child));
                    stack.extend(unentered.map(|child| (*child, VisitStep::Enter)));
                }
                VisitStep::Enter => {}
                // A child that was entered and not left yet is an ancestor: a cycle.
                VisitStep::Leave => {
                    counted[id] = children.iter().try_fold(ExpandedPaths { count: 1, depth: 1 }, |paths, child| {
                        let child = counted[*child]?;
                        let count = paths.count.saturating_add(child.count);
                        Some(ExpandedPaths { count, depth: paths.depth.max(child.depth + 1) })
                    });
                }
            }
        }
        counted
    }
}

/// Steps of a depth-first traversal with an explicit stack.
#[derive(Clone, Copy)]
enum VisitStep {
    Enter,
    Leave,
}

/// Assigns ids to subschemas and collects those not read yet.
struct GraphBuilder<'a> {
    /// The whole schema, which JSON pointers start from.
    root: &'a Value,
    /// By name; `None` for a name that two subschemas have.
    anchors: Option<HashMap<&'a str, Option<&'a Value>>>,
    /// By the address of the subschema.
    ids: HashMap<*const Value, SchemaNodeId>,
    /// Subschemas with an id whose keywords were not read yet.
    unread: Vec<(SchemaNodeId, &'a Value)>,
}

impl<'a> GraphBuilder<'a> {
    /// Returns the id of a subschema, and queues it on first sight.
    fn node_id(&mut self, schema: &'a Value) -> SchemaNodeId {
        let next = self.ids.len();
        let id = *self.ids.entry(schema).or_insert(next);
        if id == next {
            self.unread.push((id, schema));
        }
        id
    }

    /// Reads the keywords of one subschema.
    fn read(&mut self, keywords: &'a Map<String, Value>) -> Result<SubschemaNode, Unbounded> {
        let mut node = SubschemaNode { weight: 1, ..SubschemaNode::default() };
        for (key, value) in keywords {
            node.max_errors += 1;
            node.key_bytes = node.key_bytes.max(key.len());
            match (key.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    node.has_alternatives |= key != "allOf";
                    node.in_place.extend(schemas.iter().map(|schema| self.node_id(schema)));
                }
                ("not" | "if" | "then" | "else", schema) => {
                    if key == "not" {
                        node.not_bytes = value_bytes(schema);
                    }
                    node.in_place.push(self.node_id(schema));
                }
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    for schema in schemas.values() {
                        // Before `dependentRequired`, an array of names.
                        let names = if schema.is_array() { value_steps(schema) } else { 1 };
                        node.weight = node.weight.saturating_add(names);
                        node.max_errors = node.max_errors.saturating_add(names);
                        node.in_place.push(self.node_id(schema));
                    }
                }
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    node.key_bytes = node.key_bytes.max(key.len() + reference.len());
                    node.in_place.push(self.target(reference)?);
                }
                ("properties", Value::Object(schemas)) => {
                    node.weight += schemas.len() as u64;
                    let members = node.members.get_or_insert_default();
                    members.by_name =
                        schemas.iter().map(|(name, schema)| (name.clone(), self.node_id(schema))).collect();
                }
                ("patternProperties", Value::Object(schemas)) => {
                    let longest = schemas.keys().map(String::len).max().unwrap_or_default();
                    node.key_bytes = node.key_bytes.max(longest);
                    let members = node.members.get_or_insert_default();
                    members.patterns = schemas.keys().map(|pattern| PatternCost::new(pattern)).collect();
                    members.every.extend(schemas.values().map(|schema| self.node_id(schema)));
                }
                ("additionalProperties" | "unevaluatedProperties", schema) => {
                    node.reads_evaluated |= key == "unevaluatedProperties";
                    node.members.get_or_insert_default().every.push(self.node_id(schema));
                }
                ("propertyNames", schema) => {
                    node.members.get_or_insert_default().names.push(self.node_id(schema));
                }
                ("prefixItems" | "items", Value::Array(schemas)) => {
                    let items = node.items.get_or_insert_default();
                    items.by_position.push(schemas.iter().map(|schema| self.node_id(schema)).collect());
                }
                ("items" | "additionalItems" | "contains" | "unevaluatedItems", schema) => {
                    node.reads_evaluated |= key == "unevaluatedItems";
                    node.items.get_or_insert_default().every.push(self.node_id(schema));
                }
                ("pattern", Value::String(pattern)) => node.pattern = Some(PatternCost::new(pattern)),
                ("uniqueItems", _) => node.unique_items = true,
                // Comparing with a constant ends where the smaller of both does.
                ("enum" | "const", value) => node.weight = node.weight.saturating_add(value_steps(value)),
                // Each name that is missing is an error.
                ("required" | "dependentRequired", value) => {
                    node.weight = node.weight.saturating_add(value_steps(value));
                    node.max_errors = node.max_errors.saturating_add(value_steps(value));
                }
                // `$defs` apply by reference alone; all other keywords compare one number or length.
                _ => node.weight += 1,
            }
        }
        Ok(node)
    }

    /// Returns the subschema that a reference within this schema leads to.
    fn target(&mut self, reference: &str) -> Result<SchemaNodeId, Unbounded> {
        // Other documents are never loaded, so such a reference cannot be measured.
        let target = match LocalReference::parse(reference).ok_or(Unbounded::Reference)? {
            LocalReference::Pointer(pointer) => self.root.pointer(&pointer),
            LocalReference::Anchor(name) => {
                let root = self.root;
                let anchors = self.anchors.get_or_insert_with(|| {
                    let mut anchors = HashMap::new();
                    find_anchors(root, &mut anchors);
                    anchors
                });
                anchors.get(&*name).copied().flatten()
            }
        };
        target.map(|schema| self.node_id(schema)).ok_or(Unbounded::Reference)
    }
}

/// Returns whether `value` or anything in it has an address of its own. Recurses as deep as [`has_draft_4`].
fn has_address(value: &Value, has_draft_4: bool) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(key, member)| match (key.as_str(), member) {
            ("$id", Value::String(address)) => !address.starts_with('#'),
            ("id", Value::String(address)) => has_draft_4 && !address.starts_with('#'),
            (_, member) => has_address(member, has_draft_4),
        }),
        Value::Array(items) => items.iter().any(|item| has_address(item, has_draft_4)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns whether any part of the schema declares draft 4, which has `id` instead of `$id`. The recursion is as deep
/// as the schema, and JSON is parsed with a limit of 128 levels.
fn has_draft_4(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(key, member)| {
            let is_dialect = key == "$schema" && member.as_str().is_some_and(|dialect| dialect.contains("draft-04"));
            is_dialect || has_draft_4(member)
        }),
        Value::Array(items) => items.iter().any(has_draft_4),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Collects subschemas by anchor. Recurses as deep as [`has_draft_4`].
fn find_anchors<'a>(value: &'a Value, anchors: &mut HashMap<&'a str, Option<&'a Value>>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let name = match (key.as_str(), member) {
                    ("$anchor" | "$dynamicAnchor", Value::String(name)) => Some(name.as_str()),
                    ("$id" | "id", Value::String(name)) => name.strip_prefix('#'),
                    _ => None,
                };
                if let Some(name) = name {
                    let anchor = anchors.entry(name).or_insert(Some(value));
                    if anchor.is_some_and(|anchor| !std::ptr::eq(anchor, value)) {
                        *anchor = None;
                    }
                }
                find_anchors(member, anchors);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
