//! Translates one schema keyword by keyword into JSON Schema 2020-12. Only known and valid keywords are kept, so that
//! the result always compiles. Extensions, examples and titles are dropped.
//!
//! A keyword that is invalid or not understood is dropped, which makes the schema accept more. Values of keywords that
//! documents often get wrong are corrected by `keyword_fixes`.

mod variants;

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value, json};
use toolcrib_schema::{definition_reference, reference_text};

use super::super::description;
use super::super::document_set::NodeRef;
use super::keyword_fixes::{fix_count, fix_enum, fix_number, fix_step, fix_types};
use super::{DefinitionForm, DefinitionTarget, Direction, SchemaDialect, SchemaTranslator, TranslatedSchema};

/// Maximum nesting; deeper than any schema of practical use. The JSON text is about twice as deep. A deeper schema
/// accepts anything.
const MAX_TRANSLATE_DEPTH: usize = 24;
/// Maximum length of a description.
const MAX_DESCRIPTION_LEN: usize = 160;
/// Maximum length of a default value as JSON; longer ones are dropped. A default is information only; the server
/// applies it.
const MAX_DEFAULT_LEN: usize = 200;

/// Translates a schema. Adds its faults to `faults`.
pub(super) fn translate_schema<'a>(
    translator: &mut SchemaTranslator<'a>,
    node: NodeRef<'a>,
    direction: Direction,
    faults: &mut Vec<String>,
) -> TranslatedSchema {
    let mut translation = Translation::new(translator, direction, faults);
    let value = translation.translate(node, 0);
    TranslatedSchema::with_references(value, translation.references)
}

/// Translates the definition of a named schema in one of its forms. Adds its faults to `faults`.
pub(super) fn translate_definition<'a>(
    translator: &mut SchemaTranslator<'a>,
    target: &DefinitionTarget<'a>,
    form: DefinitionForm,
    direction: Direction,
    faults: &mut Vec<String>,
) -> TranslatedSchema {
    let node = target.node;
    let is_defined_by_subtypes = form == DefinitionForm::Value && translator.is_defined_by_subtypes(node);
    let mut translation = Translation::new(translator, direction, faults);
    let variants = if is_defined_by_subtypes { translation.translate_subtypes(target) } else { None };
    let value = match (variants, form) {
        (Some(variants), _) => variants,
        (None, DefinitionForm::Value) => translation.translate(node, 0),
        (None, DefinitionForm::Base) => {
            translation.base = Some(std::ptr::from_ref(node.value));
            translation.translate(node, 0)
        }
    };
    TranslatedSchema::with_references(value, translation.references)
}

/// State of one translation.
struct Translation<'s, 'a> {
    translator: &'s mut SchemaTranslator<'a>,
    direction: Direction,
    /// Definitions that the translated schema refers to.
    references: Vec<Rc<str>>,
    faults: &'s mut Vec<String>,
    /// Properties that the other side writes, for each surrounding `allOf`, the innermost last.
    hidden_properties: Vec<HashSet<String>>,
    /// Schema whose variants are left out.
    base: Option<*const Value>,
}

impl<'s, 'a> Translation<'s, 'a> {
    fn new(
        translator: &'s mut SchemaTranslator<'a>,
        direction: Direction,
        faults: &'s mut Vec<String>,
    ) -> Translation<'s, 'a> {
        Translation { translator, direction, references: Vec::new(), faults, hidden_properties: Vec::new(), base: None }
    }

    /// Translates a schema that does not belong to a surrounding `allOf`.
    fn translate(&mut self, node: NodeRef<'a>, depth: usize) -> Value {
        // The schema is an object of its own: what surrounding schemas hide does not apply to its properties.
        let outer = std::mem::take(&mut self.hidden_properties);
        let value = self.translate_all_of_member(node, depth);
        self.hidden_properties = outer;
        value
    }

