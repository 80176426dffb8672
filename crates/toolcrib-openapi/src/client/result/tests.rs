use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use toolcrib_connector::redact::Redactor;
use toolcrib_core::execution::Operation;

use super::*;

fn test_response(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> ReceivedResponse {
    let header =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    ReceivedResponse {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers.iter().map(header).collect(),
        url: "https://user:pw@api.example.com/files/1?key=secret".parse().unwrap(),
        shown_url: "https://api.example.com/files/1".into(),
        body: body.to_vec(),
        is_truncated: false,
    }
}

/// No arguments for pages, and a secret.
fn pages() -> PageArguments {
    let sent = "https://api.example.com/files/1".parse().unwrap();
    let schema = to_raw_value(&json!({})).unwrap();
    let redactor = Redactor::new(&BTreeSet::from(["s3cret-key".to_owned()]));
    PageArguments::new(&Operation::default(), &sent, &schema, Arc::new(redactor))
}

fn result_json(received: &ReceivedResponse) -> Value {
    serde_json::from_str(build_result("GET /files/{id}", received, &pages()).unwrap().raw.get()).unwrap()
}

#[test]
fn json_becomes_structured_content_and_text_unchanged() {
    for (kind, body, structured) in [
        ("application/json", r#"{"b": 1.50, "a": 2}"#, r#"{"b": 1.50, "a": 2}"#),
        ("application/hal+json; charset=utf-8", "[1, 2]", r#"{"result":[1, 2]}"#),
        ("application/json", "123456789012345678901234567890", r#"{"result":123456789012345678901234567890}"#),
        ("application/json", "\"x\"", r#"{"result":"x"}"#),
        ("application/json", " null\n", r#"{"result":null}"#),
    ] {
        let answer =
            build_result("x", &test_response(200, &[("content-type", kind)], body.as_bytes()), &pages()).unwrap();
        assert!(answer.raw.get().contains(&format!(r#""structuredContent":{structured},"#)), "{}", answer.raw);
        let value: Value = serde_json::from_str(answer.raw.get()).unwrap();
        assert_eq!(value["content"][0]["text"], body.trim());
    }
    // A byte order mark is not part of the JSON.
    let utf16: Vec<u8> = "{\"a\":\"ü\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (kind, mark, body) in [
        ("application/json", b"\xef\xbb\xbf".as_slice(), "{\"a\":\"ü\"}".as_bytes()),
        ("", b"\xef\xbb\xbf", "{\"a\":\"ü\"}".as_bytes()),
        ("application/json; charset=utf-16", b"\xff\xfe", &utf16),
    ] {
        let marked = test_response(200, &[("content-type", kind)], &[mark, body].concat());
        let value = result_json(&marked);
        assert_eq!(value["structuredContent"], json!({"a": "ü"}), "{kind}");
        assert_eq!(value["content"][0]["text"], "{\"a\":\"ü\"}");
    }
    // The media type says JSON, the content is not.
    let broken = result_json(&test_response(200, &[("content-type", "application/json")], b"{oops"));
    assert_eq!(broken["content"], json!([{"type": "text", "text": "{oops"}]));
    assert_eq!(broken.get("structuredContent"), None);
}

#[test]
fn text_is_decoded_in_any_charset() {
    for (kind, body, expected) in [
        ("text/plain", "grün".as_bytes(), "grün"),
        ("text/plain; charset=iso-8859-1", b"gr\xfcn".as_slice(), "grün"),
        ("text/plain; charset=utf-8", b"gr\xfcn", "gr\u{fffd}n"),
        ("application/xml", b"<a/>", "<a/>"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("application/x-ndjson", b"{}\n{}", "{}\n{}"),
    ] {
        let value = result_json(&test_response(200, &[("content-type", kind)], body));
        assert_eq!(value["content"], json!([{"type": "text", "text": expected}]), "{kind}");
    }
    assert_eq!(result_json(&test_response(200, &[], b"words"))["content"][0]["text"], "words");
    assert_eq!(result_json(&test_response(200, &[], b"{\"a\":1}"))["structuredContent"], json!({"a": 1}));
}

#[test]
fn images_and_audio_are_included_and_other_binary_content_is_described() {
    let image = result_json(&test_response(200, &[("content-type", "image/png")], b"\x89PNG"));
    assert_eq!(image["content"], json!([{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}]));
    let audio = result_json(&test_response(200, &[("content-type", "Audio/WAV")], b"RIFF"));
    assert_eq!(audio["content"][0]["type"], "audio");

    let small = result_json(&test_response(200, &[("content-type", "application/pdf")], b"%PDF"));
    assert_eq!(
        small["content"],
        json!([
            {"type": "text", "text": "200 OK with binary content: `application/pdf`, 4 bytes"},
            {"type": "resource", "resource": {
                "uri": "https://api.example.com/files/1", "mimeType": "application/pdf", "blob": "JVBERg==",
            }},
        ])
    );
    let large = result_json(&test_response(200, &[("content-type", "image/png")], &vec![0xff; MAX_MEDIA_BYTES + 1]));
    assert_eq!(large["content"][0]["text"], "200 OK with binary content: `image/png`, 8388609 bytes");
    assert_eq!(large["content"][1]["resource"]["mimeType"], "image/png");

    let encoded = [("content-type", "text/plain"), ("content-encoding", "br")];
    let text = "200 OK with binary content: `text/plain` encoded as `br`, 2 bytes";
    assert_eq!(result_json(&test_response(200, &encoded, b"\x1f\x8b"))["content"][0]["text"], text);
}

#[test]
fn an_empty_body_is_described_by_its_status() {
    let no_content = result_json(&test_response(204, &[], b""));
    assert_eq!(no_content["content"], json!([{"type": "text", "text": "204 No Content"}]));
    assert_eq!(no_content["_meta"]["toolcrib/http"]["empty"], true);
    let json = result_json(&test_response(200, &[("content-type", "application/json")], b""));
    assert_eq!(json["content"], json!([{"type": "text", "text": "200 OK"}]));
}

#[test]
fn content_beyond_the_limit_is_an_error_of_any_kind() {
    for kind in ["application/json", "text/plain", "image/png", "video/mp4", ""] {
        let mut cut = test_response(200, &[("content-type", kind), ("content-length", "99999999")], b"{");
        cut.is_truncated = true;
        let error = build_result("GET /files/{id}", &cut, &pages()).unwrap_err();
        let message = "the response to `GET /files/{id}` is larger than 16 MiB; request less data";
        assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, message), "{kind}");
    }
}

#[test]
fn status_and_reported_headers_are_in_meta() {
    let headers = [
        ("content-type", "text/plain"),
        ("etag", "\"1\""),
        ("link", "<a?key=s3cret-key>; rel=next"),
        ("x-ratelimit-remaining", "3"),
        ("ratelimit", "limit=10"),
        ("set-cookie", "session=secret"),
        ("x-powered-by", "x"),
    ];
    let expected = json!({"toolcrib/http": {"status": 201, "headers": {
        "content-type": "text/plain",
        "etag": "\"1\"",
        "link": "<a?key=***>; rel=next",
        "x-ratelimit-remaining": "3",
        "ratelimit": "limit=10",
    }}});
    assert_eq!(result_json(&test_response(201, &headers, b"x"))["_meta"], expected);
    let long = "x".repeat(5000);
    let bounded = result_json(&test_response(200, &[("link", &long)], b"x"));
    assert!(bounded["_meta"]["toolcrib/http"]["headers"]["link"].as_str().unwrap().len() < 1100);
}
