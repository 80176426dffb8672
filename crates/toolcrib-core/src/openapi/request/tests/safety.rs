//! Whatever an agent gives: the request goes to the document's origin and place, with the headers and parameters that the
//! document has, or nowhere.

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use url::Url;

use super::*;
use crate::execution::{Body, Content};

/// Texts with everything that means something somewhere.
fn text() -> impl Strategy<Value = String> {
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

fn value() -> impl Strategy<Value = Value> {
    let single = prop_oneof![
        4 => text().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    single.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            hash_map(text(), inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_form() -> impl Strategy<Value = Form> {
    let styles = vec![
        Style::Simple,
        Style::Label,
        Style::Matrix,
        Style::Form,
        Style::SpaceDelimited,
        Style::PipeDelimited,
        Style::TabDelimited,
        Style::DeepObject,
        Style::Cookie,
    ];
    prop_oneof![
        8 => (proptest::sample::select(styles), any::<bool>(), any::<bool>())
            .prop_map(|(style, explode, allow_reserved)| Form::Style { style, explode, allow_reserved }),
        1 => Just(content("application/json")),
        1 => Just(content("text/plain")),
        1 => Just(content("application/x-www-form-urlencoded")),
    ]
}

fn accepted(operation: &Operation, value: &Value) -> Option<Prepared> {
    prepared(operation, json!({ "v": value })).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_value_in_the_path_stays_in_its_segment(form in any_form(), value in value()) {
        let operation = operation("/t/{v}/x?f=1", vec![parameter("v", Place::Path, form)]);
        if let Some(prepared) = accepted(&operation, &value) {
            let url = Url::parse(&prepared.url).unwrap();
            prop_assert_eq!(url.origin().ascii_serialization(), "http://h");
            prop_assert!(url.username().is_empty() && url.password().is_none());
            let segments: Vec<&str> = url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 4);
            prop_assert_eq!((segments[0], segments[1], segments[3]), ("api", "t", "x"));
            prop_assert!(!segments[2].is_empty());
            prop_assert_eq!(url.query(), Some("f=1"));
            prop_assert_eq!(url.fragment(), None);
            // Parsing takes nothing away and adds nothing.
            prop_assert_eq!(url.as_str(), prepared.url.as_str());
        }
    }

    #[test]
    fn two_values_in_one_segment_do_not_climb_together(one in text(), other in text()) {
        let parameters = ["a", "b"].map(|name| parameter(name, Place::Path, reserved(Style::Simple, false)));
        let operation = operation("/t/{a}{b}/x", parameters.to_vec());
        if let Ok(prepared) = prepared(&operation, json!({"a": one, "b": other})) {
            prop_assert_eq!(Url::parse(&prepared.url).unwrap().path_segments().unwrap().count(), 4);
        }
    }

    #[test]
    fn a_value_in_the_query_stays_in_its_parameter(form in any_form(), value in value()) {
        let explodes_objects = matches!(&form, Form::Style { explode: true, .. }) && value.is_object();
        let after = Parameter { argument: "after".into(), ..parameter("last", Place::Query, style(Style::Form, true)) };
        let operation = operation("/t?f=1", vec![parameter("v", Place::Query, form), after]);
        if let Ok(prepared) = prepared(&operation, json!({"v": value, "after": 2})) {
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
    fn a_plain_value_arrives_as_it_was_given(text in text()) {
        let operation = operation("/t", vec![parameter("v", Place::Query, style(Style::Form, true))]);
        let url = Url::parse(&accepted(&operation, &json!(text)).unwrap().url).unwrap();
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        prop_assert_eq!(pairs, [("v".to_owned(), text)]);
    }

    #[test]
    fn a_header_or_cookie_is_one_and_without_line_breaks(form in any_form(), value in value()) {
        let explodes = matches!(&form, Form::Style { explode: true, .. } | Form::Style { style: Style::DeepObject, .. });
        let parameters = [Place::Header, Place::Cookie].map(|place| parameter("v", place, form.clone()));
        if let Some(prepared) = accepted(&operation("/t", parameters.to_vec()), &value) {
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
    fn a_form_arrives_as_it_was_given(properties in hash_map(text(), text(), 0..4)) {
        let body = Body {
            argument: "v".into(),
            required: true,
            media_type: "application/x-www-form-urlencoded".into(),
            content: Content::Urlencoded,
            fields: Default::default(),
        };
        let operation = Operation { body: Some(body), ..operation("/t", vec![]) };
        let value = Value::Object(properties.iter().map(|(name, text)| (name.clone(), json!(text))).collect());
        let bytes = accepted(&operation, &value).unwrap().body.unwrap().bytes;
        let arrived: std::collections::HashMap<String, String> =
            url::form_urlencoded::parse(&bytes).into_owned().collect();
        prop_assert_eq!(arrived, properties);
    }

    #[test]
    fn names_of_parts_end_no_line_and_no_quotes(name in text(), filename in text()) {
        let body = Body {
            argument: "v".into(),
            required: true,
            media_type: "multipart/form-data".into(),
            content: Content::Multipart,
            fields: [(name.clone(), crate::execution::Field { binary: true, ..Default::default() })].into(),
        };
        let operation = Operation { body: Some(body), ..operation("/t", vec![]) };
        let value = json!({ name: {"name": filename, "base64": ""} });
        let bytes = accepted(&operation, &value).unwrap().body.unwrap().bytes;
        let text = String::from_utf8(bytes).unwrap();
        let lines: Vec<&str> = text.split("\r\n").collect();
        prop_assert_eq!(lines.len(), 7);
        prop_assert_eq!(lines[1].matches('"').count(), 4);
        prop_assert_eq!(lines[2], "Content-Type: application/octet-stream");
        prop_assert!(!lines[1].contains(['\r', '\n']));
    }
}
