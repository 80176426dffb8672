//! Cost of validating a value against a JSON Schema, known before validation starts. A schema of 3 KB can expand to 2^40
//! paths, and `jsonschema` has no step limit of its own. The subschemas form a graph with an edge for every keyword that
//! applies one of them to a value: building it is linear in the schema, walking it for a value ends at a limit.

mod graph;
mod pattern;

use serde_json::{Map, Value};

use graph::{Graph, Node, NodeId};
pub(super) use pattern::BACKTRACK_LIMIT;

/// Maximum number of paths along which subschemas apply to one and the same value.
pub(super) const MAX_EXPANDED_PATHS: u64 = 10_000;
/// Maximum number of subschemas within one another while a value is validated. `jsonschema` recurses, and 6,000 of them
/// overflow the stack of a thread (2 MiB, unoptimised build).
pub(super) const MAX_DEPTH: usize = 1_000;
/// Text is compared, measured and matched: this many bytes count as one step.
const BYTES_PER_STEP: u64 = 64;
/// `uniqueItems` compares the items of a short array in pairs, and hashes those of a long one.
const UNIQUE_ITEMS_STEPS: u64 = 16;

#[derive(Debug)]
pub(super) struct CostModel {
    graph: Graph,
}

/// Why the cost of a schema has no usable bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unbounded {
    /// More than [`MAX_EXPANDED_PATHS`].
    Paths,
    /// References that nest deeper than [`MAX_DEPTH`], or lead back to themselves without consuming a value.
    Depth,
    /// A reference whose target cannot be told for certain.
    Reference,
    /// No JSON that could be parsed.
    Unreadable,
}

/// What validating one value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    /// Upper bound of the work, about 100 ns each.
    pub(super) steps: u64,
    /// Length of the longest path of keywords; every error repeats its own.
    pub(super) path_bytes: usize,
}

impl CostModel {
    pub(super) fn new(schema: &Value) -> Result<CostModel, Unbounded> {
        let graph = Graph::build(schema)?;
        for paths in graph.expanded_paths() {
            let paths = paths.ok_or(Unbounded::Depth)?;
            if paths.depth > MAX_DEPTH {
                return Err(Unbounded::Depth);
            }
            if paths.count > MAX_EXPANDED_PATHS {
                return Err(Unbounded::Paths);
            }
        }
        Ok(CostModel { graph })
    }

    /// Returns the cost of validating `value`, or `None` if it is above `max_steps` or too deep for the stack.
    pub(super) fn cost(&self, value: &Value, max_steps: u64) -> Option<Cost> {
        let mut walk = Walk { graph: &self.graph, max_steps, cost: Cost::default() };
        walk.visit(Graph::ROOT, Subject::Value(value), Position::default()).then_some(walk.cost)
    }
}

/// A value under validation, or the name of a member, which `propertyNames` validates like a string.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Value(&'a Value),
    Name(&'a str),
}

#[derive(Clone, Copy, Default)]
struct Position {
    depth: usize,
    path_bytes: usize,
}

/// Takes the same way through schema and value as validation does, and counts. It assumes that no keyword fails early,
/// so that it never counts less than validation does.
struct Walk<'a> {
    graph: &'a Graph,
    max_steps: u64,
    cost: Cost,
}

impl<'a> Walk<'a> {
    /// Returns false as soon as a limit is exceeded.
    fn visit(&mut self, id: NodeId, subject: Subject<'a>, at: Position) -> bool {
        let node = self.graph.node(id);
        if at.depth > MAX_DEPTH || !self.charge(node.weight) {
            return false;
        }
        self.cost.path_bytes = self.cost.path_bytes.max(at.path_bytes);
        let below = Position { depth: at.depth + 1, path_bytes: at.path_bytes + node.key_bytes };
        if !node.in_place.iter().all(|child| self.visit(*child, subject, below)) {
            return false;
        }
        if node.reads_evaluated && !self.mark_evaluated(node, subject, below) {
            return false;
        }
        match subject {
            Subject::Name(text) => self.visit_string(node, text),
            Subject::Value(Value::String(text)) => self.visit_string(node, text),
            Subject::Value(value @ Value::Array(items)) => {
                (!node.unique_items || self.charge(size(value).saturating_mul(UNIQUE_ITEMS_STEPS)))
                    && self.visit_items(node, items, below)
            }
            Subject::Value(Value::Object(members)) => self.visit_members(node, members, below),
            Subject::Value(Value::Null | Value::Bool(_) | Value::Number(_)) => true,
        }
    }

    fn charge(&mut self, steps: u64) -> bool {
        self.cost.steps = self.cost.steps.saturating_add(steps);
        self.cost.steps <= self.max_steps
    }

    /// `unevaluatedProperties` and `unevaluatedItems` validate the subschemas beside them once more, and those below, to
    /// learn which of them hold.
    fn mark_evaluated(&mut self, node: &'a Node, subject: Subject<'a>, at: Position) -> bool {
        let below = Position { depth: at.depth + 1, ..at };
        at.depth <= MAX_DEPTH
            && node.in_place.iter().all(|child| {
                self.visit(*child, subject, at) && self.mark_evaluated(self.graph.node(*child), subject, below)
            })
    }

    fn visit_string(&mut self, node: &Node, text: &str) -> bool {
        let matching = node.pattern.map_or(0, |pattern| pattern.steps(text));
        self.charge(text_steps(text).saturating_add(matching))
    }

    fn visit_items(&mut self, node: &'a Node, items: &'a [Value], at: Position) -> bool {
        let Some(keywords) = &node.items else { return true };
        items.iter().enumerate().all(|(position, item)| {
            let own = keywords.by_position.get(position);
            self.charge(1) && keywords.every.iter().chain(own).all(|id| self.visit(*id, Subject::Value(item), at))
        })
    }

    fn visit_members(&mut self, node: &'a Node, members: &'a Map<String, Value>, at: Position) -> bool {
        let Some(keywords) = &node.members else { return true };
        members.iter().all(|(name, value)| {
            let matching = keywords.patterns.iter().map(|pattern| pattern.steps(name));
            let own = keywords.by_name.get(name);
            let at = Position { path_bytes: at.path_bytes + name.len(), ..at };
            self.charge(matching.fold(text_steps(name), u64::saturating_add))
                && keywords.names.iter().all(|id| self.visit(*id, Subject::Name(name), at))
                && keywords.every.iter().chain(own).all(|id| self.visit(*id, Subject::Value(value), at))
        })
    }
}

/// Number of values in `value`, plus one for every 64 bytes of text. The recursion is as deep as the value, and JSON is
/// parsed with a limit of 128 levels.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => text_steps(text),
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Object(members) => {
            let sizes = members.iter().map(|(name, value)| text_steps(name).saturating_add(size(value)));
            sizes.fold(1, u64::saturating_add)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn text_steps(text: &str) -> u64 {
    1 + text.len() as u64 / BYTES_PER_STEP
}

#[cfg(test)]
mod tests;
