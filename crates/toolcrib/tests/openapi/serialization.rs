//! The hand-written cases of how arguments become requests, over real HTTP: what arrives is what the specification
//! says.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use toolcrib_testkit::programs;

use crate::server::{self, LoopbackServer, ReceivedRequest};
use crate::support::OpenApiTestRegistry;

#[tokio::test]
async fn every_case_arrives_as_the_specification_has_it() {
    let Some(data) = programs::data_dir() else {
        return programs::skip("serialization", "there is no recorded material");
    };
    let text = std::fs::read_to_string(data.join("openapi/serialization_cases.json")).unwrap();
    let documents: Arc<OnceLock<Vec<String>>> = Arc::default();
    let served = documents.clone();
    let server = LoopbackServer::start(move |heard, _| match heard.target.strip_prefix("/documents-") {
        Some(number) => server::json_reply(200, &served.get().unwrap()[number.parse::<usize>().unwrap()]),
        None => server::json_reply(200, "{}"),
    })
    .await;
    let text = text.replace("{{ECHO}}", server.url.strip_prefix("http://").unwrap());
    let cases: Value = serde_json::from_str(&text).unwrap();
    let cases = cases["cases"].as_array().unwrap();

    documents.set(cases.iter().map(|case| case["spec"].to_string()).collect()).unwrap();
    let mut sources = Map::new();
    for (number, case) in cases.iter().enumerate() {
        let mut source = json!({ "openapi": format!("{}/documents-{number}", server.url) });
        if let Some(credentials) = case["credentials"].as_object() {
            let schemes: Map<String, Value> =
                credentials.iter().map(|(name, given)| (name.clone(), auth_config(given))).collect();
            source["auth"] = json!({ "schemes": schemes });
        }
        sources.insert(format!("c{number}"), source);
    }
    let bench = OpenApiTestRegistry::open(tempfile::tempdir().unwrap(), Value::Object(sources)).await;
    let names = bench.tool_names().await;
    let mut faults = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let before = server.requests().len();
        let name = names.iter().find(|name| name.starts_with(&format!("c{number}__")));
        let called = match name {
            Some(name) => bench
                .call(name, flatten_arguments(&case["arguments"]))
                .await
                .map(drop)
                .map_err(|error| error.to_string()),
            None => Err("there is no tool".to_owned()),
        };
        let fault = match (called, server.requests().get(before)) {
            (Err(_), None) if case["expect"]["accept_error"] == true => None,
            (Err(error), _) => Some(error),
            (Ok(()), None) => Some("nothing arrived".to_owned()),
            (Ok(()), Some(heard)) => find_mismatch(&case["expect"], heard),
        };
        faults.extend(fault.map(|fault| format!("{}: {fault}", case["id"])));
    }
    assert!(faults.is_empty(), "{} of {} are wrong:\n{}", faults.len(), cases.len(), faults.join("\n"));
    assert!(cases.len() >= 54);
}

fn auth_config(given: &Value) -> Value {
    match given.get("token") {
        Some(token) => json!({ "bearer": token }),
        // The document has the name and the place.
        None => json!({ "api_key": { "name": "x", "value": given["value"] } }),
    }
}

/// Grouped by their places in the cases, side by side in a call.
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

fn find_mismatch(expected: &Value, heard: &ReceivedRequest) -> Option<String> {
    let (path, query) = heard.target.split_once('?').unwrap_or((&heard.target, ""));
    let any = |key: &str, fits: &dyn Fn(&str) -> bool| {
        expected[key].as_array().unwrap().iter().any(|accepted| fits(accepted.as_str().unwrap()))
    };
    if expected["method"] != heard.method.as_str() || !any("path_any", &|accepted| accepted == path) {
        return Some(heard.request_line());
    }
    let raw = expected["raw_query"] == true;
    if !any("query_any", &|accepted| {
        if raw { accepted == query } else { normalized_pairs(accepted) == normalized_pairs(query) }
    }) {
        return Some(heard.request_line());
    }
    for (name, accepted) in expected["headers"].as_object().into_iter().flatten() {
        let given = heard.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        if !accepted.as_array().unwrap().contains(&json!(given)) {
            return Some(format!("{name}: {given:?}"));
        }
    }
    let body = &expected["body"];
    let fits = match body.is_null() {
        true => heard.body.is_empty(),
        false => {
            let kind = heard.header("content-type");
            let kinds = body["content_type"].as_array();
            kinds.is_none_or(|kinds| kinds.iter().any(|accepted| kind.starts_with(accepted.as_str().unwrap())))
                && is_body_match(body, kind, &heard.body)
        }
    };
    (!fits).then(|| format!("{} {}", heard.header("content-type"), heard.body))
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

/// The parts of a multipart body by their names: heads and contents.
fn parse_parts(kind: &str, body: &str) -> BTreeMap<String, (String, String)> {
    let boundary = format!("--{}", kind.split("boundary=").nth(1).unwrap_or_default().trim_matches('"'));
    let parts = body.split(&boundary).filter_map(|part| {
        let (head, content) = part.strip_prefix("\r\n")?.strip_suffix("\r\n")?.split_once("\r\n\r\n")?;
        let name = head.split(" name=\"").nth(1)?.split('"').next()?;
        Some((name.to_owned(), (head.to_owned(), content.to_owned())))
    });
    parts.collect()
}

/// Names and values in any order, written in one way.
fn normalized_pairs(query: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (normalize(name, true), normalize(value, false))
    };
    let mut pairs: Vec<_> = query.split('&').filter(|text| !text.is_empty()).map(pair).collect();
    pairs.sort();
    pairs
}

/// What need not be encoded is not, or nothing is; a plus is a space.
fn normalize(text: &str, decode_all: bool) -> String {
    let text = text.replace('+', "%20");
    let mut normal = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        let (before, code) = rest.split_at(at);
        normal.push_str(before);
        let Some(byte) = code.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()) else { break };
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match plain || (decode_all && byte.is_ascii()) {
            true => normal.push(char::from(byte)),
            false => normal.push_str(&code[..3].to_ascii_uppercase()),
        }
        rest = &code[3..];
    }
    normal + rest
}