    /// Translates a schema or a member of `allOf`, which shares the properties of the schema around it.
    fn translate_all_of_member(&mut self, node: NodeRef<'a>, depth: usize) -> Value {
        let fields = match node.value {
            Value::Object(fields) if depth < MAX_TRANSLATE_DEPTH && self.translator.charge_schema() => fields,
            // The object form of `false`.
            Value::Bool(false) => return json!({ "not": {} }),
            // Too deep or over the work limit: accept anything.
            Value::Object(_) | Value::Bool(true) => return json!({}),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.faults.push("a schema is neither an object nor true or false; anything is accepted there".into());
                return json!({});
            }
        };
        if let Some(reference) = reference_text(node.value) {
            return self.translate_reference(reference, node, depth);
        }
        // Corrections that need all keywords at once follow: null, contradictions, needless `allOf`.
        let mut output = self.translate_keywords(fields, node, depth);
        if is_nullable(node.value) {
            allow_null(&mut output);
        }
        remove_contradictions(&mut output);
        unwrap_single_all_of(output).into()
    }

    /// Translates a reference and, if the dialect allows them, the keywords beside it.
    fn translate_reference(&mut self, reference: &str, node: NodeRef<'a>, depth: usize) -> Value {
        // The target is translated as a definition, once for all that refer to it.
        let (target, url) = match self.translator.documents.resolve_reference(reference, node.document_url) {
            Ok(target) => target,
            Err(reason) => {
                self.faults.push(format!("{reason}; anything is accepted in its place"));
                return json!({});
            }
        };
        let name = self.add_reference(target, url, DefinitionForm::Value);
        self.with_siblings(&name, node, depth)
    }

    /// Returns a reference to a definition with the keywords beside the reference in the document.
    fn with_siblings(&mut self, name: &str, node: NodeRef<'a>, depth: usize) -> Value {
        let Value::Object(fields) = node.value else { return json!({}) };
        // OpenAPI 3.0 ignores keywords beside `$ref`, but descriptions there are common and useful.
        let mut output = match self.translator.dialect {
            SchemaDialect::JsonSchema => self.translate_keywords(fields, node, depth),
            SchemaDialect::OpenApi30 => {
                let description = fields.get("description").and_then(Value::as_str);
                description.map(description_entry).into_iter().collect()
            }
        };
        output.shift_insert(0, "$ref".into(), definition_reference(name).into());
        if fields.get("nullable") == Some(&Value::Bool(true)) {
            allow_null(&mut output);
        }
        output.into()
    }

    /// Records a reference to a definition and returns its name.
    fn add_reference(&mut self, target: NodeRef<'a>, url: String, form: DefinitionForm) -> Rc<str> {
        let name = self.translator.definition_name(target, url, form);
        self.references.push(name.clone());
        name
    }

    /// Translates all keywords of a schema.
    fn translate_keywords(
        &mut self,
        fields: &'a Map<String, Value>,
        node: NodeRef<'a>,
        depth: usize,
    ) -> Map<String, Value> {
        let mut output = Map::new();
        for (key, value) in fields {
            let child = NodeRef { value, ..node };
            let translated = match key.as_str() {
                "type" => fix_types(value),
                "properties" => Some(self.translate_properties(value, node, depth)),
                "patternProperties" => self.translate_pattern_properties(value, node, depth),
                "dependentSchemas" => self.translate_map(value, node, depth),
                "required" => self.translate_required(value, fields, node),
                // Before draft 2020-12, an array in `items` had the meaning of `prefixItems`.
                "items" if value.is_array() => {
                    output.insert(
                        "prefixItems".into(),
                        self.translate_list(value, node, depth).unwrap_or_else(|| json!([{}])),
                    );
                    None
                }
                // An empty list is invalid, so it is dropped.
                "prefixItems" => self.translate_list(value, node, depth),
                "anyOf" | "oneOf" if self.base == Some(std::ptr::from_ref(node.value)) => None,
                "anyOf" | "oneOf" => self.translate_variants(value, node, depth),
                "allOf" => self.translate_all_of(value, node, depth),
                "items"
                | "additionalProperties"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contains"
                | "propertyNames"
                | "unevaluatedItems"
                | "unevaluatedProperties" => match value {
                    Value::Bool(_) => Some(value.clone()),
                    Value::Object(_) => Some(self.translate(child, depth + 1)),
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
                },
                "enum"
                    if is_array_schema(fields)
                        && !value.as_array().is_some_and(|choices| choices.iter().all(Value::is_array)) =>
                {
                    // Values of the items, which are moved there below.
                    None
                }
                "enum" => fix_enum(value, fields.get("type")),
                "const" => Some(value.clone()),
                // Long defaults would only enlarge lists.
                "default" => (value.to_string().len() <= MAX_DEFAULT_LEN).then(|| value.clone()),
                "description" => value.as_str().map(|text| description_entry(text).1).filter(|text| *text != ""),
                "format" => value.as_str().filter(|format| is_informative_format(format)).map(Into::into),
                // A pattern that does not compile would make the whole schema unusable.
                "pattern" => value.as_str().filter(|pattern| self.translator.can_compile(pattern)).map(Into::into),
                "minimum" | "maximum" => fix_number(value),
                "exclusiveMinimum" | "exclusiveMaximum" => match value {
                    Value::Bool(_) => None,
                    Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                        fix_number(value)
                    }
                },
                "multipleOf" => fix_step(value),
                "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                | "minContains" | "maxContains" => fix_count(value),
                // False is the default.
                "uniqueItems" | "deprecated" => (value == &Value::Bool(true)).then(|| value.clone()),
                "contentEncoding" | "contentMediaType" => value.as_str().map(Into::into),
                // Unknown keywords, examples, titles and extensions.
                _ => None,
            };
            if let Some(translated) = translated {
                output.insert(key.clone(), translated);
            }
        }
        variants::relax_one_of(&mut output);
        // OpenAPI 3.0 has boolean `exclusiveMinimum` and `exclusiveMaximum` beside the bound.
        for (flag, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            if fields.get(flag) == Some(&Value::Bool(true))
                && let Some(value) = output.shift_remove(bound)
            {
                output.insert(flag.into(), value);
            }
        }
        // Some documents put the `enum` of an array's items beside them.
        if let (true, Some(choices), Some(Value::Object(items))) = (
            is_array_schema(fields),
            fields.get("enum").filter(|_| !output.contains_key("enum")),
            output.get_mut("items"),
        ) && let Some(choices) = item_enum(choices, items)
        {
            items.entry("enum").or_insert(choices);
        }
        // Swagger 2.0's type of files.
        if fields.get("type").and_then(Value::as_str) == Some("file") {
            output.insert("format".into(), "binary".into());
        }
        output
    }

    /// Translates properties, except those that the other side writes.
    fn translate_properties(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Value {
        let mut output = Map::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let property = NodeRef { value, ..node };
            if !self.translator.is_hidden(property, self.direction) {
                output.insert(name.clone(), self.translate(property, depth + 1));
            }
        }
        output.into()
    }

    /// Translates `required` without duplicates and without hidden properties.
    fn translate_required(
        &mut self,
        value: &Value,
        fields: &'a Map<String, Value>,
        node: NodeRef<'a>,
    ) -> Option<Value> {
        let properties = fields.get("properties").and_then(Value::as_object);
        let mut names: Vec<&str> = Vec::new();
        let mut seen = HashSet::new();
        for name in value.as_array()?.iter().filter_map(Value::as_str) {
            let property = properties.and_then(|properties| properties.get(name));
            let hidden =
                property.is_some_and(|value| self.translator.is_hidden(NodeRef { value, ..node }, self.direction));
            if seen.insert(name) && !hidden && !self.hidden_properties.iter().any(|hidden| hidden.contains(name)) {
                names.push(name);
            }
        }
        (!names.is_empty()).then(|| json!(names))
    }

    /// Translates `patternProperties` whose patterns compile.
    fn translate_pattern_properties(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Option<Value> {
        let mut output = Map::new();
        for (pattern, value) in value.as_object()? {
            if self.translator.can_compile(pattern) {
                output.insert(pattern.clone(), self.translate(NodeRef { value, ..node }, depth + 1));
            }
        }
        Some(output.into())
    }

    /// Translates schemas by name.
    fn translate_map(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Option<Value> {
        let fields = value.as_object()?.iter();
        Some(fields.map(|(name, value)| (name.clone(), self.translate(NodeRef { value, ..node }, depth + 1))).collect())
    }

    /// Translates `allOf`. Its members describe one object, so no member may require what another hides.
    fn translate_all_of(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Option<Value> {
        // Hidden properties are collected from all members first, because each may require those of another.
        let items = value.as_array().filter(|items| !items.is_empty())?;
        let mut hidden = HashSet::new();
        // Through references and nested `allOf`.
        for (name, property) in self.translator.object_schema(node).properties {
            if self.translator.is_hidden(property, self.direction) {
                hidden.insert(name);
            }
        }
        self.hidden_properties.push(hidden);
        let members = items.iter().map(|value| {
            let member = NodeRef { value, ..node };
            let base = self.translate_base(node, member, depth + 1);
            base.unwrap_or_else(|| self.translate_all_of_member(member, depth + 1))
        });
        let members = members.collect();
        self.hidden_properties.pop();
        Some(members)
    }

    /// Translates a non-empty list of schemas.
    fn translate_list(&mut self, value: &'a Value, node: NodeRef<'a>, depth: usize) -> Option<Value> {
        let items = value.as_array().filter(|items| !items.is_empty())?;
        Some(items.iter().map(|value| self.translate(NodeRef { value, ..node }, depth + 1)).collect())
    }
}

/// Returns whether `type` is `array`.
fn is_array_schema(fields: &Map<String, Value>) -> bool {
    fields.get("type").and_then(Value::as_str) == Some("array")
}

/// Returns the `enum` of an array as one of its items.
fn item_enum(choices_of_list: &Value, items: &Map<String, Value>) -> Option<Value> {
    fix_enum(choices_of_list, items.get("type"))
}

/// Returns the `description` keyword with a shortened text.
fn description_entry(text: &str) -> (String, Value) {
    ("description".into(), description::shorten(text, MAX_DESCRIPTION_LEN).into())
}

/// Returns whether a format tells an agent more than the type. Storage sizes of numbers do not.
fn is_informative_format(format: &str) -> bool {
    !matches!(format, "int32" | "int64" | "float" | "double" | "string" | "" | "integer" | "number" | "boolean")
}

/// Returns whether a schema accepts `null` by `nullable` of OpenAPI 3.0 or the extension of Swagger 2.0. Newer dialects
/// write a list of types.
fn is_nullable(schema: &Value) -> bool {
    ["nullable", "x-nullable"].iter().any(|key| schema.get(key) == Some(&Value::Bool(true)))
}

/// Extends a schema to accept `null` too.
fn allow_null(output: &mut Map<String, Value>) {
    // An `enum` without null would still reject it.
    if let Some(Value::Array(choices)) = output.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
    match output.get("type").cloned() {
        Some(Value::String(name)) if name != "null" => {
            output.insert("type".into(), json!([name, "null"]));
        }
        Some(Value::Array(mut names)) if !names.contains(&json!("null")) => {
            names.push("null".into());
            output.insert("type".into(), names.into());
        }
        Some(_) => {}
        // Keywords that reject null even without a type: offer null as an alternative.
        None if ["$ref", "allOf", "anyOf", "oneOf", "const"].iter().any(|key| output.contains_key(*key)) => {
            let description = output.shift_remove("description");
            let inner = std::mem::take(output);
            output.insert("anyOf".into(), json!([inner, { "type": "null" }]));
            if let Some(description) = description {
                output.insert("description".into(), description);
            }
        }
        None => {}
    }
}

/// Removes contradictions and adds an implied type.
fn remove_contradictions(output: &mut Map<String, Value>) {
    if output.get("properties").and_then(Value::as_object).is_some_and(Map::is_empty) {
        output.shift_remove("properties");
    }
    // Contradictory bounds would reject every value, so the lower one is dropped.
    for (min, max) in [("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")] {
        let bound = |key| output.get(key).and_then(Value::as_u64);
        if let (Some(low), Some(high)) = (bound(min), bound(max))
            && low > high
        {
            output.shift_remove(min);
        }
    }
    // Documents often omit the type of an object with properties.
    if output.contains_key("properties")
        && !["type", "allOf", "anyOf", "oneOf"].iter().any(|key| output.contains_key(*key))
    {
        output.shift_insert(0, "type".into(), "object".into());
    }
}

/// Replaces `allOf` with one member by that member.
fn unwrap_single_all_of(mut output: Map<String, Value>) -> Map<String, Value> {
    // Documents wrap a reference in `allOf` to add a description, which OpenAPI 3.0 ignores beside `$ref`.
    let has_single_member = output.get("allOf").and_then(Value::as_array).is_some_and(|members| members.len() == 1);
    let has_only_annotations =
        output.keys().all(|key| matches!(key.as_str(), "allOf" | "description" | "default" | "deprecated"));
    if !has_single_member || !has_only_annotations {
        return output;
    }
    let member = output.shift_remove("allOf").and_then(|members| members.get(0).cloned());
    let Some(Value::Object(mut member)) = member else { return output };
    for (key, value) in output {
        member.insert(key, value);
    }
    member
}
