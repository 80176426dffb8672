use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::catalog::{Caller, Catalog, CatalogSource, Segment, SourceOptions};
use crate::fingerprint::Fingerprint;
use crate::inventory::{Origin, SourceState, ToolState};
use crate::manifest::{Manifest, PackedManifest, ToolLimits};
use crate::policy::{Rule, Rules, Verdict};

struct TestSource {
    source: &'static str,
    tools: Vec<Value>,
    tags: &'static [&'static str],
    hidden: &'static [&'static str],
    denied: &'static [&'static str],
    disabled: &'static [&'static str],
}

fn test_source(source: &'static str, tools: &[(&str, &str)]) -> TestSource {
    let tools = tools.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    TestSource { source, tools, tags: &[], hidden: &[], denied: &[], disabled: &[] }
}

fn build_source(offered: TestSource) -> Arc<CatalogSource> {
    let id = SourceId::parse(offered.source).unwrap();
    let raw: Vec<_> = offered.tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let manifest = Manifest::new(&id, &raw, Vec::new(), &ToolLimits::default());
    let packed = PackedManifest::new(&manifest).unwrap();
    let disabled = |name: &str| ToolState { disabled: offered.disabled.contains(&name), ..ToolState::default() };
    let state = SourceState {
        kind: "mcp".into(),
        origin: Origin::Config,
        definition: Fingerprint::digest("x"),
        declared_enabled: None,
        enabled: true,
        removed: false,
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), disabled(&tool.name))).collect(),
    };
    let ruled = |names: &[&str], verdict| -> Vec<Rule> {
        names.iter().map(|name| Rule { glob: (*name).into(), verdict }).collect()
    };
    let rules = [ruled(offered.hidden, Verdict::Hide), ruled(offered.denied, Verdict::Deny)];
    let manner = SourceOptions {
        kind: "mcp".into(),
        rules: Rules::new(rules.concat()),
        tags: offered.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..SourceOptions::default()
    };
    Arc::new(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), Arc::new(state), manner))
}

fn build_view(offered: Vec<TestSource>) -> View {
    let catalog = Catalog::build(1, offered.into_iter().map(build_source).collect());
    View { catalog: Arc::new(catalog), caller: Caller { name: "test".into() } }
}

fn sample_view() -> View {
    build_view(vec![
        test_source(
            "github",
            &[
                ("create_issue", "Create a new issue in a GitHub repository."),
                ("list_issues", "List issues in a GitHub repository with filters."),
                ("merge_pull_request", "Merge a pull request."),
            ],
        ),
        test_source(
            "mail",
            &[
                ("send_email", "Send an email to one or more recipients."),
                ("search_messages", "Search the mailbox for messages."),
            ],
        ),
        test_source("weather", &[("forecast", "Weather forecast for a city: temperature, rain and wind.")]),
    ])
}

/// The names found, the best first.
fn found_names(view: &View, query: &Query) -> Vec<String> {
    view.search(query).hits.iter().map(|hit| hit.name.to_string()).collect()
}

fn check(view: &View, text: &str, first: &[&str]) {
    let found = found_names(view, &Query::new(text));
    assert_eq!(found.iter().take(first.len()).collect::<Vec<_>>(), first, "{text}");
}

#[test]
fn what_a_tool_is_for_finds_it() {
    let view = sample_view();
    check(&view, "open a new issue", &["github__create_issue"]);
    check(&view, "will it rain in Paris?", &["weather__forecast"]);
    check(&view, "sending emails", &["mail__send_email"]);
}

#[test]
fn a_name_that_was_asked_for_comes_first_in_every_spelling() {
    let view = sample_view();
    for text in [
        "github__list_issues",
        "github/list_issues",
        "github:list_issues",
        "list_issues",
        "list issues",
        "listIssues",
        "LIST-ISSUES",
    ] {
        check(&view, text, &["github__list_issues"]);
    }
}

#[test]
fn nothing_found_comes_with_a_hint() {
    let view = sample_view();
    for text in ["", "   ", "\u{0}\u{1b}[31m", "qwxyzzy", "🦀", &"zq ".repeat(1_000_000)] {
        let found = view.search(&Query::new(text));
        assert_eq!(found.hits, [], "{text:.20}");
        assert_eq!(found.total, 0);
        let hint = found.hint.unwrap();
        assert!(hint.starts_with("no tool matches; try other words"), "{hint}");
    }
}

