//! Locations of parameters: base and path, fixed queries, templates, content, and absent or rejected arguments.

use super::*;

fn simple_style() -> Serialization {
    with_style(ParameterStyle::Simple, false)
}

fn form_style() -> Serialization {
    with_style(ParameterStyle::Form, true)
}

fn path_parameter(name: &str) -> OperationParameter {
    parameter(name, ParameterLocation::Path, simple_style())
}

fn query_parameter(name: &str) -> OperationParameter {
    parameter(name, ParameterLocation::Query, form_style())
}

#[test]
fn base_and_path_are_joined_by_one_slash() {
    let cases = [
        ("http://h/api/", "/t", "http://h/api/t"),
        ("http://h/api", "/t", "http://h/api/t"),
        ("http://h", "/t", "http://h/t"),
        ("http://h/", "/t", "http://h/t"),
        ("http://h/", "t", "http://h/t"),
        ("http://h/api", "/", "http://h/api/"),
        ("http://h/api", "/t/", "http://h/api/t/"),
        ("http://h/api?v=1", "/t", "http://h/api/t?v=1"),
        ("http://h?v=1", "/t", "http://h/t?v=1"),
        ("http://h/api?v=1#x", "/t?action=list#y", "http://h/api/t?v=1&action=list"),
        ("http://h/a b", "/c d/é", "http://h/a%20b/c%20d/%C3%A9"),
        ("http://h:8080/a%20b", "/c:d;e=f,g/@me", "http://h:8080/a%20b/c:d;e=f,g/@me"),
        ("http://h", "/../t", "http://h/../t"),
        ("http://h", "/t?", "http://h/t"),
    ];
    for (base, path, expected) in cases {
        let prepared = prepare(&operation(path, vec![]), base, &Map::new(), "").unwrap();
        assert_eq!(prepared.url, expected);
    }
    for base in ["", "/api", "http://"] {
        let error = prepare(&operation("/t", vec![]), base, &Map::new(), "").unwrap_err();
        assert_eq!((error.code, error.is_retryable()), (Code::ToolUnavailable, false), "{base}");
    }
}

#[test]
fn templates_may_be_anywhere_in_a_path() {
    let parameters = vec![path_parameter("a"), path_parameter("b"), query_parameter("q")];
    let cases = [
        ("/t/{a}...{b}.json", "/t/x%2Fy...z.json"),
        ("/{a}{b}", "/x%2Fyz"),
        ("/{a}:cancel/{b}", "/x%2Fy:cancel/z"),
        ("/t/{a}#{b}", "/t/x%2Fy"),
        ("/t?a={a}&fixed", "/t?a=x%2Fy&fixed"),
        ("/t?action=list&q={q}", "/t?action=list"),
        ("/t/{", "/t/%7B"),
        ("/t/}", "/t/%7D"),
        ("/t/{a}/{a}", "/t/x%2Fy/x%2Fy"),
        (
            "/t/{c}",
            "refused: the path `/t/{c}` has `{c}`, for which the document declares no parameter; its author must add one",
        ),
        (
            "/t/{q}",
            "refused: the path `/t/{q}` has `{q}`, for which the document declares no parameter; its author must add one",
        ),
    ];
    for (template, expected) in cases {
        assert_eq!(url(&operation(template, parameters.clone()), json!({"a": "x/y", "b": "z"})), expected);
    }
    let fixed_query = operation("/t?action=list", parameters);
    assert_eq!(url(&fixed_query, json!({"a": "x", "b": "y", "q": "1"})), "/t?action=list&q=1");
}

