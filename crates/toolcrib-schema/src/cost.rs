//! Cost of validating a value against a JSON Schema, computed before validation starts. A schema of 3 KB can expand to
//! 2^40 paths, and `jsonschema` has no step limit of its own. The subschemas form a graph with an edge for every
//! keyword that applies one of them to a value: building it is linear in the schema, walking it for a value ends at a
//! limit.
//!
//! The walk follows the value: a keyword for items costs nothing for a string. It counts too much rather than too
//! little, because an underestimate would let a schema block a thread, while an overestimate only skips a validation
//! that the source does itself.

mod graph;
mod pattern;

use std::collections::HashMap;

use serde_json::{Map, Value};

use graph::{SchemaNodeId, SubschemaGraph, SubschemaNode};
pub(super) use pattern::BACKTRACK_LIMIT;

/// Maximum number of paths along which subschemas apply to one and the same value.
pub(super) const MAX_EXPANDED_PATHS: u64 = 10_000;
/// Maximum nesting depth of subschemas while a value is validated. `jsonschema` recurses, and 6,000 of them
/// overflow the stack of a thread (2 MiB, unoptimised build).
pub(super) const MAX_SUBSCHEMA_DEPTH: usize = 1_000;
/// Maximum steps of compiling a schema. Beyond it, nothing is validated against the schema.
const MAX_COMPILE_STEPS: u64 = 1_000_000;
/// Maximum estimated size of all compiled patterns of a schema.
const MAX_TOTAL_PATTERN_BYTES: u64 = 16 * 1024 * 1024;
/// Text is compared, measured and matched: this many bytes count as one step.
const BYTES_PER_STEP: u64 = 64;
/// `uniqueItems` compares the items of a short array in pairs, and hashes those of a long one.
const UNIQUE_ITEMS_STEPS: u64 = 16;
/// Size of one error without its paths and copies, measured.
const ERROR_BYTES: u64 = 800;
/// Size of a value in memory, without its text.
const VALUE_BYTES: u64 = 72;

/// Precomputed graph of a schema that yields the cost of validating a value.
#[derive(Debug)]
pub(super) struct CostModel {
    graph: SubschemaGraph,
}

/// Why no arguments are validated against a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unbounded {
    /// More than [`MAX_EXPANDED_PATHS`].
    Paths,
    /// References that nest deeper than [`MAX_SUBSCHEMA_DEPTH`], or lead back to themselves without consuming a value.
    Depth,
    /// A reference whose target is not certain.
    Reference,
    /// Compiling it would take too much time or memory.
    Compilation,
    /// It cannot be parsed as JSON.
    Unreadable,
}

/// Upper bounds of the work and memory that one value takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cost {
    /// About 100 ns each.
    pub(super) steps: u64,
    /// Memory of all errors. Only counted by [`CostModel::error_list_cost`].
    pub(super) error_bytes: u64,
}

impl CostModel {
    /// Builds the model. Returns an error for a schema that is too expensive whatever the arguments are.
    pub(super) fn new(schema: &Value) -> Result<CostModel, Unbounded> {
        let graph = SubschemaGraph::build(schema)?;
        // Checks that do not depend on a value, from the cheapest: depth, number of paths, compilation.
        let paths: Option<Vec<_>> = graph.expanded_paths().into_iter().collect();
        let paths = paths.ok_or(Unbounded::Depth)?;
        if paths.iter().any(|paths| paths.depth > MAX_SUBSCHEMA_DEPTH) {
            return Err(Unbounded::Depth);
        }
        if paths.iter().any(|paths| paths.count > MAX_EXPANDED_PATHS) {
            return Err(Unbounded::Paths);
        }
        if graph.compile_steps(&paths) > MAX_COMPILE_STEPS || graph.pattern_bytes > MAX_TOTAL_PATTERN_BYTES {
            return Err(Unbounded::Compilation);
        }
        Ok(CostModel { graph })
    }

    /// Whether a match may stay unfinished, so that `jsonschema` validates again under each possible outcome, up to 64
    /// times.
    pub(super) fn has_backtracking(&self) -> bool {
        self.graph.has_backtracking
    }

