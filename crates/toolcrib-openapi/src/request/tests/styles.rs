//! The table of styles of the specification, and the empty values of RFC 6570.

use super::*;

fn example_values() -> [Value; 4] {
    [json!(null), json!("blue"), json!(["blue", "black", "brown"]), json!({"R": 100, "G": 200, "B": 150})]
}

fn empty_values() -> [Value; 5] {
    [json!(""), json!([]), json!({}), json!([null]), json!({"a": null})]
}

/// Returns the query with this parameter alone, or `-` without a query.
fn in_query(serialization: &Serialization, value: Value) -> String {
    let operation = operation("/t", vec![parameter("color", ParameterLocation::Query, serialization.clone())]);
    let url = url(&operation, json!({ "color": value }));
    url.strip_prefix("/t").unwrap().strip_prefix('?').unwrap_or("-").to_owned()
}

fn in_path(serialization: &Serialization, value: Value) -> String {
    let operation = operation("/{color}", vec![parameter("color", ParameterLocation::Path, serialization.clone())]);
    url(&operation, json!({ "color": value })).trim_start_matches('/').to_owned()
}

fn in_header(serialization: &Serialization, value: Value) -> String {
    let operation = operation("/t", vec![parameter("color", ParameterLocation::Header, serialization.clone())]);
    let headers = prepare_json(&operation, json!({ "color": value })).unwrap().headers;
    headers.into_iter().find(|(name, _)| name == "color").map_or("-".to_owned(), |(_, value)| value)
}

fn in_cookie(serialization: &Serialization, value: Value) -> String {
    let operation = operation("/t", vec![parameter("color", ParameterLocation::Cookie, serialization.clone())]);
    let cookies = prepare_json(&operation, json!({ "color": value })).unwrap().cookies;
    let cookies: Vec<String> = cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    if cookies.is_empty() { "-".to_owned() } else { cookies.join("; ") }
}

