use super::*;

fn parse_set(tools: &str, queries: &str) -> Result<LabelledSet> {
    LabelledSet::parse(NamedText { name: "t.jsonl", text: tools }, NamedText { name: "q.jsonl", text: queries })
}

fn mean_ndcg(set: &LabelledSet) -> f64 {
    let mut scores = Scores::default();
    for query in &set.queries {
        set.score(query, &set.search(query, 10), &mut scores);
    }
    scores.means().get("ndcg@10").unwrap()
}

#[test]
fn unusual_sets_are_parsed() {
    let long = "very_long_name_".repeat(8);
    let tools = [
        r#"{"id":"a","server":"My Server!","name":"send_mail","description":"Send a mail"}"#,
        // A duplicate name, and a server whose name gives the same source id.
        r#"{"id":"a2","server":"My Server!","name":"send_mail","description":"Send a letter"}"#,
        r#"{"id":"b","server":"my-server","name":"send_mail","input_schema":{"$ref":"http://elsewhere/x"}}"#,
        r#"{"id":"c","name":"搜索","description":"搜索网页"}"#,
        &format!(r#"{{"id":"d","server":"search_tools","name":"{long}","description":"Nothing like it"}}"#),
        "",
    ];
    let queries = [
        r#"{"id":"1","query":"send a letter","relevant":["a2"]}"#,
        r#"{"query":"搜索","groups":[["c","gone"]],"relevant":["c"]}"#,
        &format!(r#"{{"query":"{long}","relevant":["d"]}}"#),
    ];
    let set = parse_set(&tools.join("\n"), &queries.join("\n")).unwrap();
    assert_eq!(set.view.offered_tools().count(), 5);
    assert_eq!(set.unknown_ids, ["gone"]);
    assert_eq!(mean_ndcg(&set), 1.0);
}

#[test]
fn errors_name_file_and_line() {
    let tool = r#"{"id":"a","name":"x"}"#;
    let query = r#"{"id":7,"query":"x","relevant":["a"]}"#;
    for (tools, queries, expected) in [
        ("{\"id\":1}", "", "t.jsonl:1: "),
        (tool, "\n\nnonsense", "q.jsonl:3: expected"),
        (tool, r#"{"query":"x","relevant":[]}"#, "q.jsonl:1: the query names no relevant tool"),
        (tool, "{\"relevant\":[]}", "q.jsonl:1: missing field `query`"),
        ("", "", "`t.jsonl` is empty"),
        (&format!("{tool}\n\n{tool}"), query, "t.jsonl:3: the id `a` already occurs on line 1"),
        (tool, &format!("{query}\n{query}"), "q.jsonl:2: the id `7` already occurs on line 1"),
        (tool, r#"{"query":"x","relevant":["a","a"]}"#, "q.jsonl:1: the id `a` occurs twice"),
    ] {
        let error = parse_set(tools, queries).unwrap_err();
        assert!(error.message.starts_with(expected), "{}", error.message);
        assert_eq!(error.code, Code::BadRequest);
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let tool = r#"{"id":"a","name":"x"}"#;
    let query = r#"{"query":"x","relevant":["a"]}"#;
    let set = parse_set(&format!("\u{feff}{tool}"), &format!("\u{feff}{query}\r\n")).unwrap();
    assert_eq!(mean_ndcg(&set), 1.0);
}