#[test]
fn a_limit_of_none_is_all() {
    let view = sample_view();
    let query = Query::new("issue repository email message pull");
    assert_eq!(found_names(&view, &query.clone().with_limit(2)).len(), 2);
    let found = view.search(&query.with_limit(0));
    assert_eq!(found.hits.len(), 5);
    assert_eq!(found.total, 5);
}

#[test]
fn only_one_source_or_tag_is_searched_if_wished() {
    let view = build_view(vec![
        TestSource { tags: &["work"], ..test_source("a", &[("send", "Send a thing")]) },
        test_source("b", &[("send", "Send another thing")]),
    ]);
    let in_source = Query { source: SourceId::parse("b").ok(), ..Query::new("send thing") };
    assert_eq!(found_names(&view, &in_source), ["b__send"]);
    let in_tag = Query { tag: Some("work".into()), ..Query::new("send thing") };
    assert_eq!(found_names(&view, &in_tag), ["a__send"]);
    let nowhere = Query { tag: Some("play".into()), ..Query::new("send thing") };
    let found = view.search(&nowhere);
    assert_eq!((found.hits.len(), found.hint.unwrap().contains("`play`")), (0, true));
}

#[test]
fn the_tags_of_a_source_are_searched() {
    let view = build_view(vec![
        TestSource { tags: &["bookkeeping"], ..test_source("a", &[("list", "List entries")]) },
        test_source("b", &[("list", "List entries")]),
    ]);
    check(&view, "list bookkeeping entries", &["a__list", "b__list"]);
    assert_eq!(found_names(&view, &Query::new("bookkeeping")), ["a__list"]);
}

#[test]
fn what_is_hidden_denied_or_disabled_is_not_found() {
    let tools =
        [("push", "Push commits"), ("pull", "Pull commits"), ("fetch", "Fetch commits"), ("reset", "Reset commits")];
    let git = TestSource { hidden: &["push"], denied: &["res*"], disabled: &["pull"], ..test_source("git", &tools) };
    let view = build_view(vec![git]);
    let found = view.search(&Query::new("git push pull fetch reset commits"));
    assert_eq!((found.hits[0].name.as_str(), found.hits.len(), found.total), ("git__fetch", 1, 1));
    for name in ["git__push", "git__reset", "git__rseet", "git/pull"] {
        assert_eq!(found_names(&view, &Query::new(name)), ["git__fetch"], "{name}");
    }
    assert_eq!(found_names(&view, &Query::new("reset")), [""; 0]);
}

#[test]
fn a_name_is_found_in_a_sentence_in_other_forms_and_with_slips() {
    let view = sample_view();
    check(&view, "please use `list_issues` on my weather forecast repository", &["github__list_issues"]);
    check(&view, "list issue", &["github__list_issues"]);
    for slip in ["lst_issues", "list_isues", "lits issues", "github__list_isseus", "merge_pul_reqest"] {
        let first = if slip.starts_with("merge") { "github__merge_pull_request" } else { "github__list_issues" };
        check(&view, slip, &[first]);
    }
}

#[test]
fn a_name_with_hyphens_is_found_in_a_sentence_before_its_siblings() {
    let siblings = [
        ("get-engagement", "Purpose: read one engagement"),
        ("update-engagement", "Use this tool to update an engagement with the engagement tool"),
        ("create-calendar", "A calendar"),
        ("create-calendar-event", "Create a calendar event now, please"),
    ];
    let view = build_view(vec![test_source("crm", &siblings)]);
    check(&view, "Use the `get-engagement` tool.", &["crm__get-engagement"]);
    check(&view, "please use create-calendar now", &["crm__create-calendar"]);
    let view = self::build_view(vec![
        test_source("a", &[("list_groups", "Groups")]),
        test_source("b", &[("list-groups", "Groups")]),
    ]);
    check(&view, "list_groups()", &["a__list_groups"]);
    check(&view, "list-groups()", &["b__list-groups"]);
}

#[test]
fn the_very_name_goes_before_other_spellings_of_it() {
    let view = build_view(vec![
        test_source("a", &[("getFile", "Get a file"), ("get_file", "Get a file")]),
        test_source("b", &[("get-file", "Get a file")]),
    ]);
    for name in ["a__getFile", "a__get_file", "b__get-file"] {
        check(&view, name, &[name]);
    }
    check(&view, "get_file", &["a__get_file"]);
    check(&view, "getFile", &["a__getFile"]);
}

