//! Bodies of every kind of content.

use std::collections::BTreeMap;

use toolcrib_core::execution::{BodyEncoding, BodyField, BodySpec};
use toolcrib_core::json::parse_integer;

use super::*;

fn body(content: BodyEncoding, media_type: &str) -> BodySpec {
    BodySpec {
        argument: "body".into(),
        required: true,
        media_type: media_type.into(),
        content,
        fields: BTreeMap::new(),
    }
}

fn with_fields(body: BodySpec, fields: &[(&str, BodyField)]) -> BodySpec {
    BodySpec { fields: fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect(), ..body }
}

fn build_body(body: &BodySpec, value: Value) -> Result<PreparedBody> {
    let operation = Operation { method: "POST".into(), body: Some(body.clone()), ..operation("/t", vec![]) };
    Ok(prepare_json(&operation, json!({ "body": value }))?.body.unwrap())
}

/// Returns the content type, a line break and the body, or the error.
fn body_text(body: &BodySpec, value: Value) -> String {
    match build_body(body, value) {
        Ok(body) => format!("{}\n{}", body.content_type, String::from_utf8(body.bytes).unwrap()),
        Err(error) => {
            assert_eq!(error.code, Code::ToolInvalidInput);
            format!("refused: {error}")
        }
    }
}

fn binary_field() -> BodyField {
    BodyField { binary: true, ..BodyField::default() }
}

fn typed_field(content_type: &str) -> BodyField {
    BodyField { content_type: Some(content_type.to_owned()), ..BodyField::default() }
}

fn styled_field(serialization: Serialization) -> BodyField {
    BodyField { serialization: Some(serialization), ..BodyField::default() }
}

#[test]
fn bodies_are_encoded_by_their_kind() {
    use BodyEncoding::{Binary, Json, JsonLines, Text};
    let cases = [
        (Json, "application/json", json!({"a": [1, 2.0, null]}), "application/json\n{\"a\":[1,2.0,null]}"),
        (Json, "application/json; charset=utf-8", json!("hello"), "application/json; charset=utf-8\n\"hello\""),
        (Json, "application/merge-patch+json", json!({}), "application/merge-patch+json\n{}"),
        (Json, "application/json", json!(null), "application/json\nnull"),
        (Json, "*/*", json!(1), "application/json\n1"),
        (Json, "application/*", json!(1), "application/json\n1"),
        (Json, "a/b\r\nX-Evil: 1", json!(1), "application/json\n1"),
        (JsonLines, "application/x-ndjson", json!([{"a": 1}, "b\nc"]), "application/x-ndjson\n{\"a\":1}\n\"b\\nc\"\n"),
        (JsonLines, "application/jsonl", json!({"a": 1}), "application/jsonl\n{\"a\":1}\n"),
        (JsonLines, "application/json-seq", json!([1, 2]), "application/json-seq\n\u{1e}1\n\u{1e}2\n"),
        (JsonLines, "application/jsonl", json!([]), "application/jsonl\n"),
        (Text, "text/plain", json!("hello world\r\n"), "text/plain\nhello world\r\n"),
        (Text, "text/plain; charset=utf-8", json!(5), "text/plain; charset=utf-8\n5"),
        (Text, "application/xml", json!("<a/>"), "application/xml\n<a/>"),
        (Text, "application/yaml", json!({"a": 1}), "application/yaml\n{\"a\":1}"),
        (Text, "text/*", json!(""), "text/plain\n"),
        (Binary, "application/octet-stream", json!("aGVsbG8gZmlsZQ=="), "application/octet-stream\nhello file"),
        (Binary, "image/png", json!("aGVsbG8gZmlsZQ"), "image/png\nhello file"),
        (Binary, "image/*", json!("aGVs\r\nbG8="), "application/octet-stream\nhello"),
        (Binary, "image/png", json!({"name": "a.png", "base64": "aGVsbG8="}), "image/png\nhello"),
        (Binary, "image/png", json!(""), "image/png\n"),
        (
            Binary,
            "image/png",
            json!("hello file"),
            "refused: argument `body` is not base64; encode the content of the file",
        ),
        (Binary, "image/png", json!("a"), "refused: argument `body` is not base64; encode the content of the file"),
        (
            Binary,
            "image/png",
            json!({"name": "x"}),
            "refused: argument `body` is a file: pass it in base64, or as {\"name\",\"base64\"}",
        ),
        (Text, "text/plain", json!(null), "refused: argument `body` is required; give it a value"),
    ];
    for (content, media_type, value, expected) in cases {
        assert_eq!(body_text(&body(content, media_type), value), expected);
    }
    let address_alphabet = build_body(&body(BodyEncoding::Binary, "a/b"), json!("--__")).unwrap();
    assert_eq!(address_alphabet.bytes, [0xFB, 0xEF, 0xFF]);
}

