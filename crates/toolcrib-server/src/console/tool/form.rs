//! A form generated from the input schema of a tool: fields for simple arguments, JSON for the rest. The submitted
//! values are parsed back into arguments.
//!
//! The name of a field is the JSON pointer of its argument:
//! ```text
//! /title=x&/who/name=Ada&/tags=a%0D%0Ab   →   { "title": "x", "who": { "name": "Ada" }, "tags": ["a", "b"] }
//! ```
//!
//! The form checks only the syntax of JSON. Whatever it parses is validated by the call against the schema, so that an
//! error reads the same here and for an agent.

mod attributes;
mod field;

use maud::{Markup, html};
use serde_json::{Map, Value};
use toolcrib::Result;
use toolcrib::core::json::{parse_exact, plain_text, to_exact_string};
use toolcrib::core::text::{sanitize, sanitize_truncated};

use super::invalid_input;
use crate::console::form_data::FormData;
use crate::console::history::render_code_spans;
use attributes::InputField;
use field::{FieldKind, FormField, TextSize};

/// The form of one tool.
#[derive(Debug)]
pub(in crate::console) struct ArgumentForm {
    fields: Vec<FormField>,
    /// True when some arguments have no field. They can still be given as JSON.
    is_partial: bool,
}

/// Name of the field for all arguments as JSON. Other fields start with `/`, so it cannot collide.
const JSON_FIELD_NAME: &str = "arguments";

impl ArgumentForm {
    /// Builds the form for a schema.
    pub(in crate::console) fn from_schema(schema: &Value) -> ArgumentForm {
        let mut count = field::FieldCount::default();
        let fields = field::build_fields(schema, schema, "", 0, &mut count);
        ArgumentForm { fields, is_partial: count.is_partial }
    }

    /// Parses the submitted values into arguments. The JSON field takes precedence over all others.
    pub(in crate::console) fn parse(&self, form_data: &FormData) -> Result<Value> {
        if let Some(text) = form_data.get(JSON_FIELD_NAME).filter(|text| !text.trim().is_empty()) {
            return parse_exact(text)
                .map_err(|error| invalid_input(format!("the arguments are not valid JSON: {error}")));
        }
        let mut arguments = Map::new();
        for field in &self.fields {
            if let Some(value) = field.parse(form_data)? {
                arguments.insert(field.name.clone(), value);
            }
        }
        Ok(arguments.into())
    }

    /// Renders the form, filled in with earlier values.
    pub(in crate::console) fn render(&self, form_data: &FormData) -> Markup {
        let json_text = form_data.get(JSON_FIELD_NAME).unwrap_or_default();
        html! {
            @if self.fields.is_empty() && !self.is_partial { p.faint { "It takes no arguments." } }
            @for field in &self.fields { (render_field(field, form_data)) }
            @if self.is_partial { p.faint { "Some arguments have no field here; enter them as JSON." } }
            details.whole open[!json_text.is_empty()] {
                summary { "All arguments as JSON" }
                label {
                    span { "Used instead of the fields above" }
                    textarea name=(JSON_FIELD_NAME) rows="4" spellcheck="false" placeholder="{ }" { "\n" (json_text) }
                }
            }
        }
    }
}

/// Renders a field with its label and hint; an object becomes a fieldset.
fn render_field(field: &FormField, form_data: &FormData) -> Markup {
    let label = html! {
        span {
            code { (sanitize_truncated(&field.name, 80)) } " "
            span.type { (field.kind_label()) } @if field.required { " " span.needed { "required" } }
        }
    };
    let hint = html! {
        @if field.has_hint() {
            small id=(field.hint_id()) {
                (render_code_spans(&sanitize_truncated(&field.description, 240)))
                @if !field.limits.is_empty() { span.limits { (render_code_spans(&field.limits.join(", "))) } }
            }
        }
    };
    html! {
        @if let FieldKind::Group(fields) = &field.kind {
            fieldset { legend { (label) } (hint) @for field in fields { (render_field(field, form_data)) } }
        } @else {
            div.field { label { (label) (render_control(field, form_data)) } (hint) }
        }
    }
}

