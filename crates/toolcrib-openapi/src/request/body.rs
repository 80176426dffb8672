//! Builds the body of a request and its media type, by the kind of its content. The encoding was chosen at conversion
//! and is part of the execution specification.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};
use toolcrib_core::error::Result;
use toolcrib_core::execution::{BodyAlternative, BodyChoice, BodyEncoding, BodySpec, Operation};
use toolcrib_core::json::long_integer;
use toolcrib_schema::type_name;

use super::{PreparedBody, invalid_argument, media_type, multipart, to_json, to_plain_text, urlencoded};

/// Maximum size of a form. Names are repeated in it, so a small argument could produce a huge body.
pub(super) const MAX_FORM_BYTES: usize = 64 * 1024 * 1024;

/// Agents send base64 with and without padding.
const BASE64_ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Builds the body of a request, if the operation has one and its argument is present.
pub(super) fn build_body(
    operation: &Operation,
    arguments: &Map<String, Value>,
    boundary: &str,
) -> Result<Option<PreparedBody>> {
    let Some(default) = &operation.body else { return Ok(None) };
    let body = select_body(operation, default, arguments)?;
    let value = match arguments.get(&body.argument) {
        Some(Value::Null) | None if !body.required => return Ok(None),
        // A required body may be JSON's `null`, but not `null` of any other kind.
        Some(Value::Null) if body.content == BodyEncoding::Json => &Value::Null,
        Some(Value::Null) | None => return Err(invalid_argument(&body.argument, "is required; give it a value")),
        // Anything else is serialised as the media type requires.
        Some(value) => value,
    };
    // Each kind serialises the same argument differently.
    let content_type = content_type(body);
    Ok(Some(match body.content {
        BodyEncoding::Json => PreparedBody { content_type, bytes: to_json(value).into_bytes() },
        BodyEncoding::JsonLines => PreparedBody { bytes: json_lines(value, &content_type).into_bytes(), content_type },
        BodyEncoding::Text => PreparedBody { content_type, bytes: to_plain_text(value).into_bytes() },
        BodyEncoding::Binary => PreparedBody { content_type, bytes: decode_file(&body.argument, value)?.1 },
        BodyEncoding::Urlencoded => {
            let text = urlencoded::serialize_form(&body.argument, value, &body.fields, MAX_FORM_BYTES)?;
            PreparedBody { content_type, bytes: text.into_bytes() }
        }
        BodyEncoding::Multipart => multipart::build_multipart(body, &content_type, value, boundary)?,
    }))
}

/// Returns the body of the chosen media type: that of the argument, a form with files if a file is given, the first that
/// accepts a value of this type, or the default.
fn select_body<'a>(
    operation: &'a Operation,
    default: &'a BodySpec,
    arguments: &Map<String, Value>,
) -> Result<&'a BodySpec> {
    let Some(choice) = &operation.body_choice else { return Ok(default) };
    let bodies = || std::iter::once(default).chain(choice.alternatives.iter().map(|alternative| &alternative.body));
    match arguments.get(&choice.argument) {
        Some(Value::Null) | None => {}
        Some(Value::String(chosen)) => {
            let is_chosen = |body: &&BodySpec| body.media_type.eq_ignore_ascii_case(chosen.trim());
            return bodies().find(is_chosen).ok_or_else(|| {
                let known: Vec<String> = bodies().map(|body| format!("`{}`", body.media_type)).collect();
                invalid_argument(&choice.argument, &format!("is not one of {}", known.join(", ")))
            });
        }
        Some(_) => return Err(invalid_argument(&choice.argument, "is not a media type")),
    }
    let Some(value) = arguments.get(&default.argument) else { return Ok(default) };
    let Value::Object(members) = value else {
        return Ok(body_for_type(choice, value).unwrap_or(default));
    };
    // `{name, base64}` is a file in a form only; a text is one if the default type does not have the field.
    let has_file = |alternative: &&BodyAlternative| {
        let mut files = alternative.body.fields.iter().filter(|(_, field)| field.binary).map(|(name, _)| name);
        files.any(|name| match members.get(name) {
            Some(Value::Object(file)) => file.contains_key("base64"),
            Some(value) if long_integer(value).is_some() => false,
            Some(Value::String(_) | Value::Array(_)) => alternative.file_fields.contains(name),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => false,
        })
    };
    let form = choice.alternatives.iter().find(has_file).filter(|_| default.content != BodyEncoding::Multipart);
    Ok(form.map(|alternative| &alternative.body).or_else(|| body_for_type(choice, value)).unwrap_or(default))
}

/// Returns the media type for values of this JSON type, if it is not the default.
fn body_for_type<'a>(choice: &'a BodyChoice, value: &Value) -> Option<&'a BodySpec> {
    if value.is_null() {
        return None;
    }
    let value_type = type_name(value);
    let accepts = |alternative: &&BodyAlternative| alternative.value_types.iter().any(|name| name == value_type);
    choice.alternatives.iter().find(accepts).map(|alternative| &alternative.body)
}

/// Returns the media type of the document with its parameters, or a default if that is a range or invalid.
pub(crate) fn content_type(body: &BodySpec) -> String {
    let fallback = match body.content {
        BodyEncoding::Json => "application/json",
        BodyEncoding::JsonLines => "application/x-ndjson",
        BodyEncoding::Urlencoded => urlencoded::MEDIA_TYPE,
        BodyEncoding::Multipart => "multipart/form-data",
        BodyEncoding::Text => "text/plain",
        BodyEncoding::Binary => "application/octet-stream",
    };
    let is_concrete = media_type::is_valid(&body.media_type) && !media_type::essence(&body.media_type).contains('*');
    if is_concrete { body.media_type.clone() } else { fallback.to_owned() }
}

/// Writes one JSON text per line. In a JSON text sequence (RFC 7464), each is preceded by a record separator.
fn json_lines(value: &Value, content_type: &str) -> String {
    let separator = if media_type::essence(content_type).ends_with("json-seq") { "\u{1e}" } else { "" };
    let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
    items.iter().map(|item| format!("{separator}{}\n", to_json(item))).collect()
}

/// Decodes a file: base64, or `{"name","base64"}`. Returns its name, if given, and its content.
pub(super) fn decode_file<'a>(argument: &str, value: &'a Value) -> Result<(Option<&'a str>, Vec<u8>)> {
    let (name, text) = match value {
        Value::String(text) => (None, Some(text.as_str())),
        Value::Object(file) => (file.get("name").and_then(Value::as_str), file.get("base64").and_then(Value::as_str)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => (None, None),
    };
    let Some(text) = text else {
        return Err(invalid_argument(argument, "is a file: pass it in base64, or as {\"name\",\"base64\"}"));
    };
    // Accept the URL-safe alphabet and line breaks too.
    let standard: String = text
        .chars()
        .filter(|character| !matches!(character, '\r' | '\n'))
        .map(|character| match character {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    let bytes = BASE64_ENGINE
        .decode(standard)
        .map_err(|_| invalid_argument(argument, "is not base64; encode the content of the file"))?;
    Ok((name, bytes))
}