    /// Returns the steps of validating `value`, or `None` if they are more than `max_steps` or too deep for the stack.
    pub(super) fn validation_steps(&self, value: &Value, max_steps: u64) -> Option<u64> {
        self.walk(value, max_steps, None).map(|cost| cost.steps)
    }

    /// Returns the cost of listing all errors of `value`, or `None` if it takes more than `max_steps`.
    pub(super) fn error_list_cost(&self, value: &Value, max_steps: u64) -> Option<Cost> {
        self.walk(value, max_steps, Some(HashMap::new()))
    }

    /// Walks schema and value. With `sizes`, counts the memory of errors too.
    fn walk(&self, value: &Value, max_steps: u64, sizes: Option<HashMap<*const Value, u64>>) -> Option<Cost> {
        let mut walk = CostWalk { graph: &self.graph, max_steps, cost: Cost::default(), sizes };
        walk.visit(SubschemaGraph::ROOT, ValidatedSubject::Value(value), WalkPosition::default()).then_some(walk.cost)
    }
}

/// A value under validation, or the name of a member, which `propertyNames` validates like a string.
#[derive(Clone, Copy)]
enum ValidatedSubject<'a> {
    Value(&'a Value),
    Name(&'a str),
}

/// Position in the walk.
#[derive(Clone, Copy, Default)]
struct WalkPosition {
    depth: usize,
    /// Length of the path of keywords, which every error repeats.
    path_bytes: usize,
    /// Nesting depth of alternatives.
    alternatives: u64,
}

/// Visits schema and value in the order of validation, and counts. Assumes the worst case: no keyword fails early, and
/// keywords of all drafts apply.
struct CostWalk<'a> {
    graph: &'a SubschemaGraph,
    max_steps: u64,
    cost: Cost,
    /// Sizes of the containers seen so far, where errors are counted too.
    sizes: Option<HashMap<*const Value, u64>>,
}

impl<'a> CostWalk<'a> {
    /// Returns false as soon as a limit is exceeded.
    fn visit(&mut self, id: SchemaNodeId, subject: ValidatedSubject<'a>, position: WalkPosition) -> bool {
        let node = self.graph.node(id);
        self.count_errors(node, subject, position);
        // To list errors, every alternative is validated first, and those inside of it again.
        let times = if self.sizes.is_some() { position.alternatives + 1 } else { 1 };
        if position.depth > MAX_SUBSCHEMA_DEPTH || !self.charge(node.weight.saturating_mul(times)) {
            return false;
        }
        // Charge before descending, so that the walk ends as soon as the limit is exceeded.
        let below = WalkPosition {
            depth: position.depth + 1,
            path_bytes: position.path_bytes + node.key_bytes,
            alternatives: position.alternatives + u64::from(node.has_alternatives),
        };
        if !node.in_place.iter().all(|child| self.visit(*child, subject, below)) {
            return false;
        }
        if node.reads_evaluated && !self.mark_evaluated(node, subject, below) {
            return false;
        }
        match subject {
            ValidatedSubject::Name(text) => self.visit_string(node, text),
            ValidatedSubject::Value(Value::String(text)) => self.visit_string(node, text),
            ValidatedSubject::Value(value @ Value::Array(items)) => {
                (!node.unique_items || self.charge(value_steps(value).saturating_mul(UNIQUE_ITEMS_STEPS)))
                    && self.visit_items(node, items, below)
            }
            ValidatedSubject::Value(Value::Object(members)) => self.visit_members(node, members, below),
            ValidatedSubject::Value(Value::Null | Value::Bool(_) | Value::Number(_)) => true,
        }
    }

    /// Adds steps and returns whether the limit allows them.
    fn charge(&mut self, steps: u64) -> bool {
        self.cost.steps = self.cost.steps.saturating_add(steps);
        self.cost.steps <= self.max_steps
    }

