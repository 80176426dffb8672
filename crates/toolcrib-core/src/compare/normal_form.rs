//! A schema by its meaning: without words, with references followed, and written in one of the ways that come to the
//! same. Two schemas with one plain form take the same values; the reverse does not hold.

use serde_json::{Map, Number, Value, json};

use super::WorkBudget;
use super::alternatives::{KEYWORDS_PER_NODE, TEXT_BYTES_PER_NODE};
use super::keywords::{KeywordKind, affects_evaluation, is_vacuous, keyword_kind};
use super::simplify::{simplify_keywords, sort_and_dedup};
use crate::json::follow_reference;

/// How much may come of one schema; past that, references stay as they are.
const MAX_NORMAL_FORM_NODES: usize = 40_000;
const MAX_NORMAL_FORM_DEPTH: usize = 128;

pub(crate) struct NormalForm {
    pub(crate) schema: Value,
    /// Whether the form holds all that the schema means. Of one that does not, nobody can say that it is like another.
    pub(crate) is_complete: bool,
    /// How much work it was.
    pub(super) work: usize,
    follows_references: bool,
}

impl NormalForm {
    pub(crate) fn new(schema: &Value) -> NormalForm {
        match Normalizer::new(schema, true).normalize(schema) {
            (Some(written), work) => NormalForm { schema: written, is_complete: true, work, follows_references: true },
            // Its references lead too far, or elsewhere.
            (None, wasted) => {
                let (written, work) = Normalizer::new(schema, false).normalize(schema);
                let is_whole = written.is_some() && refers_only_to_definitions(schema);
                NormalForm {
                    schema: written.unwrap_or_default(),
                    is_complete: is_whole,
                    work: wasted + work,
                    follows_references: false,
                }
            }
        }
    }

    /// Of one of many, paid for with what is left for all.
    pub(crate) fn with_budget(schema: &Value, allowance: &mut WorkBudget) -> NormalForm {
        let plain = NormalForm::new(schema);
        allowance.spend(plain.work);
        plain
    }

    /// Of parts of a schema that hold at once, whose references are looked up in the whole.
    pub(super) fn from_subschemas<'a>(root: &'a Value, what: KeywordKind, parts: &[&'a Value]) -> NormalForm {
        let mut writer = Normalizer::new(root, true);
        // What stands around it is not known.
        writer.in_unevaluated_scope = true;
        let written: Option<Vec<Value>> =
            parts.iter().map(|part| writer.normalize_keyword_value(what, part, 0)).collect();
        let is_whole = written.is_some();
        let mut written = written.unwrap_or_default();
        sort_and_dedup(&mut written);
        NormalForm { schema: Value::Array(written), is_complete: is_whole, work: writer.work, follows_references: true }
    }

    /// Whether both are known to take the same values.
    pub(super) fn is_equivalent(&self, other: &NormalForm) -> bool {
        self.is_complete
            && other.is_complete
            && self.follows_references == other.follows_references
            && self.schema == other.schema
    }
}

/// What a reference within a schema leads to.
pub(super) fn resolve_reference<'a>(root: &'a Value, reference: &Value) -> Option<&'a Value> {
    follow_reference(root, reference.as_str()?)
}