#[test]
fn a_name_that_was_cut_is_found_by_either() {
    let long = "create_a_reply_to_all_".repeat(3);
    let view =
        build_view(vec![test_source("mail", &[(&format!("{long}draft"), "Draft"), (&format!("{long}now"), "Send")])]);
    let draft = view.catalog.find(&format!("mail/{long}draft")).unwrap().name().to_string();
    assert_eq!(draft.len(), 64);
    let bare = draft.trim_start_matches("mail__").to_owned();
    for asked in [&draft, &bare, &format!("mail/{long}draft"), &format!("{long}draft")] {
        check(&view, asked, &[&draft]);
    }
}

#[test]
fn words_that_mean_nearly_the_same_are_found() {
    let view = sample_view();
    check(&view, "ticket in my repo", &["github__create_issue"]);
    check(&view, "do I need an umbrella?", &["weather__forecast"]);
}

#[test]
fn a_single_word_is_found_inside_of_others_and_ranks_below() {
    let view = build_view(vec![
        test_source("a", &[("screenshot", "Capture the page."), ("shot", "Fire a shot.")]),
        test_source("b", &[("other", "Nothing to see.")]),
    ]);
    assert_eq!(found_names(&view, &Query::new("shot")), ["a__shot", "a__screenshot"]);
    assert_eq!(found_names(&view, &Query::new("creensh")), ["a__screenshot"]);
    assert_eq!(found_names(&view, &Query::new("aptur")), ["a__screenshot"]);
}

#[test]
fn a_word_with_a_slip_is_found() {
    check(&sample_view(), "wether forcast", &["weather__forecast"]);
    check(&sample_view(), "send an emial", &["mail__send_email"]);
    let view = build_view(vec![test_source("s", &[("find", "Поиск файлов"), ("list", "Список файлов")])]);
    check(&view, "поисск", &["s__find"]);
}

#[test]
fn a_name_of_marks_alone_is_not_what_a_query_of_marks_asks_for() {
    let long = "x".repeat(60);
    let view = build_view(vec![test_source("s", &[("!!!", "Shouts"), ("🦀", "A crab"), (&long, "Long")])]);
    for text in ["", "...", "?!", "🦀🦀"] {
        assert_eq!(found_names(&view, &Query::new(text)), Vec::<String>::new(), "{text}");
    }
    check(&view, "shouts", &["s_____"]);
}

#[test]
fn one_sign_is_a_word() {
    let view = build_view(vec![test_source("s", &[("search", "关键词搜索"), ("other", "其他")])]);
    check(&view, "词", &["s__search"]);
}

#[test]
fn copies_of_one_tool_share_a_line_unless_its_name_was_asked_for() {
    let described = ("create_issue", "Create a new issue in a repository, with a title, a body and labels.");
    let other = ("create_issue", "Opens a case for the legal department.");
    let view =
        build_view(vec![test_source("a", &[described]), test_source("b", &[described]), test_source("c", &[other])]);
    let found = view.search(&Query::new("new issue with labels in a repository"));
    let lines: Vec<String> = found.hits.iter().map(|hit| format!("{} {:?}", hit.name, hit.also.len())).collect();
    assert_eq!(lines, ["a__create_issue 1", "c__create_issue 0"]);
    assert!(found.hits[0].to_line().ends_with("(also: b__create_issue)"));
    assert_eq!(found.total, 3);
    for name in ["create_issue", "create issue", "create_isssue"] {
        assert_eq!(found_names(&view, &Query::new(name)).len(), 3, "{name}");
    }
    // Other forms of the words, and words that mean nearly the same, are no name.
    for words in ["creating issues", "create ticket", "new tickets"] {
        assert_eq!(found_names(&view, &Query::new(words)), ["a__create_issue", "c__create_issue"], "{words}");
    }
    assert_eq!(found_names(&view, &Query::new("b__create_issue")).first().map(String::as_str), Some("b__create_issue"));
}

