//! Prunes a schema that is too large for a list, below some depth. Pruned parts are marked by a comment, required names
//! stay, and the full schema is available on demand. A pruned schema is never stricter than the full one.
//!
//! The levels of [`PRUNE_LEVELS`] are tried until the result fits. Because arguments are validated against the full
//! schema, a pruned one may accept too much, but an argument that the full one accepts must not be rejected by a client
//! that validates against the listed one.
//!
//! The values (`enum`, `const`) of required arguments are kept at every level ([`required_values`]).

mod required_values;

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use toolcrib_core::json;
use toolcrib_schema::referenced_definition;

use super::super::description;
use super::TranslatedSchema;
use required_values::RequiredValues;

/// Maximum size of a schema that stays over its limit even when pruned most.
const MAX_PRUNED_BYTES: usize = 128 * 1024;
/// `$comment` of a pruned part.
const PRUNED_COMMENT: &str = "pruned";
/// `$comment` of a schema with pruned parts.
const PRUNED_ROOT_COMMENT: &str = "pruned; ask for the full schema to see the rest";
/// Maximum number of values of an `enum` that is kept.
const MAX_ENUM_VALUES: usize = 24;
/// Maximum nesting of definitions, against chains of definitions that only refer to one another.
const MAX_DEFINITION_NESTING: usize = 32;

/// Maximum depth and length of descriptions to try, from much to little.
const PRUNE_LEVELS: [(usize, usize); 9] =
    [(8, 300), (6, 300), (5, 200), (4, 160), (3, 120), (2, 120), (2, 40), (2, 0), (1, 40)];

/// Returns a definition by name.
type DefinitionLookup<'l> = dyn FnMut(&str) -> Option<Rc<TranslatedSchema>> + 'l;

/// Prunes a schema to at most `limit` bytes, or to its top level if that is impossible. Also returns the number of
/// bytes written on the way.
pub(super) fn prune(root: &Value, limit: usize, find_definition: &mut DefinitionLookup<'_>) -> (Value, usize) {
    let mut bytes_written = 0;
    for (depth, text) in PRUNE_LEVELS {
        // Leaves room for the comment at the root.
        let mut pruner = Pruner::new(depth, text, limit as isize - 64, RequiredValues::within(limit), find_definition);
        let max_bytes = |pruner: &Pruner<'_, '_>| limit + pruner.required.written_bytes;
        let value = pruner.prune_schema(root, 0).filter(|value| value.to_string().len() <= max_bytes(&pruner));
        let is_pruned = pruner.is_pruned;
        bytes_written += limit.saturating_sub(pruner.remaining_bytes.max(0) as usize);
        if let Some(value) = value {
            return (add_root_comment(value, is_pruned), bytes_written);
        }
    }
    // Keep at least the names of all arguments, if those are not too many either.
    let mut pruner = Pruner::new(1, 0, MAX_PRUNED_BYTES as isize, RequiredValues::within(limit), find_definition);
    let minimal = pruner.prune_schema(root, 0).unwrap_or_else(|| json!({ "type": "object" }));
    (add_root_comment(minimal, true), bytes_written + MAX_PRUNED_BYTES)
}

/// Marks the root of a schema with pruned parts.
fn add_root_comment(mut value: Value, is_pruned: bool) -> Value {
    if let (Value::Object(fields), true) = (&mut value, is_pruned) {
        fields.insert("$comment".into(), PRUNED_ROOT_COMMENT.into());
    }
    value
}

/// Writes a schema pruned to one level.
struct Pruner<'p, 'l> {
    /// Nesting below which subschemas are pruned.
    max_depth: usize,
    /// Maximum length of descriptions; 0 drops them.
    max_text_len: usize,
    /// Bytes that may still be written, approximately.
    remaining_bytes: isize,
    /// Whether anything was pruned so far.
    is_pruned: bool,
    /// Whether the current schema belongs to a required argument: a required property of a required object, and so on.
    is_required: bool,
    /// Limits of the values of required arguments.
    required: RequiredValues,
    find_definition: &'p mut DefinitionLookup<'l>,
    /// Definitions on the path to the current schema, the innermost last.
    open_definitions: Vec<String>,
}

