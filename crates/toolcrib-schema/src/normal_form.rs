//! Normal form of a JSON Schema: without annotations, with references inlined and equivalent notations unified. Schemas
//! with the same normal form accept the same values; the reverse does not hold. Unifying the keywords of one schema is
//! `simplify`.
//!
//! For example, these three have the normal form `{"type": ["null", "string"]}`:
//!
//! ```json
//! {"type": ["string", "null"], "description": "A name"}
//! {"anyOf": [{"type": "string"}, {"type": "null"}]}
//! {"$ref": "#/$defs/name", "$defs": {"name": {"type": "string", "nullable": true}}}
//! ```

mod simplify;

use serde_json::{Map, Number, Value, json};

use crate::budget::{KEYWORDS_PER_NODE, TEXT_BYTES_PER_NODE, WorkBudget};
use crate::keywords::{KeywordKind, affects_evaluation, is_vacuous, keyword_kind};
use crate::reference::{LocalReference, resolve_reference};
use simplify::{simplify_keywords, sort_and_dedup};

/// Maximum size of a normal form in nodes. A schema that exceeds it is written again with its references kept. Inlining
/// can multiply the size of a schema with every level of definitions.
const MAX_NORMAL_FORM_NODES: usize = 40_000;
/// Maximum nesting, which bounds the recursion.
const MAX_NORMAL_FORM_DEPTH: usize = 128;

/// Normal form of a schema, or of several that apply at once.
#[derive(Debug)]
pub struct NormalForm {
    /// The normalised schema, or a list of them for several parts.
    pub schema: Value,
    /// Whether the form covers everything that the schema means. An incomplete form is equivalent to nothing.
    pub is_complete: bool,
    /// Number of nodes written, for the budget of the caller.
    pub work: usize,
    /// Forms with references inlined and forms with references kept cannot be compared with each other.
    follows_references: bool,
}

impl NormalForm {
    /// Normalises a schema. If inlining its references would exceed the limits or one cannot be resolved, keeps them.
    pub fn new(schema: &Value) -> NormalForm {
        match Normalizer::new(schema, true).normalize(schema) {
            (Some(output), work) => NormalForm { schema: output, is_complete: true, work, follows_references: true },
            // Too large with its references inlined, or one of them leads elsewhere.
            (None, wasted_work) => {
                let (output, work) = Normalizer::new(schema, false).normalize(schema);
                let is_complete = output.is_some() && refers_only_to_definitions(schema);
                NormalForm {
                    schema: output.unwrap_or_default(),
                    is_complete,
                    work: wasted_work + work,
                    follows_references: false,
                }
            }
        }
    }

    /// Normalises one schema of many and spends its work from their common budget.
    pub fn with_budget(schema: &Value, budget: &mut WorkBudget) -> NormalForm {
        let form = NormalForm::new(schema);
        budget.spend(form.work);
        form
    }

    /// Normalises parts of a schema that apply at once. References resolve against `root`.
    pub fn from_subschemas<'a>(root: &'a Value, kind: KeywordKind, parts: &[&'a Value]) -> NormalForm {
        let mut normalizer = Normalizer::new(root, true);
        // The surrounding schema is unknown, so it may have `unevaluatedProperties`.
        normalizer.in_unevaluated_scope = true;
        let output: Option<Vec<Value>> =
            parts.iter().map(|part| normalizer.normalize_keyword_value(kind, part, 0)).collect();
        let is_complete = output.is_some();
        let mut output = output.unwrap_or_default();
        // The parts apply at once, so their order has no meaning.
        sort_and_dedup(&mut output);
        NormalForm { schema: Value::Array(output), is_complete, work: normalizer.work, follows_references: true }
    }

    /// Returns whether both are known to accept the same values.
    pub fn is_equivalent(&self, other: &NormalForm) -> bool {
        self.is_complete
            && other.is_complete
            && self.follows_references == other.follows_references
            && self.schema == other.schema
    }
}

