use std::sync::Arc;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::catalog::{Caller, Catalog, Manner, Part, Segment};
use crate::fingerprint::Fingerprint;
use crate::inventory::{Origin, SourceState, ToolState};
use crate::manifest::{Bounds, Manifest, Packed};
use crate::policy::{Rule, Rules, Verdict};

struct Offered {
    source: &'static str,
    tools: Vec<Value>,
    tags: &'static [&'static str],
    hidden: &'static [&'static str],
    disabled: &'static [&'static str],
}

fn source(source: &'static str, tools: &[(&str, &str)]) -> Offered {
    let tools = tools.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    Offered { source, tools, tags: &[], hidden: &[], disabled: &[] }
}

fn part(offered: Offered) -> Arc<Part> {
    let id = SourceId::parse(offered.source).unwrap();
    let raw: Vec<_> = offered.tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let manifest = Manifest::new(&id, &raw, Vec::new(), &Bounds::default());
    let packed = Packed::new(&manifest).unwrap();
    let disabled = |name: &str| ToolState { disabled: offered.disabled.contains(&name), ..ToolState::default() };
    let state = SourceState {
        kind: "mcp".into(),
        origin: Origin::Config,
        definition: Fingerprint::of("x"),
        declared_enabled: None,
        enabled: true,
        removed: false,
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), disabled(&tool.name))).collect(),
    };
    let hide = |name: &&str| Rule { glob: (*name).into(), verdict: Verdict::Hide };
    let manner = Manner {
        kind: "mcp".into(),
        rules: Rules::new(offered.hidden.iter().map(hide).collect()),
        tags: offered.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..Manner::default()
    };
    Arc::new(Part::new(Arc::new(Segment::prefixed(Arc::new(packed))), Arc::new(state), manner))
}

fn view(offered: Vec<Offered>) -> View {
    let catalog = Catalog::build(1, offered.into_iter().map(part).collect());
    View { catalog: Arc::new(catalog), caller: Caller { name: "test".into() } }
}

fn workshop() -> View {
    view(vec![
        source(
            "github",
            &[
                ("create_issue", "Create a new issue in a GitHub repository."),
                ("list_issues", "List issues in a GitHub repository with filters."),
                ("merge_pull_request", "Merge a pull request."),
            ],
        ),
        source(
            "mail",
            &[
                ("send_email", "Send an email to one or more recipients."),
                ("search_messages", "Search the mailbox for messages."),
            ],
        ),
        source("weather", &[("forecast", "Weather forecast for a city: temperature, rain and wind.")]),
    ])
}

/// The names found, the best first.
fn names(view: &View, query: &Query) -> Vec<String> {
    view.search(query).hits.iter().map(|hit| hit.name.to_string()).collect()
}

fn check(view: &View, text: &str, first: &[&str]) {
    let found = names(view, &Query::new(text));
    assert_eq!(found.iter().take(first.len()).collect::<Vec<_>>(), first, "{text}");
}

#[test]
fn what_a_tool_is_for_finds_it() {
    let view = workshop();
    check(&view, "open a new issue", &["github__create_issue"]);
    check(&view, "will it rain in Paris?", &["weather__forecast"]);
    check(&view, "sending emails", &["mail__send_email"]);
}

#[test]
fn a_name_that_was_asked_for_comes_first_in_every_spelling() {
    let view = workshop();
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
    let view = workshop();
    for text in ["", "   ", "\u{0}\u{1b}[31m", "qwxyzzy", "🦀", &"zq ".repeat(1_000_000)] {
        let found = view.search(&Query::new(text));
        assert_eq!(found.hits, [], "{text:.20}");
        assert_eq!(found.total, 0);
        assert!(found.hint.is_some());
    }
}

#[test]
fn a_limit_of_none_is_all() {
    let view = workshop();
    let query = Query::new("issue repository email message pull");
    assert_eq!(names(&view, &query.clone().limited(2)).len(), 2);
    let found = view.search(&query.limited(0));
    assert_eq!(found.hits.len(), 5);
    assert_eq!(found.total, 5);
}

#[test]
fn only_one_source_or_tag_is_searched_if_wished() {
    let view = view(vec![
        Offered { tags: &["work"], ..source("a", &[("send", "Send a thing")]) },
        source("b", &[("send", "Send another thing")]),
    ]);
    let in_source = Query { source: SourceId::parse("b").ok(), ..Query::new("send thing") };
    assert_eq!(names(&view, &in_source), ["b__send"]);
    let in_tag = Query { tag: Some("work".into()), ..Query::new("send thing") };
    assert_eq!(names(&view, &in_tag), ["a__send"]);
    let nowhere = Query { tag: Some("play".into()), ..Query::new("send thing") };
    let found = view.search(&nowhere);
    assert_eq!((found.hits.len(), found.hint.unwrap().contains("`play`")), (0, true));
}

#[test]
fn what_is_hidden_or_disabled_is_not_found() {
    let tools = [("push", "Push commits"), ("pull", "Pull commits"), ("fetch", "Fetch commits")];
    let view = view(vec![Offered { hidden: &["push"], disabled: &["pull"], ..source("git", &tools) }]);
    assert_eq!(names(&view, &Query::new("git push pull fetch commits")), ["git__fetch"]);
    assert_eq!(names(&view, &Query::new("git__push")), ["git__fetch"]);
}