/// Parts that were left out of one schema.
#[derive(Default)]
struct Omissions {
    /// Properties, or members of `allOf` and the like that may define some.
    properties: bool,
    /// `not`, `if`, `then` or `else`.
    conditions: bool,
    /// Anything else.
    other: bool,
}

impl Omissions {
    /// Marks the schema, and removes keywords that would reject the pruned parts: less must never be stricter.
    fn apply_to(self, output: &mut Map<String, Value>) -> bool {
        let rejecting: &[&str] = match (self.properties, self.conditions) {
            (true, _) => {
                &["additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "if", "then", "else"]
            }
            (false, true) => &["if", "then", "else"],
            (false, false) => &[],
        };
        for key in rejecting {
            output.shift_remove(*key);
        }
        let any = self.properties || self.conditions || self.other;
        if any {
            output.insert("$comment".into(), PRUNED_COMMENT.into());
        }
        any
    }
}

impl<'p, 'l> Pruner<'p, 'l> {
    fn new(
        max_depth: usize,
        max_text_len: usize,
        remaining_bytes: isize,
        required: RequiredValues,
        find_definition: &'p mut DefinitionLookup<'l>,
    ) -> Pruner<'p, 'l> {
        Pruner {
            max_depth,
            max_text_len,
            remaining_bytes,
            is_pruned: false,
            is_required: true,
            required,
            find_definition,
            open_definitions: Vec::new(),
        }
    }

    /// Prunes a schema. Returns `None` once `remaining_bytes` is spent.
    fn prune_schema(&mut self, value: &Value, depth: usize) -> Option<Value> {
        self.prune_described(value, None, depth)
    }

    /// Prunes a schema with the description beside a reference to it, which replaces its own.
    fn prune_described(&mut self, value: &Value, description: Option<&str>, depth: usize) -> Option<Value> {
        let Value::Object(fields) = value else { return Some(value.clone()) };
        let name = referenced_definition(fields);
        let Some(name) = name else { return self.prune_fields(fields, description, depth).map(Value::Object) };
        let description = description.or_else(|| fields.get("description")?.as_str());
        // A definition that cannot be read accepts anything.
        let Some(definition) = (self.find_definition)(name) else { return Some(json!({})) };
        if self.open_definitions.len() >= MAX_DEFINITION_NESTING
            || self.open_definitions.iter().any(|open_name| open_name == name)
        {
            self.is_pruned = true;
            let kind = definition.value.get("type").cloned();
            let mut output: Map<String, Value> = kind.map(|kind| ("type".to_owned(), kind)).into_iter().collect();
            output.insert("$comment".into(), PRUNED_COMMENT.into());
            return Some(output.into());
        }
        self.open_definitions.push(name.to_owned());
        let output = self.prune_described(&definition.value, description, depth);
        self.open_definitions.pop();
        output
    }

    /// Prunes one schema. `description` replaces its own.
    fn prune_fields(
        &mut self,
        fields: &Map<String, Value>,
        description: Option<&str>,
        depth: usize,
    ) -> Option<Map<String, Value>> {
        let (mut output, is_pruned) = self.track_pruning(|pruner| pruner.prune_keywords(fields, description, depth))?;
        if self.is_required && is_pruned {
            self.restore_required_values(fields, &mut output);
        }
        Some(output)
    }