/// Returns whether every local reference names an entry of `$defs` or `definitions`. References to other places change
/// their target when keywords are moved or sorted.
fn refers_only_to_definitions(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(name, value)| match (keyword_kind(name), value) {
            (KeywordKind::Reference, Value::String(reference)) => match LocalReference::parse(reference) {
                Some(LocalReference::Pointer(pointer)) if !pointer.is_empty() => {
                    let name = pointer.strip_prefix("/$defs/").or_else(|| pointer.strip_prefix("/definitions/"));
                    name.is_some_and(|name| !name.contains('/'))
                }
                Some(LocalReference::Pointer(_) | LocalReference::Anchor(_)) | None => true,
            },
            _ => refers_only_to_definitions(value),
        }),
        Value::Array(items) => items.iter().all(refers_only_to_definitions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Writes the normal form of one schema and counts its size.
struct Normalizer<'a> {
    root: &'a Value,
    follows_references: bool,
    /// Number of nodes that may still be written.
    remaining: usize,
    /// Number of nodes written.
    output_size: usize,
    /// Number of nodes written, and of those sorted again.
    work: usize,
    /// Definitions whose normal form is being written, outermost first.
    open_definitions: Vec<OpenDefinition>,
    /// Whether a surrounding schema has `unevaluatedProperties` or `unevaluatedItems`, which makes vacuous keywords
    /// matter.
    in_unevaluated_scope: bool,
}

/// A definition on the path to the current node.
struct OpenDefinition {
    definition: *const Value,
    /// Set when the definition turns out to refer to itself.
    anchor: Option<usize>,
}

