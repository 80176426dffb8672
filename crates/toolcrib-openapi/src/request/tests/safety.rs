//! Property tests: whatever arguments an agent passes, the request has the document's origin, path, headers and
//! parameters, or is rejected.

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use toolcrib_core::execution::{BodyEncoding, BodySpec};
use url::Url;

use super::*;

/// Texts with characters that have a meaning in some part of a request.
fn arbitrary_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            ".", "..", "/", "\\", "?", "#", "&", "=", "%", "%2e", "%2F", "%0d%0a", "\r\n", "\n", "\t", "\0", ";", ",",
            "|", " ", "+", "@", ":", "//", "é", "[", "]", "{v}", "a", "1", "\u{202e}", "\"", "'",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

fn arbitrary_value() -> impl Strategy<Value = Value> {
    let single = prop_oneof![
        4 => arbitrary_text().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    single.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            hash_map(arbitrary_text(), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn arbitrary_serialization() -> impl Strategy<Value = Serialization> {
    let styles = vec![
        ParameterStyle::Simple,
        ParameterStyle::Label,
        ParameterStyle::Matrix,
        ParameterStyle::Form,
        ParameterStyle::SpaceDelimited,
        ParameterStyle::PipeDelimited,
        ParameterStyle::TabDelimited,
        ParameterStyle::DeepObject,
        ParameterStyle::Cookie,
    ];
    prop_oneof![
        8 => (proptest::sample::select(styles), any::<bool>(), any::<bool>())
            .prop_map(|(style, explode, allow_reserved)| Serialization::Style { style, explode, allow_reserved }),
        1 => Just(with_content("application/json")),
        1 => Just(with_content("text/plain")),
        1 => Just(with_content("application/x-www-form-urlencoded")),
    ]
}

fn prepare_if_valid(operation: &Operation, value: &Value) -> Option<PreparedRequest> {
    prepare_json(operation, json!({ "v": value })).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_value_in_the_path_stays_in_its_segment(serialization in arbitrary_serialization(), value in arbitrary_value()) {
        let operation = operation("/t/{v}/x?f=1", vec![parameter("v", ParameterLocation::Path, serialization)]);
        if let Some(prepared) = prepare_if_valid(&operation, &value) {
            let url = Url::parse(&prepared.url).unwrap();
            prop_assert_eq!(url.origin().ascii_serialization(), "http://h");
            prop_assert!(url.username().is_empty() && url.password().is_none());
            let segments: Vec<&str> = url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 4);
            prop_assert_eq!((segments[0], segments[1], segments[3]), ("api", "t", "x"));
            prop_assert!(!segments[2].is_empty());
            prop_assert_eq!(url.query(), Some("f=1"));
            prop_assert_eq!(url.fragment(), None);
            // Parsing does not change the URL.
            prop_assert_eq!(url.as_str(), prepared.url.as_str());
        }
    }

    #[test]
    fn two_values_in_one_segment_do_not_form_a_parent_segment(first in arbitrary_text(), second in arbitrary_text()) {
        let parameters = ["a", "b"].map(|name| parameter(name, ParameterLocation::Path, with_reserved(ParameterStyle::Simple, false)));
        let operation = operation("/t/{a}{b}/x", parameters.to_vec());
        if let Ok(prepared) = prepare_json(&operation, json!({"a": first, "b": second})) {
            prop_assert_eq!(Url::parse(&prepared.url).unwrap().path_segments().unwrap().count(), 4);
        }
    }

    #[test]
    fn a_value_in_the_query_stays_in_its_parameter(serialization in arbitrary_serialization(), value in arbitrary_value()) {
        let explodes_objects = matches!(&serialization, Serialization::Style { explode: true, .. }) && value.is_object();
        let after = OperationParameter { argument: "after".into(), ..parameter("last", ParameterLocation::Query, with_style(ParameterStyle::Form, true)) };
        let operation = operation("/t?f=1", vec![parameter("v", ParameterLocation::Query, serialization), after]);
        if let Ok(prepared) = prepare_json(&operation, json!({"v": value, "after": 2})) {
            let url = Url::parse(&prepared.url).unwrap();
            prop_assert_eq!(url.origin().ascii_serialization(), "http://h");
            prop_assert_eq!((url.path(), url.fragment()), ("/api/t", None));
            let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
            prop_assert_eq!(&pairs[0], &("f".to_owned(), "1".to_owned()));
            prop_assert_eq!(&pairs[pairs.len() - 1], &("last".to_owned(), "2".to_owned()));
            if !explodes_objects {
                for (name, _) in &pairs[1..pairs.len() - 1] {
                    prop_assert!(name == "v" || name.starts_with("v["), "{}", name);
                }
            }
        }
    }

    #[test]
    fn a_plain_value_arrives_unchanged(text in arbitrary_text()) {
        let operation = operation("/t", vec![parameter("v", ParameterLocation::Query, with_style(ParameterStyle::Form, true))]);
        let url = Url::parse(&prepare_if_valid(&operation, &json!(text)).unwrap().url).unwrap();
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        prop_assert_eq!(pairs, [("v".to_owned(), text)]);
    }

    #[test]
    fn a_header_or_cookie_is_one_and_without_line_breaks(serialization in arbitrary_serialization(), value in arbitrary_value()) {
        let explodes = matches!(&serialization, Serialization::Style { explode: true, .. } | Serialization::Style { style: ParameterStyle::DeepObject, .. });
        let parameters = [ParameterLocation::Header, ParameterLocation::Cookie].map(|location| parameter("v", location, serialization.clone()));
        if let Some(prepared) = prepare_if_valid(&operation("/t", parameters.to_vec()), &value) {
            prop_assert!(prepared.headers.len() <= 2);
            prop_assert!(prepared.headers.iter().all(|(name, _)| name == "Accept" || name == "v"));
            let control = |text: &str| text.chars().any(|character| character.is_control() && character != '\t');
            prop_assert!(!prepared.headers.iter().any(|(_, value)| control(value)));
            prop_assert!(explodes || prepared.cookies.len() <= 1);
            for (name, value) in &prepared.cookies {
                prop_assert!(!control(name) && !name.contains([';', '=', ' ']));
                prop_assert!(!control(value) && !value.contains(';'));
            }
        }
    }

    #[test]
    fn a_form_arrives_unchanged(properties in hash_map(arbitrary_text(), arbitrary_text(), 0..4)) {
        let body = BodySpec {
            argument: "v".into(),
            required: true,
            media_type: "application/x-www-form-urlencoded".into(),
            content: BodyEncoding::Urlencoded,
            fields: Default::default(),
        };
        let operation = Operation { body: Some(body), ..operation("/t", vec![]) };
        let value = Value::Object(properties.iter().map(|(name, text)| (name.clone(), json!(text))).collect());
        let bytes = prepare_if_valid(&operation, &value).unwrap().body.unwrap().bytes;
        let arrived: std::collections::HashMap<String, String> =
            url::form_urlencoded::parse(&bytes).into_owned().collect();
        prop_assert_eq!(arrived, properties);
    }

    #[test]
    fn part_names_contain_no_line_breaks_or_quotes(name in arbitrary_text(), filename in arbitrary_text()) {
        let body = BodySpec {
            argument: "v".into(),
            required: true,
            media_type: "multipart/form-data".into(),
            content: BodyEncoding::Multipart,
            fields: [(name.clone(), toolcrib_core::execution::BodyField { binary: true, ..Default::default() })].into(),
        };
        let operation = Operation { body: Some(body), ..operation("/t", vec![]) };
        let value = json!({ name: {"name": filename, "base64": ""} });
        let bytes = prepare_if_valid(&operation, &value).unwrap().body.unwrap().bytes;
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.split("\r\n").collect();
        prop_assert_eq!(lines.len(), 7);
        prop_assert_eq!(lines[1].matches('"').count(), 4);
        prop_assert_eq!(lines[2], "Content-Type: application/octet-stream");
        prop_assert!(!lines[1].contains(['\r', '\n']));
    }
}
