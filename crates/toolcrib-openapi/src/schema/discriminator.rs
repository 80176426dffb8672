//! The values of a discriminating property that select each variant of a schema.
//!
//! ```text
//! mapping: { cat: Cat, tom: Cat }     ->  Cat: cat, tom     Dog: Dog (the name of the schema)
//! ```
//!
//! A value must not be rejected because a document is imprecise, so the schema of the property takes precedence over the
//! mapping: its type decides whether `1` is a number, and values that its `enum` has are removed only if they select
//! another variant.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use toolcrib_core::json::{plain_text, unescape_pointer_token};
use toolcrib_schema::{LocalReference, array_at, declared_types, reference_text};

use super::super::document_set::NodeRef;
use super::super::object_schema::{STEPS_PER_REFERENCE, visit_layers};
use super::hierarchy::ComponentSchema;
use super::keyword_fixes::{fix_enum, fix_number, fix_types};
use super::{BYTES_PER_WORK, Direction, SchemaTranslator};

/// Maximum number of entries of a `mapping` that are read.
const MAX_MAPPING_ENTRIES: usize = 1_000;
/// Maximum number of entries that refer to missing schemas and may mean any variant.
const MAX_UNASSIGNED_VALUES: usize = 32;
/// Work of assigning a value to a variant: about as long as reading eight schemas.
const WORK_PER_ASSIGNMENT: u64 = 8;

/// Discriminator of a schema.
#[derive(Debug)]
pub(super) struct Discriminator<'a> {
    /// Property whose value selects the variant.
    pub(super) property: &'a str,
    /// Values of the property with the schema that each selects; `None` for one that does not exist.
    mapping: Vec<(&'a str, Option<NodeRef<'a>>)>,
    /// Schema for values without one (`defaultMapping` of OpenAPI 3.2).
    default: Option<NodeRef<'a>>,
}

/// Where the variants of a schema come from.
#[derive(Debug)]
pub(super) enum VariantOrigin {
    /// Members of `oneOf` or `anyOf` beside the discriminator.
    Union,
    /// Members of `oneOf` or `anyOf` that extend the schema with the discriminator. The document does not say that their
    /// names are values.
    InheritingUnion,
    /// Schemas that extend the one with the discriminator, directly or not. They inherit the values that it lists.
    Subtypes { inherited: Option<HashSet<String>> },
}

/// A variant that a discriminator may select.
#[derive(Debug)]
pub(super) struct Variant<'a> {
    /// The schema that a reference to the variant points to, which may be a reference itself.
    target: NodeRef<'a>,
    /// The schema at the end of all references.
    resolved: NodeRef<'a>,
    /// Name in the reference, and the one that it is an alias of.
    names: Vec<String>,
}

/// Values of the discriminating property that select a variant.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Empty if nothing is known about them.
    pub(super) values: Vec<Value>,
    /// Whether the schema of the variant allows no others.
    pub(super) is_declared: bool,
}

/// Texts of the values that the document assigns to a variant.
#[derive(Debug, Default, Clone)]
struct AssignedValues {
    texts: Vec<String>,
    /// Whether the mapping refers to the variant. Otherwise the values are guesses from its name.
    is_mapped: bool,
}

/// Declarations of the discriminating property in one variant.
#[derive(Debug, Default)]
struct PropertyValues {
    /// Types that all declarations allow, `number` for integers too; `None` if none declares any.
    types: Option<Vec<String>>,
    /// Values that all declarations list.
    listed: Option<Vec<Value>>,
    /// Only the other side writes the property.
    is_hidden: bool,
}

