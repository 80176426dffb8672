use super::*;

/// Formats the tree with the line of each value: `{key@1=text@1}`.
fn format_tree(node: &ConfigNode) -> String {
    let value = match &node.value {
        NodeValue::Null => "null".to_owned(),
        NodeValue::Bool(flag, spelling) => format!("{flag}({spelling})"),
        NodeValue::Number(number) => format!("#{number}"),
        NodeValue::Text(text) => format!("{text:?}"),
        NodeValue::List(items) => format!("[{}]", items.iter().map(format_tree).collect::<Vec<_>>().join(" ")),
        NodeValue::Map(entries) => {
            let entry = |entry: &NodeEntry| format!("{}@{}={}", entry.key, entry.line, format_tree(&entry.node));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(" "))
        }
    };
    format!("{value}@{}", node.line)
}

fn check(syntax: Syntax, text: &str, expected: &str) {
    let actual = match parse(text, "f", syntax) {
        Ok(node) => format_tree(&node),
        Err(errors) => errors.iter().map(ConfigDiagnostic::to_string).collect::<Vec<_>>().join("\n"),
    };
    assert_eq!(actual, expected, "{text}");
}

#[test]
fn yaml_keeps_lines_and_spellings() {
    let yaml = |text, expected| check(Syntax::Yaml, text, expected);
    yaml("", "null@1");
    yaml("# nothing\n", "null@1");
    yaml("\u{feff}a: 1", "{a@1=#1@1}@1");
    yaml("a:\n  b: [x,\n    1.10]\nc: \"2\"", "{a@1={b@2=[\"x\"@2 #1.10@3]@2}@2 c@4=\"2\"@4}@1");
    yaml("[no, Yes, ~, null, '', !!str 5]", "[false(no)@1 true(Yes)@1 null@1 null@1 \"\"@1 \"5\"@1]@1");
    yaml(
        "[0x1F, 1e3, -.5, .inf, inf, 1.2.3, 12ab]",
        "[#0x1F@1 #1e3@1 #-.5@1 \".inf\"@1 \"inf\"@1 \"1.2.3\"@1 \"12ab\"@1]@1",
    );
    yaml("no: 1\n5: 2", "{no@1=#1@1 5@2=#2@2}@1");
}

#[test]
fn yaml_aliases_and_merges_are_resolved_and_bounded() {
    let yaml = |text: &str, expected| check(Syntax::Yaml, text, expected);
    yaml(
        "a: &x {b: 1}\nc: *x\nd: {<<: *x, b: 2, e: 3}\nf:\n  <<: [*x]",
        "{a@1={b@1=#1@1}@1 c@2={b@1=#1@1}@1 d@3={b@3=#2@3 e@3=#3@3}@3 f@4={b@1=#1@1}@5}@1",
    );
    yaml("a: *x", "f:1:4: while parsing node, found unknown anchor");
    yaml("a: &x [*x]", "f:1: an alias cannot refer to a node that contains it");
    yaml("<<: 5", "f:1: `<<` takes a map or a list of maps");
    let bomb = (1..40).fold("a0: &a0 [x, x, x, x]\n".to_owned(), |text, n| {
        let last = n - 1;
        text + &format!("a{n}: &a{n} [*a{last}, *a{last}, *a{last}, *a{last}]\n")
    });
    yaml(&bomb, "f:8: YAML aliases copy too much; write the values out");
    let tower =
        (1..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| text + &format!("a{n}: &a{n} [[[[*a{}]]]]\n", n - 1));
    yaml(&tower, "f:33: YAML aliases copy too much; write the values out");
}

#[test]
fn toml_keeps_lines_and_the_order_of_the_file() {
    check(
        Syntax::Toml,
        "z = 1_0\n[sources.files]\ncommand = 'npx'\nargs = [\n 'a',\n true]\n[sources.a]\nx = 2026-01-02\ny = 1.50\n",
        "{z@1=#10@1 sources@2={files@2={command@3=\"npx\"@3 args@4=[\"a\"@5 true(true)@6]@4}@2 \
         a@7={x@8=\"2026-01-02\"@8 y@9=#1.50@9}@7}@2}@1",
    );
    check(Syntax::Toml, "", "{}@1");
}

