//! Hand-written cases of parameter serialization over real HTTP, compared with what the OpenAPI specification requires.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};
use toolcrib_testkit::programs;

use super::support::OpenApiTestRegistry;

#[tokio::test]
async fn every_case_is_serialized_as_specified() {
    let Some(data) = programs::data_dir() else {
        return programs::skip("serialization", "there is no recorded material");
    };
    let text = std::fs::read_to_string(data.join("openapi/serialization_cases.json")).unwrap();
    let documents: Arc<OnceLock<Vec<String>>> = Arc::default();
    let documents_served = documents.clone();
    let server = LoopbackServer::start(move |request| match request.target.strip_prefix("/documents-") {
        Some(number) => HttpReply::json(200, &documents_served.get().unwrap()[number.parse::<usize>().unwrap()]),
        None => HttpReply::json(200, "{}"),
    });
    let text = text.replace("{{ECHO}}", server.url.strip_prefix("http://").unwrap());
    let cases: Value = serde_json::from_str(&text).unwrap();
    let cases = cases["cases"].as_array().unwrap();

    documents.set(cases.iter().map(|case| case["spec"].to_string()).collect()).unwrap();
    let mut sources = Map::new();
    for (number, case) in cases.iter().enumerate() {
        let mut source = json!({ "openapi": format!("{}/documents-{number}", server.url) });
        if let Some(credentials) = case["credentials"].as_object() {
            let schemes: Map<String, Value> =
                credentials.iter().map(|(name, credential)| (name.clone(), auth_config(credential))).collect();
            source["auth"] = json!({ "schemes": schemes });
        }
        sources.insert(format!("c{number}"), source);
    }
    let registry = OpenApiTestRegistry::open(tempfile::tempdir().unwrap(), Value::Object(sources)).await;
    let names = registry.tool_names().await;
    let mut mismatches = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let before = server.requests().len();
        let name = names.iter().find(|name| name.starts_with(&format!("c{number}__")));
        let outcome = match name {
            Some(name) => registry
                .call(name, flatten_arguments(&case["arguments"]))
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
            None => Err("there is no tool".to_owned()),
        };
        let mismatch = match (outcome, server.requests().get(before)) {
            (Err(_), None) if case["expect"]["accept_error"] == true => None,
            (Err(error), _) => Some(error),
            (Ok(()), None) => Some("nothing arrived".to_owned()),
            (Ok(()), Some(request)) => find_mismatch(&case["expect"], request),
        };
        mismatches.extend(mismatch.map(|mismatch| format!("{}: {mismatch}", case["id"])));
    }
    assert!(mismatches.is_empty(), "{} of {} are wrong:\n{}", mismatches.len(), cases.len(), mismatches.join("\n"));
    assert!(cases.len() >= 54);
}

fn auth_config(credential: &Value) -> Value {
    match credential.get("token") {
        Some(token) => json!({ "bearer": token }),
        // Name and location come from the document.
        None => json!({ "api_key": { "name": "x", "value": credential["value"] } }),
    }
}

/// The cases group arguments by location; a call has them side by side.
fn flatten_arguments(groups: &Value) -> Value {
    let mut arguments = Map::new();
    for (place, values) in groups.as_object().unwrap() {
        match place.as_str() {
            "body" => {
                arguments.insert("body".to_owned(), values.clone());
            }
            _ => arguments.extend(values.as_object().unwrap().clone()),
        }
    }
    Value::Object(arguments)
}

fn find_mismatch(expected: &Value, request: &ReceivedRequest) -> Option<String> {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let any = |key: &str, fits: &dyn Fn(&str) -> bool| {
        expected[key].as_array().unwrap().iter().any(|accepted| fits(accepted.as_str().unwrap()))
    };
    if expected["method"] != request.method.as_str() || !any("path_any", &|accepted| accepted == path) {
        return Some(request.request_line());
    }
    let raw = expected["raw_query"] == true;
    if !any("query_any", &|accepted| {
        if raw { accepted == query } else { normalized_pairs(accepted) == normalized_pairs(query) }
    }) {
        return Some(request.request_line());
    }
    for (name, accepted) in expected["headers"].as_object().into_iter().flatten() {
        let credential = request.header(name);
        if !accepted.as_array().unwrap().contains(&json!(credential)) {
            return Some(format!("{name}: {credential:?}"));
        }
    }
    let body = &expected["body"];
    let fits = if body.is_null() {
        request.body.is_empty()
    } else {
        let kind = request.header("content-type").unwrap_or_default();
        let kinds = body["content_type"].as_array();
        kinds.is_none_or(|kinds| kinds.iter().any(|accepted| kind.starts_with(accepted.as_str().unwrap())))
            && is_body_match(body, kind, &request.text())
    };
    (!fits).then(|| format!("{} {}", request.header("content-type").unwrap_or_default(), request.text()))
}

fn is_body_match(expected: &Value, kind: &str, body: &str) -> bool {
    let any = |key: &str, fits: &dyn Fn(&str) -> bool| {
        expected[key].as_array().is_none_or(|accepted| accepted.iter().any(|text| fits(text.as_str().unwrap())))
    };
    let json_fits =
        expected.get("json").is_none_or(|json| serde_json::from_str::<Value>(body).ok().as_ref() == Some(json));
    let parts_fit = expected["parts"].as_object().is_none_or(|expected| {
        let parts = parse_parts(kind, body);
        expected.len() == parts.len()
            && expected.iter().all(|(name, expected)| parts.get(name).is_some_and(|part| is_part_match(expected, part)))
    });
    json_fits
        && parts_fit
        && any("form_any", &|form| normalized_pairs(form) == normalized_pairs(body))
        && any("text_any", &|text| text == body)
}

fn is_part_match(expected: &Value, (head, body): &(String, String)) -> bool {
    let text_fits = expected["text"].as_str().is_none_or(|text| text == body);
    let any_fits = expected["text_any"].as_array().is_none_or(|any| any.contains(&json!(body)));
    let json_fits =
        expected.get("json").is_none_or(|json| serde_json::from_str::<Value>(body).ok().as_ref() == Some(json));
    text_fits && any_fits && json_fits && (expected["filename"] != true || head.contains("filename="))
}

/// Parts of a multipart body by name: headers and content.
fn parse_parts(kind: &str, body: &str) -> BTreeMap<String, (String, String)> {
    let boundary = format!("--{}", kind.split("boundary=").nth(1).unwrap_or_default().trim_matches('"'));
    let parts = body.split(&boundary).filter_map(|part| {
        let (head, content) = part.strip_prefix("\r\n")?.strip_suffix("\r\n")?.split_once("\r\n\r\n")?;
        let name = head.split(" name=\"").nth(1)?.split('"').next()?;
        Some((name.to_owned(), (head.to_owned(), content.to_owned())))
    });
    parts.collect()
}

/// Sorted pairs of a query in normal form.
fn normalized_pairs(query: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (normalize(name, true), normalize(value, false))
    };
    let mut pairs: Vec<_> = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    pairs.sort();
    pairs
}

/// Decodes unreserved characters, or all ASCII characters, and reads a plus as a space.
fn normalize(text: &str, decode_all: bool) -> String {
    let text = text.replace('+', "%20");
    let mut normalized = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        let (before, code) = rest.split_at(at);
        normalized.push_str(before);
        let Some(byte) = code.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()) else { break };
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || (decode_all && byte.is_ascii()) {
            normalized.push(char::from(byte));
        } else {
            normalized.push_str(&code[..3].to_ascii_uppercase());
        }
        rest = &code[3..];
    }
    normalized + rest
}