#[test]
fn an_absent_body_is_not_sent() {
    let optional = BodySpec { required: false, ..body(BodyEncoding::Json, "application/json") };
    let operation = Operation { body: Some(optional), ..operation("/t", vec![]) };
    assert_eq!(prepare_json(&operation, json!({})).unwrap().body, None);
    assert_eq!(prepare_json(&operation, json!({"body": null})).unwrap().body, None);
    let needed = Operation { body: Some(body(BodyEncoding::Json, "application/json")), ..operation };
    assert_eq!(
        prepare_json(&needed, json!({})).unwrap_err().to_string(),
        "argument `body` is required; give it a value"
    );
}

#[test]
fn forms_are_encoded_as_declared() {
    let plain = body(BodyEncoding::Urlencoded, "application/x-www-form-urlencoded");
    let cases = [
        (json!({"a": "x y", "b": 1, "c": true, "d": null, "e": ""}), "a=x%20y&b=1&c=true&e="),
        (json!({"a": ["x", "y", null], "b": []}), "a=x&a=y"),
        (json!({"address": {"zip": "99999+1234"}}), "address=%7B%22zip%22%3A%2299999%2B1234%22%7D"),
        (json!({"a": [{"k": 1}, [2]]}), "a=%7B%22k%22%3A1%7D&a=%5B2%5D"),
        (json!({"a&b=c": "d&e=f"}), "a%26b%3Dc=d%26e%3Df"),
        (json!({}), ""),
        (json!("a=1&b=2"), "a=1&b=2"),
    ];
    for (value, expected) in cases {
        assert_eq!(body_text(&plain, value), format!("application/x-www-form-urlencoded\n{expected}"));
    }
    assert_eq!(body_text(&plain, json!([1])), "refused: argument `body` is sent as a form and must be an object");

    let described = with_fields(
        plain,
        &[
            ("csv", styled_field(with_style(ParameterStyle::Form, false))),
            ("pipes", styled_field(with_style(ParameterStyle::PipeDelimited, false))),
            ("deep", styled_field(with_style(ParameterStyle::DeepObject, true))),
            ("spread", styled_field(with_style(ParameterStyle::Form, true))),
            ("reserved", styled_field(with_reserved(ParameterStyle::Form, true))),
            ("json", typed_field("application/json")),
            ("icon", BodyField { binary: true, ..typed_field("image/png, image/jpeg") }),
        ],
    );
    let cases = [
        (json!({"csv": ["a,b", "c"]}), "csv=a%2Cb,c"),
        (json!({"pipes": ["a", "b"]}), "pipes=a%7Cb"),
        (json!({"deep": {"k": "v", "n": {"m": 1}}}), "deep%5Bk%5D=v&deep%5Bn%5D%5Bm%5D=1"),
        (json!({"deep": ["a", "b"]}), "deep%5B%5D=a&deep%5B%5D=b"),
        (json!({"spread": {"R": 1, "G": 2}}), "R=1&G=2"),
        (json!({"reserved": "a/b?c&d"}), "reserved=a/b?c%26d"),
        (json!({"json": "f81d"}), "json=%22f81d%22"),
        (json!({"json": [1, "a"]}), "json=1&json=%22a%22"),
        (json!({"icon": "iVBO_w=="}), "icon=iVBO_w%3D%3D"),
        (json!({"icon": {"name": "x", "base64": "aGk="}}), "icon=aGk%3D"),
    ];
    for (value, expected) in cases {
        assert_eq!(body_text(&described, value), format!("application/x-www-form-urlencoded\n{expected}"));
    }
}