#[test]
fn no_value_leads_to_a_parent_directory() {
    let label = || parameter("v", ParameterLocation::Path, with_style(ParameterStyle::Label, true));
    let matrix = || parameter("v", ParameterLocation::Path, with_style(ParameterStyle::Matrix, false));
    let reserved = || parameter("v", ParameterLocation::Path, with_reserved(ParameterStyle::Simple, false));
    let dots = "refused: argument `v` is part of a path and must not make it `.` or `..`";
    let parent = "refused: argument `v` is part of a path and must not have `..` between slashes, also percent-encoded";
    let cases = [
        ("/t/{v}/x", path_parameter("v"), json!(".."), dots),
        ("/t/{v}/x", path_parameter("v"), json!("."), dots),
        ("/t/{v}/x", path_parameter("v"), json!([".."]), dots),
        ("/t/.{v}/x", path_parameter("v"), json!("."), dots),
        ("/t/{v}/x", label(), json!("."), dots),
        ("/t/{v}/x", label(), json!(["", ""]), dots),
        ("/t/{v}/x", matrix(), json!(".."), dots),
        ("/t/{v}/x", reserved(), json!("%2e%2E"), dots),
        ("/t/{v}/x", reserved(), json!(".%2e"), dots),
        ("/t/{v}/x", reserved(), json!("../.."), parent),
        ("/t/{v}/x", reserved(), json!("..%2fx"), parent),
        ("/t/{v}/x", reserved(), json!("%2e%2e%5cx"), parent),
        ("/t/{v}/x", reserved(), json!("%c0%ae%c0%ae%c0%afx"), parent),
        ("/t/{v}/x", reserved(), json!("%252e%252e"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("%2e%2e"), parent),
        ("/t/{v}/x", path_parameter("v"), json!(".%2E"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("%2e."), parent),
        ("/t/{v}/x", path_parameter("v"), json!("../../x"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("a/../x"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("a/.."), parent),
        ("/t/{v}/x", path_parameter("v"), json!("a/%2e%2e/x"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("a%2f..%2fx"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("..\\x"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("..%5Cx"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("..;a=b/x"), parent),
        ("/t/{v}/x", path_parameter("v"), json!("..\0"), parent),
        ("/t/{v}/x", path_parameter("v"), json!(["a", "../x"]), "/t/a,..%2Fx/x"),
        ("/t/{v}/x", path_parameter("v"), json!("%252e%252e"), "/t/%25252e%25252e/x"),
        ("/t/{v}/x", path_parameter("v"), json!("a..b/c..d"), "/t/a..b%2Fc..d/x"),
        ("/t/{v}/x", path_parameter("v"), json!("a/.../b"), "/t/a%2F...%2Fb/x"),
        ("/t/{v}/x", path_parameter("v"), json!("100%"), "/t/100%25/x"),
        ("/t/{v}/x", path_parameter("v"), json!("..."), "/t/.../x"),
        ("/t/{v}/x", path_parameter("v"), json!(".a"), "/t/.a/x"),
        ("/t/{v}.json", path_parameter("v"), json!("a"), "/t/a.json"),
        ("/t/{v}/x", path_parameter("v"), json!("a\tb\r\nc\0"), "/t/a%09b%0D%0Ac%00/x"),
    ];
    for (template, parameter, value, expected) in cases {
        assert_eq!(url(&operation(template, vec![parameter]), json!({ "v": value })), expected);
    }
    let two = operation(
        "/t/{a}{b}",
        vec![parameter("a", ParameterLocation::Path, with_style(ParameterStyle::Label, false)), path_parameter("b")],
    );
    assert!(url(&two, json!({"a": "x", "b": ".."})).starts_with("refused"));
}

#[test]
fn absent_arguments_are_omitted_unless_required() {
    let mut required = query_parameter("r");
    required.required = true;
    let mut header = parameter("X-H", ParameterLocation::Header, simple_style());
    header.required = true;
    let optional =
        operation("/t", vec![query_parameter("q"), parameter("X-O", ParameterLocation::Header, simple_style())]);
    assert_eq!(url(&optional, json!({})), "/t");
    assert_eq!(url(&optional, json!({"q": null, "X-O": null})), "/t");
    assert_eq!(prepare_json(&optional, json!({"X-O": null})).unwrap().headers.len(), 1);

    assert_eq!(url(&operation("/t", vec![query_parameter("q"), required.clone()]), json!({"r": "1"})), "/t?r=1");
    assert_eq!(
        url(&operation("/t", vec![required.clone()]), json!({})),
        "refused: argument `r` is required; give it a value"
    );
    assert_eq!(url(&operation("/t", vec![required]), json!({"r": null})), "/t?r=");
    assert_eq!(
        url(&operation("/t", vec![header.clone()]), json!({})),
        "refused: argument `X-H` is required; give it a value"
    );
    let headers = prepare_json(&operation("/t", vec![header]), json!({"X-H": null})).unwrap().headers;
    assert_eq!(headers[1], ("X-H".to_owned(), String::new()));
    assert!(url(&operation("/{v}", vec![path_parameter("v")]), json!({})).starts_with("refused: argument `v`"));
}

#[test]
fn required_values_must_not_serialize_to_nothing() {
    let empty = "refused: argument `v` is required and must not be empty, since an empty value would not be sent";
    for location in [ParameterLocation::Query, ParameterLocation::Cookie] {
        for serialization in
            [form_style(), with_style(ParameterStyle::Form, false), with_style(ParameterStyle::DeepObject, true)]
        {
            let required = OperationParameter { required: true, ..parameter("v", location, serialization) };
            for value in [json!([]), json!({}), json!([null])] {
                assert_eq!(url(&operation("/t", vec![required.clone()]), json!({ "v": value })), empty, "{required:?}");
            }
        }
    }
}

#[test]
fn an_argument_has_its_own_name_on_the_wire() {
    let wire = OperationParameter { argument: "id__query".into(), ..query_parameter("page[size]") };
    assert_eq!(url(&operation("/t", vec![wire.clone()]), json!({"id__query": 5})), "/t?page%5Bsize%5D=5");
    let missing = OperationParameter { required: true, ..wire };
    assert!(url(&operation("/t", vec![missing]), json!({})).contains("`id__query`"));
}

#[test]
fn content_is_serialized_and_then_encoded_for_its_location() {
    let json_in = |location| parameter("v", location, with_content("application/json"));
    let value = json!({"v": {"a": [1, "x y"]}});
    let encoded = "%7B%22a%22%3A%5B1%2C%22x%20y%22%5D%7D";
    assert_eq!(
        url(&operation("/t", vec![json_in(ParameterLocation::Query)]), value.clone()),
        format!("/t?v={encoded}")
    );
    assert_eq!(url(&operation("/{v}", vec![json_in(ParameterLocation::Path)]), value.clone()), format!("/{encoded}"));
    let elsewhere = operation("/t", vec![json_in(ParameterLocation::Header), json_in(ParameterLocation::Cookie)]);
    let prepared = prepare_json(&elsewhere, value).unwrap();
    assert_eq!(prepared.headers[1].1, r#"{"a":[1,"x y"]}"#);
    assert_eq!(prepared.cookies, [("v".to_owned(), encoded.to_owned())]);

    let cases = [
        ("application/json", json!("a"), "v=%22a%22"),
        ("application/vnd.x+json", json!("a"), "v=%22a%22"),
        ("text/plain", json!("a b"), "v=a%20b"),
        ("text/plain", json!(5), "v=5"),
        ("application/x-www-form-urlencoded", json!({"a": 1, "b": "x y"}), "v=a%3D1%26b%3Dx%2520y"),
    ];
    for (media_type, value, expected) in cases {
        let operation = operation("/t", vec![parameter("v", ParameterLocation::Query, with_content(media_type))]);
        assert_eq!(url(&operation, json!({ "v": value })), format!("/t?{expected}"));
    }
}

#[test]
fn one_value_can_be_the_whole_query() {
    let cases = [
        ("application/x-www-form-urlencoded", json!({"foo": "a + b", "bar": true}), "/t?foo=a%20%2B%20b&bar=true"),
        ("application/x-www-form-urlencoded", json!({"a": [1, 2], "o": {"k": 1}}), "/t?a=1&a=2&o=%7B%22k%22%3A1%7D"),
        ("application/x-www-form-urlencoded", json!("a=1&b=x y#z"), "/t?a=1&b=x%20y%23z"),
        ("application/x-www-form-urlencoded", json!({}), "/t"),
        ("text/plain", json!("a[0]=1&a[1]=%20"), "/t?a[0]=1&a[1]=%20"),
        (
            "application/json",
            json!({"numbers": [1, 2], "flag": null}),
            "/t?%7B%22numbers%22%3A%5B1%2C2%5D%2C%22flag%22%3Anull%7D",
        ),
        ("application/jsonpath", json!("$.a.b[1:1]"), "/t?%24.a.b%5B1%3A1%5D"),
        (
            "application/x-www-form-urlencoded",
            json!([1]),
            "refused: argument `v` is sent as a form and must be an object",
        ),
    ];
    for (media_type, value, expected) in cases {
        let operation = operation("/t", vec![parameter("v", ParameterLocation::Querystring, with_content(media_type))]);
        assert_eq!(url(&operation, json!({ "v": value })), expected);
    }
}

#[test]
fn a_header_stays_one_header() {
    let header = |name: &str| {
        operation(
            "/t",
            vec![OperationParameter {
                argument: "v".into(),
                ..parameter(name, ParameterLocation::Header, simple_style())
            }],
        )
    };
    for value in
        [json!("a\r\nX-Evil: 1"), json!("a\nb"), json!("a\0"), json!(["a", "\r"]), json!({"k\n": 1}), json!("\u{7f}")]
    {
        let error = url(&header("X-Req"), json!({ "v": value }));
        assert_eq!(
            error,
            "refused: argument `v` is sent in a header and must not have line breaks or other control characters"
        );
    }
    for value in [json!(" "), json!(" a"), json!("a\t"), json!(["a", "b "])] {
        let error = url(&header("X-Req"), json!({ "v": value }));
        let reason = "is sent in a header and must not begin or end with a space, which servers trim";
        assert_eq!(error, format!("refused: argument `v` {reason}"));
    }
    let value = |name: &str, value: Value| prepare_json(&header(name), json!({ "v": value })).unwrap().headers;
    // Values are neither quoted nor encoded.
    assert_eq!(value("X-Req", json!("a, b=\"c\" %41\té"))[1].1, "a, b=\"c\" %41\té");
    assert_eq!(value("X-Req", json!(["a,b", "c"]))[1].1, "a,b,c");
    // The HTTP client sets these headers.
    for name in ["Host", "content-length", "Transfer-Encoding", "Connection"] {
        assert_eq!(value(name, json!("1")).len(), 1);
    }
    assert!(url(&header("X Bad"), json!({"v": 1})).starts_with("refused: argument `v`"));
}

#[test]
fn a_whole_query_may_be_a_long_integer() {
    const DIGITS: &str = "123456789012345678901234567890";
    let long = toolcrib_core::json::parse_integer(DIGITS).unwrap();
    for (media_type, expected) in [
        ("text/plain", format!("/t?{DIGITS}")),
        ("application/json", format!("/t?{DIGITS}")),
        (
            "application/x-www-form-urlencoded",
            "refused: argument `v` is sent as a form and must be an object".to_owned(),
        ),
    ] {
        let operation = operation("/t", vec![parameter("v", ParameterLocation::Querystring, with_content(media_type))]);
        assert_eq!(url(&operation, json!({ "v": long })), expected, "{media_type}");
    }
}

#[test]
fn a_cookie_stays_one_cookie() {
    let cookie =
        |serialization: Serialization| operation("/t", vec![parameter("v", ParameterLocation::Cookie, serialization)]);
    let unescaped = cookie(with_style(ParameterStyle::Cookie, true));
    for value in [json!("a; b=1"), json!("a\r\n"), json!("\0"), json!({"a=b": 1}), json!({"a;": 1}), json!({"": 1})] {
        assert!(url(&unescaped, json!({ "v": value })).starts_with("refused: argument `v`"), "{value}");
    }
    let encoded = prepare_json(&cookie(form_style()), json!({"v": "a; b=1\r\n"})).unwrap().cookies;
    assert_eq!(encoded, [("v".to_owned(), "a%3B%20b%3D1%0D%0A".to_owned())]);
    let encoded = prepare_json(&cookie(form_style()), json!({"v": {"a; b": 1}})).unwrap().cookies;
    assert_eq!(encoded, [("a%3B%20b".to_owned(), "1".to_owned())]);
}

#[test]
fn no_small_argument_makes_a_huge_request() {
    let many: Vec<Value> = (0..20_000).map(Value::from).collect();
    let long = "k".repeat(60_000);
    let exploded = operation("/t", vec![query_parameter("q")]);
    assert!(url(&exploded, json!({"q": { long.clone(): many.clone() }})).contains("too large"));
    let deep =
        operation("/t", vec![parameter("q", ParameterLocation::Query, with_style(ParameterStyle::DeepObject, true))]);
    assert!(url(&deep, json!({"q": { long.clone(): many }})).contains("too large"));
    let nothing: Map<String, Value> = (0..20_000).map(|index| (index.to_string(), json!({}))).collect();
    assert!(url(&deep, json!({"q": { long.clone(): nothing }})).contains("too large"));
    let nulls = vec![Value::Null; 1_000_000];
    assert!(url(&deep, json!({"q": { long: nulls }})).contains("too large"));
    assert!(url(&exploded, json!({"q": "x".repeat(65_000)})).len() > 65_000);
    assert!(url(&exploded, json!({"q": "é".repeat(65_000)})).contains("too large"));
    let two = operation("/{a}/{b}", vec![path_parameter("a"), path_parameter("b")]);
    assert!(url(&two, json!({"a": "x".repeat(40_000), "b": "x".repeat(40_000)})).contains("65534"));
}

#[test]
fn method_and_accept_are_set() {
    let operation = Operation { method: "DELETE".into(), accept: vec!["text/csv".into()], ..operation("/t", vec![]) };
    let prepared = prepare_json(&operation, json!({})).unwrap();
    assert_eq!(prepared.method, "DELETE");
    assert_eq!(prepared.headers, [("Accept".to_owned(), "text/csv, */*;q=0.1".to_owned())]);
    assert_eq!(prepared.body, None);
}
