use std::collections::BTreeMap;

use toolcrib_core::Code;
use toolcrib_core::source::{OpenApiSource, RemoteSource, StdioSource};

use super::*;
use crate::secret::file_paths;

const UNSET_VARIABLE: &str = "TOOLCRIB_NO_SUCH_VARIABLE";

fn reference(value: &str) -> String {
    format!("${{env:{UNSET_VARIABLE}:-{value}}}")
}

fn stdio_with_env(value: &str) -> SourceKind {
    let env = BTreeMap::from([("VALUE".to_owned(), value.to_owned())]);
    SourceKind::Stdio(StdioSource { command: "npx".into(), env, ..StdioSource::default() })
}

fn stdio_with_args(args: &[&str]) -> SourceKind {
    SourceKind::Stdio(StdioSource {
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..StdioSource::default()
    })
}

fn redact(text: &str, kind: &SourceKind) -> String {
    let references = ReferenceValues::read_blocking(file_paths(kind));
    Redactor::for_source(kind, &references).redact(text).into_owned()
}

fn redactor(values: &[&str]) -> Redactor {
    Redactor::new(&values.iter().map(|value| (*value).to_owned()).collect())
}

#[test]
fn a_secret_number_of_any_length_becomes_a_mask() {
    let redactor = redactor(&["123456789012345678901234567890", "1234567890123"]);
    let document = r#"{"long":123456789012345678901234567890,"short":1234567890123,"other":98765432109876543210987}"#;
    let document = RawValue::from_string(document.to_owned()).unwrap();
    let RedactedJson::Changed(redacted) = redactor.redact_json(&document) else { panic!("not masked") };
    assert_eq!(redacted.get(), r#"{"long":"***","short":"***","other":98765432109876543210987}"#);
}

#[test]
fn every_reference_is_redacted_in_any_field() {
    let bare = stdio_with_args(&[&reference("hunt")]);
    assert_eq!(redact("bad hunt!", &bare), "bad ***!");
    assert_eq!(redact("no /usr/bin", &stdio_with_args(&[&reference("/usr/bin")])), "no ***");
    assert_eq!(redact("abc=def", &stdio_with_args(&[&format!("KEY={}", reference("abc=def"))])), "***");
    let cwd = SourceKind::Stdio(StdioSource { cwd: Some(reference("/srv/acme")), ..StdioSource::default() });
    assert_eq!(redact("in /srv/acme/x", &cwd), "in ***/x");
    let command = SourceKind::Stdio(StdioSource { command: reference("/opt/acme/run"), ..StdioSource::default() });
    assert_eq!(redact("cannot start `/opt/acme/run`", &command), "cannot start `***`");
    let home = std::env::var("HOME").unwrap_or_default();
    assert_eq!(redact(&home, &stdio_with_args(&["${env:HOME}"])), home);
}

#[test]
fn the_path_of_a_document_is_named_and_its_url_is_redacted() {
    let document = |value: &str| {
        let document = format!("/p/./{}", reference(value));
        SourceKind::OpenApi(OpenApiSource { document, ..OpenApiSource::default() })
    };
    assert_eq!(redact("no /p/api.yaml", &document("api.yaml")), "no /p/api.yaml");
    assert_eq!(redact("no /srv/api.yaml", &document("/srv/api.yaml")), "no /srv/api.yaml");
    assert_eq!(redact("no https://h/key", &document("https://h/key")), "no ***");
}

#[test]
fn literals_in_places_that_hold_secrets_are_redacted() {
    assert_eq!(redact("bad hunter2!", &stdio_with_env("hunter2")), "bad ***!");
    assert_eq!(
        redact("cannot read /usr/bin in production", &stdio_with_env("/usr/bin")),
        "cannot read /usr/bin in production"
    );
    assert_eq!(redact("in production", &stdio_with_env("production")), "in production");
    let args =
        stdio_with_args(&["--token", "abc=", "--api-key=def45==", "-e", "LOG=debug", "https://me:pass@h/?key=hunter2"]);
    assert_eq!(redact("abc= def45== debug me:pass pass hunter2", &args), "*** *** debug *** *** ***");
    let headers = BTreeMap::from([
        ("Authorization".to_owned(), "Bearer ghp_12345".to_owned()),
        ("Accept".to_owned(), "application/json".to_owned()),
    ]);
    let kind = SourceKind::Http(RemoteSource { headers, ..RemoteSource::default() });
    assert_eq!(redact("Bearer ghp_12345 for application/json", &kind), "*** for application/json");
    assert_eq!(redact("ghp_12345 expired", &kind), "*** expired");
}

#[test]
fn variables_and_urls_are_redacted_where_they_contain_references() {
    let variables =
        BTreeMap::from([("region".to_owned(), "europe".to_owned()), ("account".to_owned(), reference("hunter2"))]);
    let kind = SourceKind::OpenApi(OpenApiSource { variables, ..OpenApiSource::default() });
    assert_eq!(redact("https://europe.example/hunter2", &kind), "https://europe.example/***");

    let check = |document: &str, base_url: &str, text: &str, expected: &str| {
        let document = document.to_owned();
        let base_url = Some(base_url.to_owned());
        let kind = SourceKind::OpenApi(OpenApiSource { document, base_url, ..OpenApiSource::default() });
        assert_eq!(redact(text, &kind), expected);
    };
    let url = format!("http://h/{}/mcp?key=hunter2", reference("s3cret-path"));
    let server = SourceKind::Http(RemoteSource { url, ..RemoteSource::default() });
    assert_eq!(redact("http://h/s3cret-path/mcp?key=hunter2", &server), "http://h/***/mcp?key=***");
    let bot = format!("http://h/bot{}", reference("12:t0ken"));
    check("/api.yaml", &bot, "no `/bot12:t0ken/x` at h", "no `/bot***/x` at h");
    check(&bot, "http://h", "/bot12:t0ken/openapi.json", "/bot***/openapi.json");
    check("/api.yaml", &format!("http://h/{}", reference("a b c d")), "/a%20b%20c%20d", "/***");
    check("/api.yaml", "http://h/x?key=hunter2&n=1", "hunter2 1", "*** 1");
    check("/api.yaml", &format!("https://{}.h/", reference("Tenant")), "https://tenant.h/", "https://***.h/");
    let whole = reference("http://me:pa%40ss@acme.example/s3cret/path/");
    check("/api.yaml", &whole, "acme.example, me:pa@ss, /s3cret/path/x", "***, me:***, /***/x");
}

#[test]
fn a_value_is_found_however_it_is_encoded() {
    let secret = r#"S3cret/"va lue"\&x'=="#;
    let redactor = redactor(&[secret]);
    let standard = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, secret);
    let within = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE, format!("user:{secret}:x"));
    for (text, expected) in [
        (format!("a {secret} b"), "a *** b"),
        (format!("a {} b", standard), "a *** b"),
        (format!("a {} b", standard.trim_end_matches('=')), "a *** b"),
        (serde_json::to_string(&format!("a {secret} b")).unwrap(), r#""a *** b""#),
        (serde_json::to_string(&serde_json::to_string(secret).unwrap()).unwrap(), r#""\"***\"""#),
        ("a S3cret%2F%22va%20lue%22%5C%26x%27%3D%3D b".to_owned(), "a *** b"),
        ("a s3cret%2f%22va+lue%22%5c%26x'%3d%3d b".to_owned(), "a *** b"),
        (format!("a '{}' b", secret.replace('\'', r"'\''")), "a '***' b"),
        (format!("a {} b", secret.bytes().map(|byte| format!("{byte:02X}")).collect::<String>()), "a *** b"),
        (format!("a {} b", secret.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>()), "a *** b"),
    ] {
        assert_eq!(redactor.redact(&text), expected, "{text}");
    }
    let redacted = redactor.redact(&within).into_owned();
    assert!(redacted.contains("***") && redacted.len() < 20, "{redacted}");
}

#[test]
fn parts_of_a_value_are_redacted_by_themselves() {
    let key = "-----BEGIN KEY-----\nMIIEvQIBADAN\nQgEFAASCBKcw\n-----END KEY-----";
    let json =
        r#"{"type":"x","private_key":"-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n","id":"client-77"}"#;
    for (value, text, expected) in [
        (key, "line 2: QgEFAASCBKcw -----END KEY-----", "line 2: *** -----END KEY-----"),
        (json, "client-77 has MIIEvQIBADAN", "*** has ***"),
        ("Bearer abcd1234", "token abcd1234", "token ***"),
        ("admin:pass", "wrong: pass", "wrong: ***"),
        ("127.0.0.1:8080", "port 8080", "port 8080"),
        ("Server=db;Password=p4ss", "p4ss", "***"),
        ("A_TOKEN=abcd\nOTHER='quoted value'", "abcd and quoted value", "*** and ***"),
    ] {
        let redactor = Redactor::new(&values::credential_values(value));
        assert_eq!(redactor.redact(text), expected, "{value}");
    }
}

#[test]
fn the_beginning_of_a_value_before_an_ellipsis_is_redacted() {
    let redactor = redactor(&["correct-horse-battery"]);
    assert_eq!(redactor.redact("token correct-ho…"), "token ***…");
    assert_eq!(redactor.redact(r#"{"a":"token corr… and more"}"#), r#"{"a":"token ***… and more"}"#);
    assert_eq!(redactor.redact("cor…"), "cor…");
    assert_eq!(redactor.redact("the end…"), "the end…");
}

#[test]
fn a_long_beginning_before_an_ellipsis_is_redacted_in_bounded_time() {
    let value: String = (0..64 * 1024 / 8).map(|number| format!("{number:08}")).collect();
    let redactor = redactor(&[&value]);
    let began = std::time::Instant::now();
    assert_eq!(redactor.redact(&format!("token {}…", &value[..600])), "token ***…");
    assert_eq!(redactor.redact(&format!("token {}…", &value[..60_000])), "token ***…");
    let unrelated = "é".repeat(64 * 1024) + "…";
    assert_eq!(redactor.redact(&unrelated), unrelated);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn redaction_before_an_ellipsis_does_not_split_a_character() {
    assert_eq!(redactor(&["abcdéfgh"]).redact("abcdé…"), "***…");
    assert_eq!(truncated_prefix_len(b"abcd\xc3", "abcdéfgh".as_bytes()), None);
}

fn redact_json(json: &str, secret: &str) -> Option<String> {
    let json = RawValue::from_string(json.to_owned()).unwrap();
    match redactor(&[secret]).redact_json(&json) {
        RedactedJson::Unchanged => Some(json.get().to_owned()),
        RedactedJson::Changed(redacted) => Some(redacted.get().to_owned()),
        RedactedJson::Unmaskable => None,
    }
}

#[test]
fn json_that_cannot_be_parsed_is_redacted_as_text() {
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(200), "]".repeat(200));
    assert_eq!(redact_json(&nested(r#""hunter2""#), "hunter2"), Some(nested(r#""***""#)));
    assert_eq!(redact_json(r#"["\ud800 hunter2"]"#, "hunter2"), Some(r#"["\ud800 ***"]"#.to_owned()));
    assert_eq!(redact_json(&nested("12345678"), "12345678"), None);
    assert_eq!(redact_json(&nested("1"), "12345678"), Some(nested("1")));
    let tool = RawValue::from_string(nested("12345678")).unwrap();
    assert_eq!(redactor(&["12345678"]).redact_tool(tool).get(), r#""***""#);
}

#[test]
fn json_is_searched_as_deep_as_its_strings() {
    // A string that is encoded twice, in a document that escapes it a third time.
    let once = "hunter2".bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let twice = once.replace('%', "%25");
    let json = format!(r#"["{}"]"#, twice.replace('%', r"\u0025"));
    assert_eq!(redact_json(&json, "hunter2"), Some(r#"["***"]"#.to_owned()));
}

#[test]
fn values_that_overlap_leave_no_part() {
    let redactor = redactor(&["abcdef", "defghi", "abcdefghijk"]);
    assert_eq!(redactor.redact("xabcdefghix"), "x***x");
    assert_eq!(redactor.redact("abcdefghijk, defghi"), "***, ***");
}

#[test]
fn an_error_is_redacted_with_its_details_and_cause() {
    let cause = std::io::Error::other("at http://h/?key=hunter2");
    let error = Error::new(Code::Internal, "bad hunter2").with_cause(cause);
    let details = serde_json::json!({ "hunter2": ["x hunter2", 5], "n": 12345678 });
    let redacted = redactor(&["hunter2", "12345678"]).redact_error(error.with_details(details));
    assert_eq!(redacted.message, "bad ***");
    assert_eq!(redacted.details, Some(serde_json::json!({ "***": ["x ***", 5], "n": "***" })));
    assert_eq!(redacted.cause_chain().as_deref(), Some("at http://h/?key=***"));
}

#[test]
fn a_tool_keeps_what_calls_depend_on() {
    let tool = r#"{"name":"read","description":"Reads hunter2","inputSchema":{"properties":{"p":{"default":"hunter2","title":"hunter2"}}}}"#;
    let tool = RawValue::from_string(tool.to_owned()).unwrap();
    let redacted = redactor(&["hunter2"]).redact_tool(tool);
    let expected = r#"{"name":"read","description":"Reads ***","inputSchema":{"properties":{"p":{"default":"hunter2","title":"***"}}}}"#;
    assert_eq!(redacted.get(), expected);
}

#[test]
fn an_unresolved_reference_is_named() {
    let unknown = format!("${{env:{UNSET_VARIABLE}}}");
    let message = format!("`{unknown}` cannot be resolved");
    assert_eq!(redact(&message, &stdio_with_env(&unknown)), message);
}