#[test]
fn a_required_list_of_a_form_must_not_be_empty() {
    let needed = BodyField { required: true, ..BodyField::default() };
    for (kind, media_type) in [
        (BodyEncoding::Urlencoded, "application/x-www-form-urlencoded"),
        (BodyEncoding::Multipart, "multipart/form-data"),
    ] {
        for field in [
            needed.clone(),
            BodyField { serialization: Some(with_style(ParameterStyle::Form, false)), ..needed.clone() },
        ] {
            let form = with_fields(body(kind, media_type), &[("tags", field)]);
            assert_eq!(
                body_text(&form, json!({"tags": []})),
                "refused: argument `body.tags` is required and must not be empty, since an empty value would not be sent"
            );
            assert!(body_text(&form, json!({"tags": ["a"], "more": []})).contains('a'));
        }
    }
}

const HEAD: &str = "multipart/form-data; boundary=BOUNDARY\n";

fn part(head: &str, content: &str) -> String {
    format!("--BOUNDARY\r\n{head}\r\n\r\n{content}\r\n")
}

fn form_part(name: &str, content: &str) -> String {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
}

#[test]
fn parts_are_encoded_by_their_kind() {
    let form = with_fields(
        body(BodyEncoding::Multipart, "multipart/form-data"),
        &[
            ("file", binary_field()),
            ("image", BodyField { binary: true, ..typed_field("image/png, image/jpeg") }),
            ("any", BodyField { binary: true, ..typed_field("image/*") }),
            ("xml", typed_field("application/xml; charset=utf-8")),
            ("json", typed_field("application/json")),
            ("csv", styled_field(with_style(ParameterStyle::Form, false))),
            ("words", styled_field(with_style(ParameterStyle::SpaceDelimited, false))),
            ("deep", styled_field(with_style(ParameterStyle::DeepObject, true))),
        ],
    );
    let file = |name: &str, filename: &str, content_type: &str| {
        let head = format!(
            "Content-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\nContent-Type: {content_type}"
        );
        part(&head, "hello")
    };
    let typed_part = |name: &str, content_type: &str, content: &str| {
        part(&format!("Content-Disposition: form-data; name=\"{name}\"\r\nContent-Type: {content_type}"), content)
    };
    let cases = [
        (json!({"name": "Rex", "n": 1, "gone": null}), [form_part("name", "Rex"), form_part("n", "1")].concat()),
        (json!({"meta": {"k": 1}}), typed_part("meta", "application/json", "{\"k\":1}")),
        (json!({"tags": ["a", "b"]}), [form_part("tags", "a"), form_part("tags", "b")].concat()),
        (json!({"o": [{"k": 1}]}), typed_part("o", "application/json", "{\"k\":1}")),
        (json!({"m": [[1]]}), typed_part("m", "application/json", "[1]")),
        (json!({"file": "aGVsbG8="}), file("file", "file", "application/octet-stream")),
        (json!({"image": {"name": "a.png", "base64": "aGVsbG8"}}), file("image", "a.png", "image/png")),
        (json!({"any": "aGVsbG8="}), file("any", "any", "application/octet-stream")),
        (
            json!({"file": ["aGVsbG8=", {"name": "b", "base64": "aGVsbG8="}]}),
            [file("file", "file", "application/octet-stream"), file("file", "b", "application/octet-stream")].concat(),
        ),
        (json!({"xml": "<a/>"}), typed_part("xml", "application/xml; charset=utf-8", "<a/>")),
        (json!({"json": "a"}), typed_part("json", "application/json", "\"a\"")),
        (json!({"csv": ["a b", "c&d"]}), form_part("csv", "a b,c&d")),
        (json!({"words": ["a", "b"]}), form_part("words", "a b")),
        (json!({"deep": {"k": "a b"}}), form_part("deep[k]", "a b")),
        (json!({"a\"\r\nX: 1": "v"}), form_part("a%22%0D%0AX: 1", "v")),
        (
            json!({"file": {"name": "\"; name=\"x\r\n", "base64": "aGVsbG8="}}),
            file("file", "%22; name=%22x%0D%0A", "application/octet-stream"),
        ),
        (json!({"naïve": "é"}), form_part("naïve", "é")),
        (json!([{"a": 1}, {"b": 2}]), [form_part("a", "1"), form_part("b", "2")].concat()),
        (json!({}), String::new()),
    ];
    for (value, expected) in cases {
        assert_eq!(body_text(&form, value), format!("{HEAD}{expected}--BOUNDARY--\r\n"));
    }
    assert_eq!(
        body_text(&form, json!({"file": "no base64!"})),
        "refused: argument `body.file` is not base64; encode the content of the file"
    );
    assert_eq!(
        body_text(&form, json!("x")),
        "refused: argument `body` is sent as a multipart form and must be an object"
    );
}