/// Whether what is referred to stays where it is when a schema is written otherwise: elsewhere, or under a name of its own.
fn refers_only_to_definitions(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().all(|(name, value)| match (keyword_kind(name), value) {
            (KeywordKind::Reference, Value::String(reference)) => reference.strip_prefix("#/").is_none_or(|path| {
                let name = path.strip_prefix("$defs/").or_else(|| path.strip_prefix("definitions/"));
                name.is_some_and(|name| !name.contains('/'))
            }),
            _ => refers_only_to_definitions(value),
        }),
        Value::Array(items) => items.iter().all(refers_only_to_definitions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

struct Normalizer<'a> {
    root: &'a Value,
    follows_references: bool,
    remaining: usize,
    output_size: usize,
    work: usize,
    /// The definitions that are being written, outermost first.
    open_definitions: Vec<OpenDefinition>,
    /// Whether something around asks what is left over, so that it counts what takes anything.
    in_unevaluated_scope: bool,
}

/// A definition that is being written, and what it is called where it leads to itself.
struct OpenDefinition {
    definition: *const Value,
    anchor: Option<usize>,
}

impl<'a> Normalizer<'a> {
    fn new(root: &'a Value, follows: bool) -> Normalizer<'a> {
        // Without following references it is no more than was there.
        let left = if follows { MAX_NORMAL_FORM_NODES } else { usize::MAX };
        Normalizer {
            root,
            follows_references: follows,
            remaining: left,
            output_size: 0,
            work: 0,
            open_definitions: Vec::new(),
            in_unevaluated_scope: false,
        }
    }

    fn normalize(mut self, schema: &'a Value) -> (Option<Value>, usize) {
        let written = self.normalize_schema(schema, 0);
        (written, self.work)
    }

    /// Whatever is written is paid for first: a few words may refer to much, many times.
    fn spend(&mut self, work: usize) -> Option<()> {
        self.work += work;
        self.output_size += work;
        self.remaining = self.remaining.checked_sub(work)?;
        Some(())
    }

    fn spend_text(&mut self, text: &str) -> Option<()> {
        self.spend(1 + text.len() / TEXT_BYTES_PER_NODE)
    }

    /// Nothing when there is too much of it.
    fn normalize_schema(&mut self, schema: &'a Value, depth: usize) -> Option<Value> {
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
        let was_evaluated = self.in_unevaluated_scope;
        self.in_unevaluated_scope |= keywords.keys().any(|name| name.starts_with("unevaluated"));
        let written = self.normalize_keywords(keywords, depth);
        self.in_unevaluated_scope = was_evaluated;
        written
    }

    fn normalize_keywords(&mut self, keywords: &'a Map<String, Value>, depth: usize) -> Option<Value> {
        let mut written = Map::new();
        let mut referred = Vec::new();
        let mut names: Vec<&String> = keywords.keys().collect();
        names.sort_unstable();
        for name in names {
            self.spend_text(name)?;
            let value = &keywords[name];
            let what = keyword_kind(name);
            // Once references are followed, names are of no use; and where a definition begins is called that way.
            let is_a_name = matches!(what, KeywordKind::Definitions | KeywordKind::Anchor);
            if what == KeywordKind::Annotation || (is_a_name && self.follows_references) {
                continue;
            }
            let value = self.normalize_keyword_value(what, value, depth)?;
            if what == KeywordKind::Reference && self.follows_references {
                referred.push(value);
            } else if (self.in_unevaluated_scope && affects_evaluation(name)) || !is_vacuous(name, &value) {
                written.insert(name.clone(), value);
            }
        }
        Some(simplify_keywords(written, referred))
    }

    fn normalize_keyword_value(&mut self, what: KeywordKind, value: &'a Value, depth: usize) -> Option<Value> {
        match what {
            // What it refers to is not known, so nothing that it could be may be left out.
            KeywordKind::Reference if self.follows_references => {
                self.inline_definition(resolve_reference(self.root, value)?, depth)
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

    /// A definition that leads to itself is marked where it begins, by a number that none around it has.
    fn inline_definition(&mut self, target: &'a Value, depth: usize) -> Option<Value> {
        self.spend(1)?;
        let taken: Vec<usize> = self.open_definitions.iter().filter_map(|begun| begun.anchor).collect();
        if let Some(begun) = self.open_definitions.iter_mut().find(|begun| std::ptr::eq(begun.definition, target)) {
            let free = (0..).find(|number| !taken.contains(number))?;
            let number = begun.anchor.get_or_insert(free);
            return Some(json!({ "$ref": format!("#{number}") }));
        }
        self.open_definitions.push(OpenDefinition { definition: std::ptr::from_ref(target), anchor: None });
        let written = self.normalize_schema(target, depth + 1);
        let called = self.open_definitions.pop()?.anchor;
        match (written?, called) {
            (written, None) => Some(written),
            (written, Some(number)) => Some(json!({ "$anchor": number.to_string(), "allOf": [written] })),
        }
    }

    fn normalize_list(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        match value {
            Value::Array(schemas) => {
                let before = self.output_size;
                let written: Option<Vec<Value>> =
                    schemas.iter().map(|schema| self.normalize_schema(schema, depth + 1)).collect();
                // A row is sorted by its text, so what lies deep is written once more for every row around it. That is
                // no part of what comes of the schema, but work that a list of many such schemas has to pay for.
                self.work += (self.output_size - before) / KEYWORDS_PER_NODE;
                written.map(Value::Array)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                self.normalize_value(value)
            }
        }
    }

    fn normalize_map(&mut self, value: &'a Value, depth: usize) -> Option<Value> {
        let Value::Object(schemas) = value else { return self.normalize_value(value) };
        let mut names: Vec<&String> = schemas.keys().collect();
        names.sort_unstable();
        let mut written = Map::new();
        for name in names {
            self.spend_text(name)?;
            // What a field depends on may be a list of names.
            let schema = &schemas[name];
            let value = if schema.is_array() {
                self.normalize_value(schema)?
            } else {
                self.normalize_schema(schema, depth + 1)?
            };
            written.insert(name.clone(), value);
        }
        Some(Value::Object(written))
    }

    /// Keys in their order, and 1.0 as 1.
    fn normalize_value(&mut self, value: &Value) -> Option<Value> {
        self.spend_text(value.as_str().unwrap_or_default())?;
        Some(match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort_unstable();
                let mut written = Map::new();
                for name in names {
                    self.spend_text(name)?;
                    written.insert(name.clone(), self.normalize_value(&fields[name])?);
                }
                Value::Object(written)
            }
            Value::Array(items) => {
                items.iter().map(|item| self.normalize_value(item)).collect::<Option<Vec<_>>>()?.into()
            }
            Value::Number(number) => as_integer(number).map_or_else(|| value.clone(), Value::from),
            Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
        })
    }
}

fn as_integer(number: &Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15)?;
    Some(float as i64)
}
