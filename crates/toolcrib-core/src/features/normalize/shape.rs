//! Types of the optional fields of prompts and resources, as official clients validate them. A field of another type is
//! dropped; fields that the protocol does not define are not looked at.

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::features::FeatureKind;
use crate::json::RawFields;
use crate::time::Timestamp;

/// An optional field and the check of its value.
pub(super) type FieldShape = (&'static str, fn(&Value) -> bool);

const PROMPT_FIELDS: [FieldShape; 5] = [
    ("title", Value::is_string),
    ("description", Value::is_string),
    ("icons", is_icon_list),
    ("_meta", Value::is_object),
    // Its items are normalised one by one; without any it may be missing.
    ("arguments", |value| !value.is_null()),
];

const RESOURCE_FIELDS: [FieldShape; 7] = [
    ("title", Value::is_string),
    ("description", Value::is_string),
    ("mimeType", Value::is_string),
    ("size", is_size),
    // Invalid fields in it are dropped one by one.
    ("annotations", Value::is_object),
    ("icons", is_icon_list),
    ("_meta", Value::is_object),
];

/// Optional fields of an argument of a prompt.
pub(super) const ARGUMENT_FIELDS: [FieldShape; 3] =
    [("title", Value::is_string), ("description", Value::is_string), ("required", Value::is_boolean)];

const ANNOTATION_FIELDS: [FieldShape; 3] =
    [("audience", is_audience), ("priority", is_priority), ("lastModified", is_time)];

const ICON_FIELDS: [FieldShape; 3] = [("mimeType", Value::is_string), ("sizes", is_string_list), ("theme", is_theme)];

/// Optional fields of an item.
pub(super) fn item_fields(kind: FeatureKind) -> &'static [FieldShape] {
    match kind {
        FeatureKind::Prompt => &PROMPT_FIELDS,
        FeatureKind::Resource | FeatureKind::ResourceTemplate => &RESOURCE_FIELDS,
    }
}

/// Drops the fields whose values have another type.
pub(super) fn drop_invalid_fields(fields: &mut RawFields, shapes: &[FieldShape]) {
    for (name, is_valid) in shapes {
        let parse = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        if fields.get(name).is_some_and(|raw| !parse(raw).is_some_and(|value| is_valid(&value))) {
            fields.remove(name);
        }
    }
}

/// Drops the invalid fields of the annotations of an item.
pub(super) fn drop_invalid_annotations(fields: &mut RawFields) {
    let Some(mut annotations) = fields.get("annotations").and_then(RawFields::parse) else { return };
    let count = annotations.iter().count();
    drop_invalid_fields(&mut annotations, &ANNOTATION_FIELDS);
    if annotations.is_empty() {
        fields.remove("annotations");
    } else if annotations.iter().count() < count
        && let Ok(annotations) = to_raw_value(&annotations)
    {
        fields.insert("annotations", annotations);
    }
}

/// A whole number, whatever its notation.
fn is_size(value: &Value) -> bool {
    value.as_f64().is_some_and(|size| size.fract() == 0.0)
}

fn is_icon_list(value: &Value) -> bool {
    let is_icon = |icon: &Value| icon["src"].is_string() && has_valid_fields(icon, &ICON_FIELDS);
    value.as_array().is_some_and(|icons| icons.iter().all(is_icon))
}

fn has_valid_fields(object: &Value, shapes: &[FieldShape]) -> bool {
    shapes.iter().all(|(name, is_valid)| object.get(name).is_none_or(is_valid))
}

fn is_audience(value: &Value) -> bool {
    let is_role = |role: &Value| matches!(role.as_str(), Some("user" | "assistant"));
    value.as_array().is_some_and(|roles| roles.iter().all(is_role))
}

fn is_priority(value: &Value) -> bool {
    value.as_f64().is_some_and(|priority| (0.0..=1.0).contains(&priority))
}

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|time| time.parse::<Timestamp>().is_ok())
}

fn is_string_list(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

fn is_theme(value: &Value) -> bool {
    matches!(value.as_str(), Some("light" | "dark"))
}