#[test]
fn other_multipart_kinds_have_parts_in_order() {
    let mixed = body(BodyEncoding::Multipart, "multipart/related; type=\"application/json\"; boundary=theirs");
    let expected = [
        part("Content-Type: application/json", "{\"k\":1}"),
        part("Content-Disposition: attachment; filename=\"a.png\"\r\nContent-Type: application/octet-stream", "hello"),
        part("Content-Type: text/plain", "x"),
    ]
    .concat();
    assert_eq!(
        body_text(&mixed, json!([{"k": 1}, {"name": "a.png", "base64": "aGVsbG8="}, "x"])),
        format!("multipart/related; type=\"application/json\"; boundary=BOUNDARY\n{expected}--BOUNDARY--\r\n")
    );
    assert_eq!(
        body_text(&body(BodyEncoding::Multipart, "multipart/mixed"), json!({"a": "b"})),
        format!("multipart/mixed; boundary=BOUNDARY\n{}--BOUNDARY--\r\n", form_part("a", "b"))
    );
}

#[test]
fn a_long_integer_is_neither_a_text_nor_a_file() {
    use toolcrib_core::execution::{BodyAlternative, BodyChoice};
    let long = parse_integer("123456789012345678901234567890").unwrap();
    let form = body(BodyEncoding::Urlencoded, "application/x-www-form-urlencoded");
    assert_eq!(body_text(&form, long.clone()), "refused: argument `body` is sent as a form and must be an object");

    let files = with_fields(body(BodyEncoding::Multipart, "multipart/form-data"), &[("file", binary_field())]);
    let alternative = |body: BodySpec, value_type: &str| BodyAlternative {
        body,
        file_fields: vec!["file".into()],
        value_types: vec![value_type.into()],
    };
    let choice = BodyChoice {
        argument: "body__content_type".into(),
        alternatives: vec![
            alternative(body(BodyEncoding::Text, "text/plain"), "string"),
            alternative(files, "boolean"),
            alternative(body(BodyEncoding::Json, "application/number+json"), "number"),
        ],
    };
    let default = Some(body(BodyEncoding::Json, "application/json"));
    let operation =
        Operation { method: "POST".into(), body: default, body_choice: Some(choice), ..operation("/t", vec![]) };
    for (value, expected) in [
        (json!("words"), "text/plain"),
        (long.clone(), "application/number+json"),
        (json!({ "file": long }), "application/json"),
        (json!({ "file": "aGk=" }), "multipart/form-data; boundary=BOUNDARY"),
        (json!([1]), "application/json"),
    ] {
        let sent = prepare_json(&operation, json!({ "body": value })).unwrap().body.unwrap().content_type;
        assert_eq!(sent, expected, "{value}");
    }
}

#[test]
fn no_small_argument_makes_a_huge_body() {
    let items: Vec<Value> = (0..20_000).map(Value::from).collect();
    let value = json!({ "k".repeat(60_000): items });
    let too_large = "refused: argument `body` makes the request too large; shorten it";
    for content in [BodyEncoding::Urlencoded, BodyEncoding::Multipart] {
        assert_eq!(body_text(&body(content, "*/*"), value.clone()), too_large);
    }
}