impl<'a> SchemaTranslator<'a> {
    /// Reads a Discriminator Object, or the property name that Swagger 2.0 has in its place, and resolves the mapping.
    pub(super) fn read_discriminator(&mut self, schema: NodeRef<'a>) -> Option<Discriminator<'a>> {
        let property = discriminating_property(schema.value)?;
        let value = schema.value.get("discriminator")?;
        let entries = value.get("mapping").and_then(Value::as_object).into_iter().flatten().take(MAX_MAPPING_ENTRIES);
        let mut mapping = Vec::new();
        for (value, target) in entries.filter_map(|(value, target)| Some((value.as_str(), target.as_str()?))) {
            self.spend(STEPS_PER_REFERENCE);
            mapping.push((value, self.resolve_mapping_target(target, schema)));
        }
        let default = value.get("defaultMapping").and_then(Value::as_str);
        let default = default.and_then(|target| self.resolve_mapping_target(target, schema));
        Some(Discriminator { property, mapping, default })
    }

    /// Returns the position of the variant for values that select no other.
    pub(super) fn default_variant(
        &self,
        discriminator: &Discriminator<'a>,
        variants: &[Option<Variant<'a>>],
    ) -> Option<usize> {
        let default = self.documents.resolve(discriminator.default?).ok()?;
        let is_default = |variant: &Variant<'a>| std::ptr::eq(variant.resolved.value, default.value);
        variants.iter().position(|variant| variant.as_ref().is_some_and(is_default))
    }

    /// Resolves the target of a mapping. A bare name stands for a component, else for a document beside this one.
    fn resolve_mapping_target(&self, target: &str, schema: NodeRef<'a>) -> Option<NodeRef<'a>> {
        let find = |reference: &str, document_url: &'a str| {
            self.documents.resolve_reference(reference, document_url).ok().map(|(schema, _)| schema)
        };
        let component = (!target.contains(['#', '/'])).then(|| format!("#/components/schemas/{target}"));
        let component = component.and_then(|reference| {
            // Components of the first document are known by name in all documents.
            let root_url = self.documents.root()?.document_url;
            find(&reference, schema.document_url).or_else(|| find(&reference, root_url))
        });
        component.or_else(|| find(target, schema.document_url))
    }

    /// Returns a named schema as a variant.
    pub(super) fn named_variant(&self, schema: &ComponentSchema<'a>) -> Option<Variant<'a>> {
        Some(Variant { target: schema.node, resolved: schema.resolved, names: vec![schema.name.to_owned()] })
    }

    /// Returns the variant that a reference points to.
    pub(super) fn find_variant(&mut self, node: NodeRef<'a>) -> Option<Variant<'a>> {
        let reference = reference_text(node.value)?;
        self.spend(STEPS_PER_REFERENCE);
        let (target, _) = self.documents.resolve_reference(reference, node.document_url).ok()?;
        let resolved = self.documents.resolve(target).ok()?;
        let alias = reference_text(target.value).and_then(component_name);
        let names = component_name(reference).into_iter().chain(alias).collect();
        Some(Variant { target, resolved, names })
    }

    /// Returns the values of the property that select each variant. A value that a subtype only inherits selects it if
    /// the mapping or the name of the subtype says so.
    pub(super) fn select_variants(
        &mut self,
        discriminator: &Discriminator<'a>,
        variants: &[Option<Variant<'a>>],
        origin: &VariantOrigin,
        direction: Direction,
    ) -> Vec<Selection> {
        let mut declared = Vec::with_capacity(variants.len());
        for variant in variants {
            declared.push(match variant {
                Some(variant) => self.property_values(variant.resolved, discriminator.property, direction),
                None => PropertyValues::default(),
            });
        }
        let assigned = self.assigned_values(discriminator, variants, origin);
        let owners = value_owners(&assigned, &declared);
        let all = assigned.into_iter().zip(declared).enumerate();
        let selections = all.map(|(index, (assigned, declared))| match declared {
            PropertyValues { is_hidden: true, .. } => Selection::default(),
            // The listed values are what the server checks, whatever the mapping says.
            PropertyValues { listed: Some(mut listed), .. } => {
                let count = listed.len();
                let is_inherited = is_inherited(&listed, origin);
                listed.retain(|value| match owners.get(&value_text(value)) {
                    Some(owners) => owners.contains(&index),
                    None => !is_inherited,
                });
                Selection { is_declared: listed.len() == count, values: listed }
            }
            // Servers of such documents often use other values than the names.
            PropertyValues { listed: None, .. }
                if !assigned.is_mapped && matches!(origin, VariantOrigin::InheritingUnion) =>
            {
                Selection::default()
            }
            PropertyValues { listed: None, types, .. } => {
                let texts = assigned.texts.iter();
                let mut values: Vec<Value> = texts.flat_map(|text| typed_values(text, types.as_deref())).collect();
                let mut seen = HashSet::new();
                values.retain(|value| seen.insert(value.to_string()));
                Selection { values, is_declared: false }
            }
        });
        selections.collect()
    }

    /// Returns the values that a schema lists for a property.
    pub(super) fn listed_values(
        &mut self,
        schema: NodeRef<'a>,
        property: &str,
        direction: Direction,
    ) -> Option<Vec<Value>> {
        self.property_values(schema, property, direction).listed
    }

    /// Returns the values that the document assigns to each variant: those of the mapping, else the name of its schema.
    fn assigned_values(
        &mut self,
        discriminator: &Discriminator<'a>,
        variants: &[Option<Variant<'a>>],
        origin: &VariantOrigin,
    ) -> Vec<AssignedValues> {
        self.spend((discriminator.mapping.len() + variants.len()) as u64);
        let mut assigned = vec![AssignedValues::default(); variants.len()];
        let mut unassigned = Vec::new();
        let by_address = |address: fn(&Variant<'a>) -> *const Value| {
            let mut indexes: HashMap<*const Value, Vec<usize>> = HashMap::new();
            for (index, variant) in variants.iter().enumerate() {
                if let Some(variant) = variant {
                    indexes.entry(address(variant)).or_default().push(index);
                }
            }
            indexes
        };
        // The same schema may have several names; the mapping means the one that it refers to.
        let targets = by_address(|variant| std::ptr::from_ref(variant.target.value));
        let resolved = by_address(|variant| std::ptr::from_ref(variant.resolved.value));
        for (value, target) in &discriminator.mapping {
            let exact = target.and_then(|target| targets.get(&std::ptr::from_ref(target.value)));
            let end = target.and_then(|target| self.documents.resolve(target).ok());
            let same = end.and_then(|target| resolved.get(&std::ptr::from_ref(target.value)));
            if let Some(indexes) = exact.or(same) {
                self.charge_assignments(value, indexes.len());
                if self.is_exhausted() {
                    return vec![AssignedValues::default(); variants.len()];
                }
                for index in indexes {
                    assigned[*index].texts.push((*value).to_owned());
                    assigned[*index].is_mapped = true;
                }
            } else if end.is_none() {
                unassigned.push((*value).to_owned());
            }
        }
        let has_few_unassigned = unassigned.len() <= MAX_UNASSIGNED_VALUES;
        for (assigned, variant) in assigned.iter_mut().zip(variants) {
            let Some(variant) = variant else { continue };
            // The subtypes of a subtype are variants beside it.
            let is_union_member = match origin {
                VariantOrigin::Union | VariantOrigin::InheritingUnion => true,
                VariantOrigin::Subtypes { .. } => false,
            };
            let is_named = !is_union(variant.resolved.value) && !variant.names.is_empty();
            if is_union_member && self.has_own_values(variant, discriminator.property) {
                assigned.texts.clear();
            } else if assigned.texts.is_empty() && is_named && has_few_unassigned {
                // A mapping to a schema that does not exist may have meant any variant without a value. With many of
                // them, or without a name, nothing is known about such a variant.
                unassigned.iter().for_each(|value| self.charge_assignments(value, 1));
                if self.is_exhausted() {
                    continue;
                }
                assigned.texts.extend(variant.names.iter().chain(&unassigned).cloned());
            }
        }
        assigned
    }

    /// Charges the assignment of a value to this many variants.
    fn charge_assignments(&mut self, value: &str, variants: usize) {
        let work = WORK_PER_ASSIGNMENT + (value.len() / BYTES_PER_WORK) as u64;
        self.spend(work.saturating_mul(variants as u64));
    }

    /// Returns whether a variant has variants of its own that the same property selects.
    fn has_own_values(&mut self, variant: &Variant<'a>, property: &str) -> bool {
        let has_variants = is_union(variant.resolved.value) || !self.subtypes(variant.resolved).is_empty();
        has_variants && discriminating_property(variant.resolved.value) == Some(property)
    }

    /// Returns the discriminator that all variants inherit from the same schema.
    pub(super) fn inherited_discriminator(&mut self, variants: &[Option<Variant<'a>>]) -> Option<Discriminator<'a>> {
        let mut base: Option<NodeRef<'a>> = None;
        for variant in variants {
            let is_candidate = |variant: &&Variant<'a>| variant.resolved.value.get("discriminator").is_none();
            let variant = variant.as_ref().filter(is_candidate).filter(|_| !self.is_exhausted())?;
            let mut inherited = None;
            let steps = visit_layers(self.documents, variant.resolved, |layer| {
                if inherited.is_none() && layer.value.get("discriminator").is_some() {
                    inherited = Some(layer);
                }
            });
            self.spend(steps);
            let inherited: NodeRef<'a> = inherited?;
            if base.is_some_and(|base| !std::ptr::eq(base.value, inherited.value)) {
                return None;
            }
            base = Some(inherited);
        }
        self.read_discriminator(base?)
    }

    /// Returns the values of a property that its declarations in a schema, and in all that it extends, allow.
    fn property_values(&mut self, schema: NodeRef<'a>, property: &str, direction: Direction) -> PropertyValues {
        if self.is_exhausted() {
            return PropertyValues::default();
        }
        let mut declarations = Vec::new();
        let steps = visit_layers(self.documents, schema, |layer| {
            let declaration = layer.value.get("properties").and_then(|properties| properties.get(property));
            declarations.extend(declaration.map(|value| NodeRef { value, ..layer }));
        });
        self.spend(steps);
        let mut values = PropertyValues::default();
        for declaration in declarations {
            values.is_hidden |= self.is_hidden(declaration, direction);
            let Ok(declaration) = self.documents.resolve(declaration) else { continue };
            self.charge_reading(declaration.value);
            let types = declaration.value.get("type").and_then(fix_types);
            let names: Vec<&str> = declared_types(types.as_ref()).map(value_type).collect();
            match &mut values.types {
                _ if names.is_empty() => {}
                Some(types) => types.retain(|name| names.contains(&name.as_str())),
                None => values.types = Some(names.into_iter().map(str::to_owned).collect()),
            }
            let constant = declaration.value.get("const").map(|value| json!([value]));
            let choices = constant.or_else(|| declaration.value.get("enum").cloned());
            let choices = choices.and_then(|choices| fix_enum(&choices, types.as_ref()));
            if let Some(Value::Array(choices)) = choices {
                match &mut values.listed {
                    Some(listed) => {
                        let texts: HashSet<String> = choices.iter().map(Value::to_string).collect();
                        self.spend((choices.len() / BYTES_PER_WORK) as u64);
                        listed.retain(|value| texts.contains(&value.to_string()));
                    }
                    None => values.listed = Some(choices),
                }
            }
        }
        values
    }
}

/// Returns the variants that each value selects. A value that a variant does not list selects it by mistake.
fn value_owners(assigned: &[AssignedValues], declared: &[PropertyValues]) -> HashMap<String, HashSet<usize>> {
    let mut owners: HashMap<String, HashSet<usize>> = HashMap::new();
    for (index, (assigned, declared)) in assigned.iter().zip(declared).enumerate() {
        let listed: Option<HashSet<String>> =
            declared.listed.as_deref().map(|listed| listed.iter().map(value_text).collect());
        let is_valid = |text: &&String| listed.as_ref().is_none_or(|listed| listed.contains(*text));
        let only_value = listed.iter().filter(|listed| listed.len() == 1).flatten();
        for text in assigned.texts.iter().filter(is_valid).chain(only_value) {
            owners.entry(text.clone()).or_default().insert(index);
        }
    }
    owners
}

/// Returns the property whose value selects the variant of a schema.
fn discriminating_property(schema: &Value) -> Option<&str> {
    let discriminator = schema.get("discriminator")?;
    discriminator.as_str().or_else(|| discriminator.get("propertyName")?.as_str())
}

/// Returns whether a variant lists the values of the schema that it extends, and no choice of its own.
fn is_inherited(listed: &[Value], origin: &VariantOrigin) -> bool {
    let VariantOrigin::Subtypes { inherited: Some(inherited) } = origin else { return false };
    let listed: HashSet<String> = listed.iter().map(Value::to_string).collect();
    listed == *inherited
}

/// Returns the type that a value of a declared type has: integers are numbers.
fn value_type(declared: &str) -> &str {
    if declared == "integer" { "number" } else { declared }
}

/// Returns the name of the component that a reference points to. A whole document has none.
fn component_name(reference: &str) -> Option<String> {
    let (_, fragment) = reference.split_once('#')?;
    let LocalReference::Pointer(pointer) = LocalReference::parse_fragment(fragment)? else { return None };
    let token = pointer.rsplit('/').next().filter(|token| !token.is_empty())?;
    Some(unescape_pointer_token(token))
}

/// Returns whether a schema consists of variants.
pub(super) fn is_union(schema: &Value) -> bool {
    ["oneOf", "anyOf"].iter().any(|key| !array_at(schema, key).is_empty())
}

/// Returns the text of a value in a mapping.
fn value_text(value: &Value) -> String {
    plain_text(value).into_owned()
}

/// Returns a value of a mapping in the types of its property. Keys of a mapping are always strings.
fn typed_values(text: &str, types: Option<&[String]>) -> Vec<Value> {
    let number = || fix_number(&text.into());
    let boolean = || text.parse::<bool>().ok().map(Value::Bool);
    let Some(types) = types else {
        return [Some(text.into()), number(), boolean()].into_iter().flatten().collect();
    };
    let of_type = types.iter().filter_map(|name| match name.as_str() {
        "string" => Some(text.into()),
        "number" => number(),
        "boolean" => boolean(),
        _ => None,
    });
    of_type.collect()
}