impl<'a> Normalizer<'a> {
    fn new(root: &'a Value, follows_references: bool) -> Normalizer<'a> {
        // Without inlining, the result is no larger than the schema.
        let remaining = if follows_references { MAX_NORMAL_FORM_NODES } else { usize::MAX };
        Normalizer {
            root,
            follows_references,
            remaining,
            output_size: 0,
            work: 0,
            open_definitions: Vec::new(),
            in_unevaluated_scope: false,
        }
    }

    /// Returns the normal form, or `None` if a limit was exceeded, and the work done.
    fn normalize(mut self, schema: &'a Value) -> (Option<Value>, usize) {
        let output = self.normalize_schema(schema, 0);
        (output, self.work)
    }

    /// Charges nodes before they are written: a short schema may refer to a large definition many times.
    fn spend(&mut self, work: usize) -> Option<()> {
        self.work += work;
        self.output_size += work;
        self.remaining = self.remaining.checked_sub(work)?;
        Some(())
    }

    /// Charges a string by its length.
    fn spend_text(&mut self, text: &str) -> Option<()> {
        self.spend(1 + text.len() / TEXT_BYTES_PER_NODE)
    }

    /// Returns `None` when a limit is exceeded.
    fn normalize_schema(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
        // `true` and `{}` accept the same.
        let Value::Object(keywords) = schema else {
            return if schema == &Value::Bool(true) {
                self.normalize_value(&json!({}))
            } else {
                self.normalize_value(schema)
            };
        };
        self.spend(1)?;
        if depth > MAX_NORMAL_FORM_DEPTH {
            return None;
        }
        // Set for everything below a schema with such a keyword, and restored for its siblings.
        let outer_scope = self.in_unevaluated_scope;
        self.in_unevaluated_scope |= keywords.keys().any(|name| name.starts_with("unevaluated"));
        let output = self.normalize_keywords(keywords, depth);
        self.in_unevaluated_scope = outer_scope;
        output
    }

    /// Writes the keywords of one schema in sorted order and unifies them.
    fn normalize_keywords(&mut self, keywords: &'a Map<String, Value>, depth: usize) -> Option<Value> {
        let mut output = Map::new();
        let mut referenced = Vec::new();
        let mut names: Vec<&String> = keywords.keys().collect();
        names.sort_unstable();
        for name in names {
            self.spend_text(name)?;
            let value = &keywords[name];
            let kind = keyword_kind(name);
            // With references inlined, definitions and their names are not needed; cycles get anchors of their own.
            let is_definition = matches!(kind, KeywordKind::Definitions | KeywordKind::Anchor);
            if kind == KeywordKind::Annotation || (is_definition && self.follows_references) {
                continue;
            }
            let value = self.normalize_keyword_value(kind, value, depth)?;
            if kind == KeywordKind::Reference && self.follows_references {
                referenced.push(value);
            } else if (self.in_unevaluated_scope && affects_evaluation(name)) || !is_vacuous(name, &value) {
                output.insert(name.clone(), value);
            }
        }
        Some(simplify_keywords(output, referenced))
    }

    /// Writes the value of a keyword by its kind.
    fn normalize_keyword_value(&mut self, kind: KeywordKind, value: &'a Value, depth: usize) -> Option<Value> {
        match kind {
            // An unresolvable reference could mean anything, so the form would not be complete.
            KeywordKind::Reference if self.follows_references => {
                self.inline_definition(resolve_reference(self.root, value.as_str()?)?, depth)
            }
            KeywordKind::Schema => self.normalize_schema(value, depth + 1),
            KeywordKind::SchemaOrList if !value.is_array() => self.normalize_schema(value, depth + 1),
            KeywordKind::SchemaList | KeywordKind::SchemaOrList => self.normalize_list(value, depth),
            KeywordKind::SchemaMap | KeywordKind::Definitions => self.normalize_map(value, depth),
            KeywordKind::Value | KeywordKind::Reference | KeywordKind::Anchor | KeywordKind::Annotation => {
                self.normalize_value(value)
            }
        }
    }

    /// Inlines a definition. One that refers to itself gets an `$anchor` with the smallest number not in use around it,
    /// so that the result does not depend on the names of definitions.
    fn inline_definition(&mut self, target: &'a Value, depth: usize) -> Option<Value> {
        self.spend(1)?;
        // A definition that is on the path already is a cycle: refer to it by number instead of inlining it again.
        let used_anchors: Vec<usize> = self.open_definitions.iter().filter_map(|open| open.anchor).collect();
        if let Some(open) = self.open_definitions.iter_mut().find(|open| std::ptr::eq(open.definition, target)) {
            let unused = (0..).find(|number| !used_anchors.contains(number))?;
            let number = open.anchor.get_or_insert(unused);
            return Some(json!({ "$ref": format!("#{number}") }));
        }
        self.open_definitions.push(OpenDefinition { definition: std::ptr::from_ref(target), anchor: None });
        let output = self.normalize_schema(target, depth + 1);
        let anchor = self.open_definitions.pop()?.anchor;
        match (output?, anchor) {
            (output, None) => Some(output),
            (output, Some(number)) => Some(json!({ "$anchor": number.to_string(), "allOf": [output] })),
        }
    }

    /// Writes a list of schemas.
    fn normalize_list(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        match value {
            Value::Array(schemas) => {
                let before = self.output_size;
                let output: Option<Vec<Value>> =
                    schemas.iter().map(|schema| self.normalize_schema(schema, depth + 1)).collect();
                // `simplify` sorts lists by text, so nested schemas are serialised once more for every list around
                // them. That adds no output, but work that the budget of a list of tools must cover.
                self.work += (self.output_size - before) / KEYWORDS_PER_NODE;
                output.map(Value::Array)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.normalize_value(value)
            }
        }
    }

    /// Writes schemas by name, in sorted order.
    fn normalize_map(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        let Value::Object(schemas) = value else { return self.normalize_value(value) };
        let mut names: Vec<&String> = schemas.keys().collect();
        names.sort_unstable();
        let mut output = Map::new();
        for name in names {
            self.spend_text(name)?;
            // In `dependencies`, an entry may be a list of names.
            let schema = &schemas[name];
            let value = if schema.is_array() {
                self.normalize_value(schema)?
            } else {
                self.normalize_schema(schema, depth + 1)?
            };
            output.insert(name.clone(), value);
        }
        Some(Value::Object(output))
    }

    /// Writes plain data with sorted keys, and 1.0 as 1.
    fn normalize_value(&mut self, value: &Value) -> Option<Value> {
        self.spend_text(value.as_str().unwrap_or_default())?;
        Some(match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_unstable();
                let mut output = Map::new();
                for name in names {
                    self.spend_text(name)?;
                    output.insert(name.clone(), self.normalize_value(&fields[name])?);
                }
                Value::Object(output)
            }
            Value::Array(items) => {
                items.iter().map(|item| self.normalize_value(item)).collect::<Option<Vec<_>>>()?.into()
            }
            Value::Number(number) => as_integer(number).map_or_else(|| value.clone(), Value::from),
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        })
    }
}

/// Returns the integer that a float without fraction stands for, where a float represents it exactly.
fn as_integer(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)?;
    Some(float as i64)
}