#[test]
fn json_may_have_comments_and_trailing_commas() {
    check(
        Syntax::Json,
        "// mine\n{\n  \"a\": [1.10, null,],\n  /* or\n     yours */ \"b\":\n {\"c\": \"\\u00e9\"},\n}",
        "{a@3=[#1.10@3 null@3]@3 b@5={c@6=\"é\"@6}@6}@2",
    );
    check(Syntax::Json, " \n", "null@1");
}

#[test]
fn duplicate_keys_are_reported_with_both_lines() {
    for (syntax, text, expected) in [
        (Syntax::Yaml, "a:\n  b: 1\n  c: 2\n  b: 3", "f:4: a: duplicate key `b`, first set in line 2; keep one"),
        (Syntax::Json, "{\"b\": 1,\n\"b\": 2}", "f:2: duplicate key `b`, first set in line 1; keep one"),
        (Syntax::Toml, "[t]\nb = 1\nc = 1\nb = 2", "f:4:1: duplicate key `b`, first set in line 2; keep one"),
        (Syntax::Toml, "[s.a]\n[s.b] # x\n[s.a] # y", "f:3:4: duplicate key `a`, first set in line 1; keep one"),
        (Syntax::Toml, "x = { b = 1, b = 2 }", "f:1:14: duplicate key `b`; keep one"),
    ] {
        check(syntax, text, expected);
    }
}

#[test]
fn syntax_errors_have_line_and_column() {
    let mut messages = Vec::new();
    for (syntax, text) in [
        (Syntax::Yaml, "a: [1, 2\nb: 3"),
        (Syntax::Yaml, "a: b: c"),
        (Syntax::Yaml, "a: 1\n\tb: 2"),
        (Syntax::Yaml, "a: 'x"),
        (Syntax::Yaml, "[a]: 1"),
        (Syntax::Yaml, "a: 1\n---\nb: 2"),
        (Syntax::Toml, "a = \n"),
        (Syntax::Toml, "[a\nb = 1"),
        (Syntax::Toml, "a = 'x"),
        (Syntax::Json, "{\"a\": 1\n \"b\": 2}"),
        (Syntax::Json, "{\"a\": "),
        (Syntax::Json, "{a: 1}"),
        (Syntax::Json, "{} {}"),
    ] {
        messages.extend(parse(text, "f", syntax).unwrap_err().iter().map(ConfigDiagnostic::to_string));
    }
    insta::assert_snapshot!(messages.join("\n"), @r"
    f:2:2: illegal placement of ':' indicator
    f:1:5: mapping values are not allowed in this context
    f:1:4: while scanning a plain scalar, found a tab
    f:1:4: unclosed quote
    f:1: expected text as a key, found a list or a map
    f:2: a second document begins here; only one is read
    f:1:5: string values must be quoted, expected literal string
    f:1:3: unclosed table, expected `]`
    f:1:7: invalid literal string, expected `'`
    f:1:8: expected comma
    f:1:7: expected value after colon in object property
    f:1:2: expected string for object property
    f:1:4: text cannot contain more than one JSON value
    ");
}

#[test]
fn files_that_are_too_large_or_too_deep_are_rejected() {
    check(Syntax::Json, &" ".repeat(MAX_FILE_BYTES + 1), "f:1: the file is larger than 16 MiB");
    check(Syntax::Json, &("[".repeat(200) + &"]".repeat(200)), "f:1:1: nested too deep");
    check(Syntax::Yaml, &("[".repeat(200) + &"]".repeat(200)), "f:1: nested too deep");
    for (syntax, start) in [(Syntax::Yaml, "a: "), (Syntax::Toml, "a = "), (Syntax::Json, "")] {
        assert!(parse(&(start.to_owned() + &"[".repeat(100_000)), "f", syntax).is_err());
    }
}