    /// An error inside of an alternative owns a copy of the value, and one about unexpected members their names.
    fn count_errors(&mut self, node: &SubschemaNode, subject: ValidatedSubject<'a>, position: WalkPosition) {
        let Some(sizes) = &mut self.sizes else { return };
        let names_members = node.members.is_some();
        let value_bytes = match subject {
            ValidatedSubject::Value(_) if position.alternatives == 0 && !names_members => 0,
            ValidatedSubject::Name(name) => name.len() as u64,
            ValidatedSubject::Value(value @ (Value::Array(_) | Value::Object(_))) => {
                *sizes.entry(value).or_insert_with(|| value_bytes(value))
            }
            ValidatedSubject::Value(value) => value_bytes(value),
        };
        // Outside of alternatives, an error borrows the value.
        let copied = if position.alternatives > 0 { value_bytes } else { 0 };
        let each = ERROR_BYTES.saturating_add(position.path_bytes as u64).saturating_add(copied);
        let names = if names_members { value_bytes } else { 0 };
        let all = node.max_errors.saturating_mul(each).saturating_add(node.not_bytes).saturating_add(names);
        self.cost.error_bytes = self.cost.error_bytes.saturating_add(all);
    }

    /// `unevaluatedProperties` and `unevaluatedItems` validate the subschemas beside them once more, and those below,
    /// to learn which of them hold.
    fn mark_evaluated(
        &mut self,
        node: &'a SubschemaNode,
        subject: ValidatedSubject<'a>,
        position: WalkPosition,
    ) -> bool {
        let below = WalkPosition { depth: position.depth + 1, ..position };
        position.depth <= MAX_SUBSCHEMA_DEPTH
            && node.in_place.iter().all(|child| {
                self.visit(*child, subject, position) && self.mark_evaluated(self.graph.node(*child), subject, below)
            })
    }

    fn visit_string(&mut self, node: &SubschemaNode, text: &str) -> bool {
        let matching = node.pattern.map_or(0, |pattern| pattern.steps(text));
        self.charge(text_steps(text).saturating_add(matching))
    }

    fn visit_items(&mut self, node: &'a SubschemaNode, items: &'a [Value], position: WalkPosition) -> bool {
        let Some(keywords) = &node.items else { return true };
        items.iter().enumerate().all(|(index, item)| {
            let specific = keywords.by_position.iter().filter_map(|schemas| schemas.get(index));
            self.charge(1)
                && keywords
                    .every
                    .iter()
                    .chain(specific)
                    .all(|id| self.visit(*id, ValidatedSubject::Value(item), position))
        })
    }

    fn visit_members(
        &mut self,
        node: &'a SubschemaNode,
        members: &'a Map<String, Value>,
        position: WalkPosition,
    ) -> bool {
        let Some(keywords) = &node.members else { return true };
        members.iter().all(|(name, value)| {
            let matching = keywords.patterns.iter().map(|pattern| pattern.steps(name));
            let specific = keywords.by_name.get(name);
            let position = WalkPosition { path_bytes: position.path_bytes + name.len(), ..position };
            self.charge(matching.fold(text_steps(name), u64::saturating_add))
                && keywords.names.iter().all(|id| self.visit(*id, ValidatedSubject::Name(name), position))
                && keywords
                    .every
                    .iter()
                    .chain(specific)
                    .all(|id| self.visit(*id, ValidatedSubject::Value(value), position))
        })
    }
}

/// Number of values in `value`, plus one for every 64 bytes of text. The recursion is as deep as the value, and JSON is
/// parsed with a limit of 128 levels.
fn value_steps(value: &Value) -> u64 {
    match value {
        Value::String(text) => text_steps(text),
        Value::Array(items) => items.iter().map(value_steps).fold(1, u64::saturating_add),
        Value::Object(members) => {
            let sizes = members.iter().map(|(name, value)| text_steps(name).saturating_add(value_steps(value)));
            sizes.fold(1, u64::saturating_add)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

/// Approximate memory of a copy of `value`. Recurses as deep as [`value_steps`].
fn value_bytes(value: &Value) -> u64 {
    let inside = match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(value_bytes).fold(0, u64::saturating_add),
        Value::Object(members) => {
            let sizes =
                members.iter().map(|(name, value)| value_bytes(value).saturating_add(name.len() as u64 + VALUE_BYTES));
            sizes.fold(0, u64::saturating_add)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inside.saturating_add(VALUE_BYTES)
}

/// Returns the steps of comparing or measuring a text.
fn text_steps(text: &str) -> u64 {
    1 + text.len() as u64 / BYTES_PER_STEP
}

#[cfg(test)]
mod tests;