#[test]
fn the_table_of_the_specification_holds_for_queries() {
    let exploded = ["-", "color=blue", "color=blue&color=black&color=brown", "R=100&G=200&B=150"];
    let rows = [
        (
            with_style(ParameterStyle::Form, false),
            ["-", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"],
        ),
        (with_style(ParameterStyle::Form, true), exploded),
        (
            with_style(ParameterStyle::SpaceDelimited, false),
            ["-", "color=blue", "color=blue%20black%20brown", "color=R%20100%20G%20200%20B%20150"],
        ),
        (with_style(ParameterStyle::SpaceDelimited, true), exploded),
        (
            with_style(ParameterStyle::PipeDelimited, false),
            ["-", "color=blue", "color=blue%7Cblack%7Cbrown", "color=R%7C100%7CG%7C200%7CB%7C150"],
        ),
        (with_style(ParameterStyle::PipeDelimited, true), exploded),
        (
            with_style(ParameterStyle::TabDelimited, false),
            ["-", "color=blue", "color=blue%09black%09brown", "color=R%09100%09G%09200%09B%09150"],
        ),
        (with_style(ParameterStyle::TabDelimited, true), exploded),
        (
            with_style(ParameterStyle::DeepObject, true),
            [
                "-",
                "color=blue",
                "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown",
                "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150",
            ],
        ),
        (
            with_style(ParameterStyle::DeepObject, false),
            [
                "-",
                "color=blue",
                "color%5B%5D=blue&color%5B%5D=black&color%5B%5D=brown",
                "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150",
            ],
        ),
    ];
    for (serialization, expected) in rows {
        assert_eq!(example_values().map(|value| in_query(&serialization, value)), expected, "{serialization:?}");
        assert_eq!(
            empty_values().map(|value| in_query(&serialization, value)),
            ["color=", "-", "-", "-", "-"],
            "{serialization:?}"
        );
    }
}

#[test]
fn the_table_of_the_specification_holds_for_paths() {
    let empty = "refused: argument `color` is part of a path and must not be empty";
    let rows = [
        (
            with_style(ParameterStyle::Matrix, false),
            ";color=blue",
            ";color=blue,black,brown",
            ";color=R,100,G,200,B,150",
        ),
        (
            with_style(ParameterStyle::Matrix, true),
            ";color=blue",
            ";color=blue;color=black;color=brown",
            ";R=100;G=200;B=150",
        ),
        (with_style(ParameterStyle::Label, false), ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
        (with_style(ParameterStyle::Label, true), ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
        (with_style(ParameterStyle::Simple, false), "blue", "blue,black,brown", "R,100,G,200,B,150"),
        (with_style(ParameterStyle::Simple, true), "blue", "blue,black,brown", "R=100,G=200,B=150"),
        // Swagger 2.0 allows these in paths too.
        (
            with_style(ParameterStyle::SpaceDelimited, false),
            "blue",
            "blue%20black%20brown",
            "R%20100%20G%20200%20B%20150",
        ),
        (
            with_style(ParameterStyle::PipeDelimited, false),
            "blue",
            "blue%7Cblack%7Cbrown",
            "R%7C100%7CG%7C200%7CB%7C150",
        ),
        (
            with_style(ParameterStyle::TabDelimited, false),
            "blue",
            "blue%09black%09brown",
            "R%09100%09G%09200%09B%09150",
        ),
    ];
    for (serialization, string, array, object) in rows {
        assert_eq!(
            example_values().map(|value| in_path(&serialization, value)),
            [empty, string, array, object],
            "{serialization:?}"
        );
        let no_text = if string.starts_with(';') { ";color" } else { empty };
        assert_eq!(
            empty_values().map(|value| in_path(&serialization, value)),
            [no_text, empty, empty, empty, empty],
            "{serialization:?}"
        );
    }
}

#[test]
fn the_table_of_the_specification_holds_for_headers() {
    let rows = [
        (with_style(ParameterStyle::Simple, false), ["-", "blue", "blue,black,brown", "R,100,G,200,B,150"]),
        (with_style(ParameterStyle::Simple, true), ["-", "blue", "blue,black,brown", "R=100,G=200,B=150"]),
        (with_style(ParameterStyle::SpaceDelimited, false), ["-", "blue", "blue black brown", "R 100 G 200 B 150"]),
        (with_style(ParameterStyle::PipeDelimited, false), ["-", "blue", "blue|black|brown", "R|100|G|200|B|150"]),
        (
            with_style(ParameterStyle::TabDelimited, false),
            ["-", "blue", "blue\tblack\tbrown", "R\t100\tG\t200\tB\t150"],
        ),
    ];
    for (serialization, expected) in rows {
        assert_eq!(example_values().map(|value| in_header(&serialization, value)), expected, "{serialization:?}");
        assert_eq!(
            empty_values().map(|value| in_header(&serialization, value)),
            ["", "-", "-", "-", "-"],
            "{serialization:?}"
        );
    }
}

#[test]
fn the_table_of_the_specification_holds_for_cookies() {
    let exploded = ["-", "color=blue", "color=blue; color=black; color=brown", "R=100; G=200; B=150"];
    let joined = ["-", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"];
    let rows = [
        (with_style(ParameterStyle::Form, true), exploded),
        (with_style(ParameterStyle::Form, false), joined),
        (with_style(ParameterStyle::Cookie, true), exploded),
        (with_style(ParameterStyle::Cookie, false), joined),
    ];
    for (serialization, expected) in rows {
        assert_eq!(example_values().map(|value| in_cookie(&serialization, value)), expected, "{serialization:?}");
        assert_eq!(
            empty_values().map(|value| in_cookie(&serialization, value)),
            ["color=", "-", "-", "-", "-"],
            "{serialization:?}"
        );
    }
}

#[test]
fn a_delimiter_within_an_item_is_escaped() {
    let items = json!(["a,b", "c|d", "e f", "g;h"]);
    let rows = [
        (with_style(ParameterStyle::Form, false), "color=a%2Cb,c%7Cd,e%20f,g%3Bh"),
        (with_style(ParameterStyle::PipeDelimited, false), "color=a%2Cb|c%7Cd|e%20f|g%3Bh"),
        // Ambiguous, as the specification notes.
        (with_style(ParameterStyle::SpaceDelimited, false), "color=a%2Cb%20c%7Cd%20e%20f%20g%3Bh"),
        (with_reserved(ParameterStyle::Form, false), "color=a%2Cb,c%7Cd,e%20f,g;h"),
        (with_style(ParameterStyle::Form, true), "color=a%2Cb&color=c%7Cd&color=e%20f&color=g%3Bh"),
    ];
    for (serialization, expected) in rows {
        assert_eq!(in_query(&serialization, items.clone()), expected, "{serialization:?}");
    }
    let rows = [
        (with_style(ParameterStyle::Simple, false), "a%2Cb,c%7Cd,e%20f,g%3Bh"),
        (with_style(ParameterStyle::Matrix, true), ";color=a%2Cb;color=c%7Cd;color=e%20f;color=g%3Bh"),
        (with_reserved(ParameterStyle::Simple, true), "a%2Cb,c%7Cd,e%20f,g;h"),
        (with_reserved(ParameterStyle::Matrix, false), ";color=a%2Cb,c%7Cd,e%20f,g%3Bh"),
        (with_reserved(ParameterStyle::Matrix, true), ";color=a,b;color=c%7Cd;color=e%20f;color=g%3Bh"),
    ];
    for (serialization, expected) in rows {
        assert_eq!(in_path(&serialization, items.clone()), expected, "{serialization:?}");
    }
}

#[test]
fn reserved_characters_are_kept_where_allowed() {
    let text = json!("a/b:c@d?e=f+g%2Fh%zz&i#j é");
    assert_eq!(
        in_query(&with_reserved(ParameterStyle::Form, true), text.clone()),
        "color=a/b:c@d?e=f%2Bg%2Fh%25zz%26i%23j%20%C3%A9"
    );
    assert_eq!(
        in_path(&with_reserved(ParameterStyle::Simple, false), text.clone()),
        "a%2Fb:c@d%3Fe=f+g%2Fh%25zz&i%23j%20%C3%A9"
    );
    assert_eq!(in_cookie(&with_reserved(ParameterStyle::Form, true), json!("a/b;c,d e")), "color=a/b%3Bc%2Cd%20e");
    let formulas = json!({"a": "x%2By", "b": "x/y", "c": "x^y"});
    assert_eq!(in_query(&with_reserved(ParameterStyle::Form, true), formulas), "a=x%2By&b=x/y&c=x%5Ey");
    assert_eq!(in_query(&with_reserved(ParameterStyle::DeepObject, true), json!({"a": "x/y"})), "color%5Ba%5D=x/y");
}

#[test]
fn the_examples_of_the_specification_hold() {
    assert_eq!(
        in_query(&with_style(ParameterStyle::Form, true), json!({"a": "x+y", "b": "x/y", "c": "x^y"})),
        "a=x%2By&b=x%2Fy&c=x%5Ey"
    );
    assert_eq!(in_path(&with_style(ParameterStyle::Simple, false), json!("diṅnāga")), "di%E1%B9%85n%C4%81ga");
    assert_eq!(in_cookie(&with_style(ParameterStyle::Form, true), json!("Hello, world!")), "color=Hello%2C%20world%21");
    assert_eq!(
        in_cookie(&with_style(ParameterStyle::Cookie, true), json!({"greeting": "Hello%2C%20world!", "code": 42})),
        "greeting=Hello%2C%20world!; code=42"
    );
    let coordinates = json!({"lat": 40.6, "long": -73.9});
    assert_eq!(
        in_query(&with_content("application/json"), coordinates),
        "color=%7B%22lat%22%3A40.6%2C%22long%22%3A-73.9%7D"
    );
    let love = operation("/t", vec![parameter("❤️", ParameterLocation::Query, with_style(ParameterStyle::Form, true))]);
    assert_eq!(url(&love, json!({"❤️": "love!"})), "/t?%E2%9D%A4%EF%B8%8F=love%21");
}

#[test]
fn numbers_are_json_and_integers_are_digits() {
    let cases = [
        (json!(1), "1"),
        (json!(1.0), "1"),
        (json!(-25e21), "-25000000000000000000000"),
        (json!(1.5), "1.5"),
        (json!(0.25), "0.25"),
        (json!(-3), "-3"),
        (json!(9_007_199_254_740_993_u64), "9007199254740993"),
        (json!(true), "true"),
        (json!(false), "false"),
        (json!("1.0"), "1.0"),
        (json!("null"), "null"),
    ];
    for (value, expected) in cases {
        assert_eq!(in_query(&with_style(ParameterStyle::Form, true), value.clone()), format!("color={expected}"));
        assert_eq!(in_path(&with_style(ParameterStyle::Simple, false), value.clone()), expected);
        assert_eq!(in_header(&with_style(ParameterStyle::Simple, false), value), expected);
    }
}

#[test]
fn deeper_nesting_is_preserved() {
    let deep = with_style(ParameterStyle::DeepObject, true);
    let cases = [
        (json!({"a": {"b": 1, "c": {"d": null, "e": "x"}}}), "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bc%5D%5Be%5D=x"),
        (json!({"tags": ["a", "b"]}), "color%5Btags%5D%5B%5D=a&color%5Btags%5D%5B%5D=b"),
        (json!({"items": [{"p": 1}, {"p": 2}]}), "color%5Bitems%5D%5B0%5D%5Bp%5D=1&color%5Bitems%5D%5B1%5D%5Bp%5D=2"),
        (json!([{"p": 1}]), "color%5B0%5D%5Bp%5D=1"),
        (json!({"a b&c": "d=e"}), "color%5Ba%20b%26c%5D=d%3De"),
    ];
    for (value, expected) in cases {
        assert_eq!(in_query(&deep, value), expected);
    }
    let serialization = with_style(ParameterStyle::Form, true);
    assert_eq!(
        in_query(&serialization, json!({"tags": ["a", null, "b"], "o": {"k": 1}})),
        "tags=a&tags=b&o=%7B%22k%22%3A1%7D"
    );
    assert_eq!(in_query(&serialization, json!([{"k": 1}, [2]])), "color=%7B%22k%22%3A1%7D&color=%5B2%5D");
    assert_eq!(in_query(&serialization, json!([1, null, 2])), "color=1&color=2");
    assert_eq!(in_query(&serialization, json!(["", "a"])), "color=&color=a");
    assert_eq!(in_query(&with_style(ParameterStyle::Form, false), json!([""])), "color=");
    assert_eq!(in_path(&with_style(ParameterStyle::Matrix, true), json!(["", "a"])), ";color;color=a");
    assert_eq!(in_path(&with_style(ParameterStyle::Matrix, true), json!({"k": ""})), ";k");
    assert_eq!(in_path(&with_style(ParameterStyle::Simple, true), json!({"k": ""})), "k=");
}
