//! The subschemas of a schema, and which of them each applies to what. A reference is an edge, so that the graph is never
//! larger than the schema.

use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::pattern::Pattern;
use super::{Unbounded, size};

pub(super) type NodeId = usize;

#[derive(Debug)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

/// One subschema: what its own keywords cost, and the subschemas it applies.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Steps of one visit, without its subschemas: the size of its own keywords.
    pub(super) weight: u64,
    /// Length of its longest keyword, as a part of a path.
    pub(super) key_bytes: usize,
    /// Applied to the same value: `allOf`, `$ref` and the like.
    pub(super) in_place: Vec<NodeId>,
    pub(super) members: Option<Box<MemberKeywords>>,
    pub(super) items: Option<Box<ItemKeywords>>,
    pub(super) pattern: Option<Pattern>,
    pub(super) unique_items: bool,
    /// Has `unevaluatedProperties` or `unevaluatedItems`.
    pub(super) reads_evaluated: bool,
}

/// Subschemas for the members of an object.
#[derive(Debug, Default)]
pub(super) struct MemberKeywords {
    pub(super) by_name: HashMap<String, NodeId>,
    /// Applied to every member, as far as can be told without matching names.
    pub(super) every: Vec<NodeId>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) names: Vec<NodeId>,
}

/// Subschemas for the items of an array.
#[derive(Debug, Default)]
pub(super) struct ItemKeywords {
    pub(super) by_position: Vec<NodeId>,
    pub(super) every: Vec<NodeId>,
}

/// Ways from one subschema through those that apply to the same value.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpandedPaths {
    pub(super) count: u64,
    pub(super) depth: usize,
}

impl Graph {
    pub(super) const ROOT: NodeId = 0;

    /// Reads every reachable subschema once.
    pub(super) fn build(schema: &Value) -> Result<Graph, Unbounded> {
        let mut builder = Builder {
            root: schema,
            anchors: None,
            has_draft_4: has_draft_4(schema),
            ids: HashMap::new(),
            unread: Vec::new(),
        };
        builder.node_id(schema);
        let mut nodes: Vec<Node> = Vec::new();
        while let Some((id, schema)) = builder.unread.pop() {
            let node = match schema.as_object() {
                Some(keywords) => builder.read(keywords, id == Graph::ROOT)?,
                None => Node { weight: 1, ..Node::default() },
            };
            nodes.resize_with(builder.ids.len(), Node::default);
            nodes[id] = node;
        }
        Ok(Graph { nodes })
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// Counts from each subschema, using the count of those it applies; `None` where one leads back to itself. Without
    /// recursion, since a chain of references may be as long as the schema.
    pub(super) fn expanded_paths(&self) -> Vec<Option<ExpandedPaths>> {
        let mut counted: Vec<Option<ExpandedPaths>> = vec![None; self.nodes.len()];
        let mut entered: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<(NodeId, Step)> = (0..self.nodes.len()).map(|id| (id, Step::Enter)).collect();
        while let Some((id, step)) = stack.pop() {
            let children = &self.nodes[id].in_place;
            match step {
                Step::Enter if entered.insert(id) => {
                    stack.push((id, Step::Leave));
                    let unentered = children.iter().filter(|child| !entered.contains(child));
                    stack.extend(unentered.map(|child| (*child, Step::Enter)));
                }
                Step::Enter => {}
                // A child that was entered and not left yet is an ancestor: a cycle.
                Step::Leave => {
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

#[derive(Clone, Copy)]
enum Step {
    Enter,
    Leave,
}

struct Builder<'a> {
    root: &'a Value,
    /// By name; `None` for a name that two subschemas have.
    anchors: Option<HashMap<&'a str, Option<&'a Value>>>,
    /// Draft 4 has `id` for `$id`, which is no keyword later.
    has_draft_4: bool,
    /// By the address of the subschema.
    ids: HashMap<*const Value, NodeId>,
    unread: Vec<(NodeId, &'a Value)>,
}

impl<'a> Builder<'a> {
    fn node_id(&mut self, schema: &'a Value) -> NodeId {
        let next = self.ids.len();
        let id = *self.ids.entry(schema).or_insert(next);
        if id == next {
            self.unread.push((id, schema));
        }
        id
    }

    fn read(&mut self, keywords: &'a Map<String, Value>, is_root: bool) -> Result<Node, Unbounded> {
        let mut node = Node { weight: 1, ..Node::default() };
        for (key, value) in keywords {
            node.key_bytes = node.key_bytes.max(key.len());
            match (key.as_str(), value) {
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    node.in_place.extend(schemas.iter().map(|schema| self.node_id(schema)));
                }
                ("not" | "if" | "then" | "else", schema) => node.in_place.push(self.node_id(schema)),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    node.weight += schemas.len() as u64;
                    node.in_place.extend(schemas.values().map(|schema| self.node_id(schema)));
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
                    members.patterns = schemas.keys().map(|pattern| Pattern::new(pattern)).collect();
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
                    items.by_position = schemas.iter().map(|schema| self.node_id(schema)).collect();
                }
                ("items" | "additionalItems" | "contains" | "unevaluatedItems", schema) => {
                    node.reads_evaluated |= key == "unevaluatedItems";
                    node.items.get_or_insert_default().every.push(self.node_id(schema));
                }
                ("pattern", Value::String(pattern)) => node.pattern = Some(Pattern::new(pattern)),
                ("uniqueItems", _) => node.unique_items = true,
                // Comparing with a constant ends where the smaller of both does.
                ("enum" | "const" | "required" | "dependentRequired", value) => {
                    node.weight = node.weight.saturating_add(size(value));
                }
                // A subschema with an address of its own changes what the references inside it mean.
                ("$id" | "id", Value::String(address))
                    if !is_root && !address.starts_with('#') && (key == "$id" || self.has_draft_4) =>
                {
                    return Err(Unbounded::Reference);
                }
                // `$defs` apply by reference alone; all other keywords compare one number or length.
                _ => node.weight += 1,
            }
        }
        Ok(node)
    }

    /// Returns the subschema that a reference within this schema leads to.
    fn target(&mut self, reference: &str) -> Result<NodeId, Unbounded> {
        let fragment = reference.strip_prefix('#').ok_or(Unbounded::Reference)?;
        let fragment = percent_decode_str(fragment).decode_utf8().map_err(|_| Unbounded::Reference)?;
        let target = if fragment.is_empty() || fragment.starts_with('/') {
            self.root.pointer(&fragment)
        } else {
            let root = self.root;
            let anchors = self.anchors.get_or_insert_with(|| {
                let mut anchors = HashMap::new();
                find_anchors(root, &mut anchors);
                anchors
            });
            anchors.get(&*fragment).copied().flatten()
        };
        target.map(|schema| self.node_id(schema)).ok_or(Unbounded::Reference)
    }
}

/// Returns whether any part of the schema says it is of draft 4. The recursion is as deep as the schema, and JSON is
/// parsed with a limit of 128 levels.
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

/// As deep a recursion as [`has_draft_4`].
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
                    let known = anchors.entry(name).or_insert(Some(value));
                    if known.is_some_and(|known| !std::ptr::eq(known, value)) {
                        *known = None;
                    }
                }
                find_anchors(member, anchors);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_anchors(item, anchors)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