    /// Prunes the keywords of one schema. `description` replaces its own.
    fn prune_keywords(
        &mut self,
        fields: &Map<String, Value>,
        description: Option<&str>,
        depth: usize,
    ) -> Option<Map<String, Value>> {
        let mut output = Map::new();
        // Keywords that apply subschemas are cut below the depth; all others are copied while bytes are left.
        let mut omissions = Omissions::default();
        for (key, value) in fields {
            // Quotes, colon and comma count as well.
            self.spend(key.len() + 4)?;
            match key.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" => match value.as_object() {
                    Some(schemas) if depth < self.max_depth => {
                        let mut pruned = Map::new();
                        let is_required = self.is_required;
                        let required = fields.get("required").and_then(Value::as_array);
                        let required = required.into_iter().flatten().filter_map(Value::as_str);
                        let required: HashSet<&str> = required.filter(|_| is_required).collect();
                        for (name, value) in schemas {
                            self.spend(name.len() + 6)?;
                            self.is_required = required.contains(name.as_str());
                            pruned.insert(name.clone(), self.prune_schema(value, depth + 1)?);
                        }
                        self.is_required = is_required;
                        output.insert(key.clone(), pruned.into());
                    }
                    _ => omissions.properties = true,
                },
                "anyOf" | "oneOf" | "allOf" | "prefixItems" => match value.as_array() {
                    Some(items) if depth < self.max_depth => {
                        let (pruned, is_pruned) = self.track_pruning(|pruner| {
                            let each = items.iter().map(|item| {
                                pruner.spend(3)?;
                                pruner.prune_schema(item, depth + 1)
                            });
                            each.collect::<Option<Vec<Value>>>()
                        })?;
                        // The keywords that made the alternatives exclusive may be pruned.
                        let key = if key == "oneOf" && is_pruned { "anyOf" } else { key };
                        if output.contains_key(key) {
                            omissions.other = true;
                        } else {
                            output.insert(key.to_owned(), pruned.into());
                        }
                    }
                    _ => omissions.properties = true,
                },
                "not" | "if" | "then" | "else" => {
                    // `not` inverts what less strict means, and conditions choose between branches, so they are kept
                    // whole or not at all.
                    let (pruned, is_pruned) = self.track_pruning(|pruner| pruner.prune_schema(value, depth + 1))?;
                    // A pruned schema within these keywords would make the whole stricter.
                    if is_pruned || depth >= self.max_depth {
                        omissions.conditions = true;
                    } else {
                        output.insert(key.clone(), pruned);
                    }
                }
                "items"
                | "additionalProperties"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => {
                    if depth < self.max_depth || !value.is_object() {
                        output.insert(key.clone(), self.prune_schema(value, depth + 1)?);
                    } else {
                        omissions.other = true;
                    }
                }
                "description" => {
                    if let Some(text) = description.or(value.as_str()) {
                        self.insert_description(text, &mut output);
                    }
                }
                "enum" if value.as_array().is_some_and(|choices| choices.len() > MAX_ENUM_VALUES) => {
                    if self.is_required && self.required.reserve(value) {
                        output.insert(key.clone(), value.clone());
                    } else {
                        omissions.other = true;
                    }
                }
                _ => {
                    // Write no more than fits: the value may be a constant of megabytes.
                    let available = usize::try_from(self.remaining_bytes).unwrap_or(0);
                    self.spend(json::truncated_json(value, available + 4).len())?;
                    output.insert(key.clone(), value.clone());
                }
            }
        }
        if omissions.apply_to(&mut output) {
            self.is_pruned = true;
        }
        if let Some(text) = description.filter(|_| !fields.contains_key("description")) {
            self.insert_description(text, &mut output);
        }
        Some(output)
    }

    /// Runs `work` and returns whether it pruned anything.
    fn track_pruning<T>(&mut self, work: impl FnOnce(&mut Self) -> Option<T>) -> Option<(T, bool)> {
        let was_pruned = std::mem::take(&mut self.is_pruned);
        let result = work(self)?;
        let is_pruned = self.is_pruned;
        self.is_pruned |= was_pruned;
        Some((result, is_pruned))
    }

    /// Charges bytes. Returns `None` once `remaining_bytes` is spent.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.remaining_bytes -= bytes as isize;
        (self.remaining_bytes >= 0).then_some(())
    }

    /// Inserts a description, truncated to the length of this level.
    fn insert_description(&mut self, text: &str, output: &mut Map<String, Value>) {
        if self.max_text_len > 0 {
            let text = description::truncate_at_sentence(text.to_owned(), self.max_text_len);
            self.remaining_bytes -= text.len() as isize;
            output.insert("description".into(), text.into());
        }
    }
}