/// Renders the input, select or text area of a field. A value that was submitted takes precedence over the default of
/// the schema, even if it is empty.
fn render_control(field: &FormField, form_data: &FormData) -> Markup {
    let text = form_data.get(&field.path).map_or_else(|| field.default.clone().unwrap_or_default(), str::to_owned);
    let name = &field.path;
    let hint = field.has_hint().then(|| field.hint_id());
    let text = sanitize(&text);
    let input = InputField {
        name,
        text: &text,
        placeholder: field.placeholder.as_deref(),
        hint: hint.as_deref(),
        is_required: field.required,
    };
    let required = input.aria_required();
    // A browser drops the first line break in a text area, hence the extra one.
    let text_area = |rows: usize, placeholder: &str| {
        html! {
            textarea name=(name) rows=(rows) placeholder=(field.placeholder.as_deref().unwrap_or(placeholder))
                spellcheck="false" aria-describedby=[&hint] aria-required=[required] { "\n" (text) }
        }
    };
    let select = |choices: &[(String, String)]| {
        html! {
            select name=(name) aria-describedby=[&hint] aria-required=[required] {
                option value="" { "–" }
                @for (value, label) in choices { option value=(value) selected[*value == text] { (label) } }
            }
        }
    };
    match &field.kind {
        FieldKind::Boolean => {
            select(&[("true", "yes"), ("false", "no")].map(|(value, label)| (value.into(), label.into())))
        }
        FieldKind::Choice(values) => {
            let value_text = |value: &Value| to_exact_string(value).unwrap_or_default();
            let label = |value: &Value| sanitize_truncated(&plain_text(value), 80);
            select(&values.iter().map(|value| (value_text(value), label(value))).collect::<Vec<_>>())
        }
        // A number input shows nothing for a text that is not a number, so the user could not correct it.
        FieldKind::Number if text.is_empty() || text.parse::<f64>().is_ok() => field.attributes.render_number(&input),
        FieldKind::Number => field.attributes.render_text(&input),
        // A single-line input would drop the line breaks of its value.
        FieldKind::Text(TextSize::SingleLine) if !text.contains('\n') => field.attributes.render_text(&input),
        FieldKind::Text(_) => text_area(if text.contains('\n') { 4 } else { 2 }, ""),
        FieldKind::Lines(_) => text_area(2, "one per line"),
        FieldKind::Json | FieldKind::Group(_) => text_area(3, "JSON"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn submitted_values_are_parsed_by_the_types_of_the_schema() {
        let who =
            json!({ "type": "object", "properties": { "name": { "type": "string" }, "age": { "type": "integer" } } });
        let list = |item_type: &str| json!({ "type": "array", "items": { "type": item_type } });
        let schema = json!({
            "type": "object",
            "required": ["title"],
            "$defs": { "who": who },
            "properties": {
                "title": { "type": "string" },
                "count": { "type": "integer" },
                "deep": { "type": "boolean" },
                "level": { "enum": ["low", 3, null] },
                "tags": list("string"),
                "sizes": list("number"),
                "who": { "$ref": "#/$defs/who" },
                "filter": list("object"),
                "maybe": { "type": ["string", "null"] },
                "a/b~c": { "type": "string" },
            },
        });
        let parse = |query: &str| ArgumentForm::from_schema(&schema).parse(&FormData::parse(query));
        assert_eq!(parse("/title=&/tags=&/who/name=").unwrap(), json!({}));
        let filled = "/title=x&/count=3&/deep=false&/level=3&/tags=a%0D%0Ab&/sizes=1.5&/who/name=Ada&/who/age=36\
            &/filter=[{\"a\":1}]&/a~1b~0c=y";
        assert_eq!(
            parse(filled).unwrap(),
            json!({
                "title": "x", "count": 3, "deep": false, "level": 3, "tags": ["a", "b"], "sizes": [1.5],
                "who": { "name": "Ada", "age": 36 }, "filter": [{ "a": 1 }], "a/b~c": "y",
            })
        );
        assert_eq!(parse("/count=many&/title=x").unwrap(), json!({ "title": "x", "count": "many" }));
        assert_eq!(parse("arguments={\"title\":\"\"}").unwrap(), json!({ "title": "" }));
        assert_eq!(parse("arguments={\"z\":1}&/title=x").unwrap(), json!({ "z": 1 }));
        for malformed in ["arguments={", "/filter=[&/title=x"] {
            assert_eq!(parse(malformed).unwrap_err().code, toolcrib::Code::ToolInvalidInput);
        }
    }

    #[test]
    fn an_optional_object_is_sent_only_if_it_was_changed() {
        let size = json!({ "type": "integer", "default": 3 });
        let paper = json!({ "type": "object", "properties": { "size": size, "name": { "type": "string" } } });
        let form = |required: &Value| {
            ArgumentForm::from_schema(
                &json!({ "type": "object", "required": required, "properties": { "paper": paper.clone() } }),
            )
        };
        let parse = |required: Value, query: &str| form(&required).parse(&FormData::parse(query)).unwrap();
        assert_eq!(parse(json!([]), "/paper/size=3&/paper/name="), json!({}));
        assert_eq!(parse(json!([]), "/paper/size=3&/paper/name=A"), json!({ "paper": { "size": 3, "name": "A" } }));
        assert_eq!(parse(json!([]), "/paper/size=&/paper/name="), json!({}));
        assert_eq!(parse(json!(["paper"]), "/paper/size=3&/paper/name="), json!({ "paper": { "size": 3 } }));
    }

    #[test]
    fn a_large_definition_shared_by_all_fields_is_bounded() {
        let long = "x".repeat(200_000);
        for target in
            [json!({ "type": "string", "default": long }), json!({ "enum": [long] }), json!({ "example": long })]
        {
            let properties: Map<String, Value> =
                (0..80).map(|n| (format!("n{n}"), json!({ "$ref": "#/$defs/x" }))).collect();
            let form = ArgumentForm::from_schema(&json!({ "properties": properties, "$defs": { "x": target } }));
            assert!(form.render(&FormData::default()).into_string().len() < 1_000_000);
        }
    }

    #[test]
    fn a_schema_that_doubles_at_each_level_has_a_bounded_form() {
        let keys = ["allOf", "anyOf", "oneOf"];
        for key in keys {
            let next = |n: usize| json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            let levels = (0..40).map(|n| {
                (
                    format!("d{n}"),
                    json!({ key: [next(n), next(n)], "required": ["a"], "properties": { "a": next(n), "b": next(n) } }),
                )
            });
            let definitions: Map<String, Value> = levels.chain([("d40".into(), json!({ "type": "object" }))]).collect();
            let schema = json!({ "properties": { "a": { "$ref": "#/$defs/d0" }, "b": { "$ref": "#/$defs/d0" } }, "$defs": definitions });
            assert!(ArgumentForm::from_schema(&schema).render(&FormData::default()).into_string().len() < 100_000);
        }
    }

    #[test]
    fn a_form_is_partial_when_an_argument_has_no_field() {
        let form_with = |names: Vec<String>| {
            let properties: Map<String, Value> = names.into_iter().map(|name| (name, json!({}))).collect();
            ArgumentForm::from_schema(&json!({ "type": "object", "properties": properties }))
        };
        let numbered = |count: usize| form_with((0..count).map(|number| format!("n{number}")).collect());
        assert!(!numbered(80).is_partial);
        assert!(numbered(81).is_partial);
        assert!(form_with(vec!["x".repeat(201)]).is_partial);
    }
}