#[test]
fn thousands_of_tools_with_one_name_are_all_found() {
    // Names of which nothing but the letters is the same once they are squashed.
    let spelled = |index: usize| -> String {
        let letters = "searchtheweb".chars().enumerate();
        letters.map(|(at, letter)| if index >> at & 1 == 1 { format!("{letter}_") } else { letter.into() }).collect()
    };
    let tools: Vec<(String, &str)> = (0..2_048).map(|index| (spelled(index), "Search.")).collect();
    let tools: Vec<(&str, &str)> = tools.iter().map(|(name, said)| (name.as_str(), *said)).collect();
    let view = build_view(vec![test_source("a", &tools)]);
    let found = view.search(&Query::new("searchtheweb"));
    assert_eq!(found.total, 2_048);
    let found = view.search(&Query::new("search_the_web ".repeat(1_000)));
    assert_eq!(found.total, 2_048);
}

#[test]
fn arguments_and_other_scripts_are_searched() {
    let tools = vec![
        json!({"name": "x", "description": "一个中文必应搜索工具"}),
        json!({"name": "y", "inputSchema": {"type": "object", "properties": {
            "colour": {"type": "string", "enum": ["crimson"], "description": "Shade of the paint"}}}}),
        json!({"name": "z", "description": "Поиск файлов"}),
    ];
    let view = build_view(vec![TestSource { tools, ..test_source("s", &[]) }]);
    check(&view, "必应搜索", &["s__x"]);
    check(&view, "crimson", &["s__y"]);
    check(&view, "paint", &["s__y"]);
    check(&view, "поиск", &["s__z"]);
}

#[test]
fn a_hit_is_one_short_line() {
    let properties: serde_json::Map<String, Value> =
        (0..40).map(|number| (format!("argument_number_{number}"), json!({"type": "string"}))).collect();
    let schema = json!({"type": "object", "required": ["argument_number_39"], "properties": properties});
    let tools = vec![json!({"name": "big", "description": "Big word ".repeat(100), "inputSchema": schema})];
    let view = build_view(vec![TestSource { tools, ..test_source("s", &[]) }]);
    let line = view.search(&Query::new("big")).hits[0].to_line();
    assert!(line.starts_with("s__big(argument_number_39*: string, argument_number_0: string, "), "{line}");
    assert!(line.chars().count() < 260 && line.contains(", …+3") && line.ends_with(" Big word…"), "{line}");
}

proptest! {
    /// Whatever is asked, there is an answer, in order, within the limit, and the same one again.
    #[test]
    fn any_query_is_answered(text in "\\PC{0,80}|[a-z_ ]{0,60}|[\u{0}-\u{1f}github_issue ]{0,40}", limit in 0_usize..4) {
        let view = sample_view();
        let query = Query::new(text).with_limit(limit);
        let found = view.search(&query);
        prop_assert!(limit == 0 || found.hits.len() <= limit);
        prop_assert!(found.hits.len() <= found.total);
        prop_assert_eq!(found.hint.is_some(), found.hits.is_empty());
        prop_assert!(found.hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        prop_assert!(found.hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
        prop_assert_eq!(view.search(&query), found);
    }
}

#[cfg(feature = "embeddings")]
#[test]
fn what_means_the_same_is_found_without_a_word_in_common() {
    let tokenizer = r#"{"model":{"type":"WordPiece","vocab":{"drizzle":0,"forecast":1,"mail":2,"issue":3}}}"#;
    let values: [f32; 8] = [1.0, 0.0, 1.0, 0.1, 0.0, 1.0, 0.0, 1.0];
    let header = r#"{"embeddings":{"dtype":"F32","shape":[4,2],"data_offsets":[0,32]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values.map(f32::to_le_bytes).concat()];
    let vectors = Arc::new(embeddings::EmbeddingModel::parse(&file.concat(), tokenizer).unwrap());
    let many: Vec<(String, String)> = (0..30).map(|number| (format!("mail_{number}"), "An issue".to_owned())).collect();
    let mut tools: Vec<(&str, &str)> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    tools.push(("outlook", "A forecast"));
    let (view, elsewhere) = (build_view(vec![test_source("s", &tools)]), sample_view());
    let query = Query::new("drizzle");
    let meanings = embeddings::ToolEmbeddings::build(&view, vectors);
    assert_eq!(view.search(&query).hits, []);
    assert_eq!(view.search_with_embeddings(&query, &meanings).hits[0].name.as_str(), "s__outlook");
    assert_eq!(elsewhere.search_with_embeddings(&query, &meanings).hits, []);
}
