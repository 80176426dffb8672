use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::{Origin, SourceState, ToolState};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::policy::{Rule, Rules, Verdict};

use super::*;
use crate::{Catalog, CatalogSource, Segment, SourceOptions};

mod similarity;

struct TestSource {
    source: &'static str,
    kind: &'static str,
    tools: Vec<Value>,
    tags: &'static [&'static str],
    hidden: &'static [&'static str],
    denied: &'static [&'static str],
    disabled: &'static [&'static str],
}

fn test_source(source: &'static str, tools: &[(&str, &str)]) -> TestSource {
    let tools = tools.iter().map(|(name, description)| json!({"name": name, "description": description})).collect();
    TestSource { source, kind: "mcp", tools, tags: &[], hidden: &[], denied: &[], disabled: &[] }
}

fn build_source(source: TestSource) -> Arc<CatalogSource> {
    let id = SourceId::parse(source.source).unwrap();
    let raw: Vec<_> = source.tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let manifest = Manifest::new(&id, &raw, Vec::new(), &ToolLimits::default());
    let packed = PackedManifest::new(&manifest).unwrap();
    let disabled = |name: &str| ToolState { disabled: source.disabled.contains(&name), ..ToolState::default() };
    let state = SourceState {
        manifest: Some(packed.fingerprint),
        tools: packed.tools.iter().map(|tool| (tool.name.clone(), disabled(&tool.name))).collect(),
        ..SourceState::new("mcp", Origin::Config, Fingerprint::digest("x"), None)
    };
    let ruled = |names: &[&str], verdict| -> Vec<Rule> {
        names.iter().map(|name| Rule { glob: (*name).into(), verdict }).collect()
    };
    let rules = [ruled(source.hidden, Verdict::Hide), ruled(source.denied, Verdict::Deny)];
    let options = SourceOptions {
        kind: source.kind.into(),
        rules: Rules::new(rules.concat()),
        tags: source.tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..SourceOptions::default()
    };
    Arc::new(CatalogSource::new(Arc::new(Segment::with_prefix(Arc::new(packed))), Arc::new(state), options))
}

fn build_view(sources: Vec<TestSource>) -> View {
    let catalog = Catalog::build(1, sources.into_iter().map(build_source).collect());
    View::full(Arc::new(catalog))
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

/// Names of the hits, best first.
fn found_names(view: &View, query: &Query) -> Vec<String> {
    view.search(query).hits.iter().map(|hit| hit.name.to_string()).collect()
}

fn check(view: &View, text: &str, first: &[&str]) {
    let found = found_names(view, &Query::new(text));
    assert_eq!(found.iter().take(first.len()).collect::<Vec<_>>(), first, "{text}");
}

#[test]
fn a_tool_is_found_by_its_purpose() {
    let view = sample_view();
    check(&view, "open a new issue", &["github__create_issue"]);
    check(&view, "will it rain in Paris?", &["weather__forecast"]);
    check(&view, "sending emails", &["mail__send_email"]);
}

#[test]
fn a_named_tool_comes_first_in_every_spelling() {
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
fn no_results_come_with_a_hint() {
    let view = sample_view();
    for text in ["", "   ", "\u{0}\u{1b}[31m", "qwxyzzy", "🦀", &"zq ".repeat(1_000_000)] {
        let results = view.search(&Query::new(text));
        assert_eq!(results.hits, [], "{text:.20}");
        assert_eq!(results.total, 0);
        let hint = results.hint.unwrap();
        assert!(hint.starts_with("no tool matches; try other words"), "{hint}");
    }
}

#[test]
fn a_limit_of_zero_returns_all() {
    let view = sample_view();
    let query = Query::new("issue repository email message pull");
    assert_eq!(found_names(&view, &query.clone().with_limit(2)).len(), 2);
    let results = view.search(&query.with_limit(0));
    assert_eq!(results.hits.len(), 5);
    assert_eq!(results.total, 5);
}

#[test]
fn a_search_can_be_restricted_to_a_source_or_tag() {
    let view = build_view(vec![
        TestSource { tags: &["work"], ..test_source("a", &[("send", "Send a thing")]) },
        test_source("b", &[("send", "Send another thing")]),
    ]);
    let in_source = Query { source: SourceId::parse("b").ok(), ..Query::new("send thing") };
    assert_eq!(found_names(&view, &in_source), ["b__send"]);
    let in_tag = Query { tag: Some("work".into()), ..Query::new("send thing") };
    assert_eq!(found_names(&view, &in_tag), ["a__send"]);
    let operation = json!({"name": "send", "description": "Send a thing",
        "x-toolcrib-backing": {"execution": {"mode": "mcp_call"}, "tags": ["post"]}});
    let api = |kind| TestSource { kind, tools: vec![operation.clone()], ..test_source("api", &[]) };
    let in_tag = Query { tag: Some("post".into()), ..Query::new("send thing") };
    let other = || test_source("b", &[("send", "Send another thing")]);
    assert_eq!(found_names(&build_view(vec![api("openapi"), other()]), &in_tag), ["api__send"]);
    assert_eq!(found_names(&build_view(vec![api("mcp"), other()]), &in_tag), [""; 0], "a tag that a server claims");
    let unknown_tag = Query { tag: Some("play".into()), ..Query::new("send thing") };
    let results = view.search(&unknown_tag);
    assert_eq!((results.hits.len(), results.hint.unwrap().contains("`play`")), (0, true));
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
fn hidden_denied_and_disabled_tools_are_not_found() {
    let tools =
        [("push", "Push commits"), ("pull", "Pull commits"), ("fetch", "Fetch commits"), ("reset", "Reset commits")];
    let git = TestSource { hidden: &["push"], denied: &["res*"], disabled: &["pull"], ..test_source("git", &tools) };
    let view = build_view(vec![git]);
    let results = view.search(&Query::new("git push pull fetch reset commits"));
    assert_eq!((results.hits[0].name.as_str(), results.hits.len(), results.total), ("git__fetch", 1, 1));
    for name in ["git__push", "git__reset", "git__rseet", "git/pull"] {
        assert_eq!(found_names(&view, &Query::new(name)), ["git__fetch"], "{name}");
    }
    assert_eq!(found_names(&view, &Query::new("reset")), [""; 0]);
}

#[test]
fn tools_outside_the_view_do_not_affect_the_results() {
    let tools =
        [("wipe", "Wipe the shop"), ("list_orders", "Lists many orders of clients"), ("refund", "Refunds an order")];
    let other = || test_source("mail", &[("send", "Send a letter"), ("read", "Read a letter")]);
    let without = build_view(vec![test_source("shop", &tools[1..]), other()]);
    for hidden in [
        TestSource { hidden: &["wipe"], ..test_source("shop", &tools) },
        TestSource { denied: &["wipe"], ..test_source("shop", &tools) },
        TestSource { disabled: &["wipe"], ..test_source("shop", &tools) },
    ] {
        let view = build_view(vec![hidden, other()]);
        for text in ["shop__wipe", "wipe", "wipe an order", "wpie orders", "letter"] {
            assert_eq!(view.search(&Query::new(text)), without.search(&Query::new(text)), "{text}");
        }
    }
}

#[test]
fn a_name_is_found_in_a_sentence_inflected_and_misspelled() {
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
fn an_exact_name_ranks_before_other_spellings() {
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
fn a_shortened_name_is_found_by_both_forms() {
    let long = "create_a_reply_to_all_".repeat(3);
    let view =
        build_view(vec![test_source("mail", &[(&format!("{long}draft"), "Draft"), (&format!("{long}now"), "Send")])]);
    let draft = view.find(&format!("mail/{long}draft")).unwrap().name().to_string();
    assert_eq!(draft.len(), 64);
    let bare = draft.trim_start_matches("mail__").to_owned();
    for query in [&draft, &bare, &format!("mail/{long}draft"), &format!("{long}draft")] {
        check(&view, query, &[&draft]);
    }
}

#[test]
fn weak_matches_are_called_so() {
    let view = build_view(vec![
        test_source(
            "cli",
            &[
                (
                    "run_command",
                    "Allows execution of commands in a directory.\n\nAvailable commands: ls, cat, pwd. Flags: -l.",
                ),
                ("show_rules", "Show what commands are allowed."),
            ],
        ),
        test_source("github", &[("create_issue", "Create a new issue in a GitHub repository.")]),
        test_source("mail", &[("send_email", "Send an email to one or more recipients.")]),
    ]);
    let hint = |text: &str| view.search(&Query::new(text)).hint;
    assert_eq!(view.search(&Query::new("my cat is sick")).hits[0].name.as_str(), "cli__run_command");
    assert_eq!(hint("my cat is sick").as_deref(), Some("weak matches only"));
    for text in ["run a command", "create an issue in my repository", "send_email", "email Ann about lunch", "cat"] {
        assert_eq!(hint(text), None, "{text}");
    }
    // `planks` is near `plans`, which is a guess; `plnas` alone is a slip.
    let view = build_view(vec![test_source("planner", &[("list_plans", "List the plans of a team.")])]);
    for (text, expected) in [("water my planks", Some(WEAK_MATCHES_HINT)), ("list planks", None), ("plnas", None)] {
        assert_eq!(view.search(&Query::new(text)).hint.as_deref(), expected, "{text}");
    }
    assert!(hint("zebra").unwrap().starts_with("no tool matches"));
    // `movie` is an English word, and no slip of `move`.
    let view = build_view(vec![test_source("disk", &[("move_file", "Move a file.")])]);
    assert_eq!(found_names(&view, &Query::new("recommend a good movie")), [""; 0]);
    // One word of two: the other one is what the query is about.
    let others: Vec<(String, String)> = (0..30).map(|number| (format!("t{number}"), "Feed.".to_owned())).collect();
    let mut tools: Vec<(&str, &str)> = others.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    tools.push(("list_feeds", "List the feeds of a site."));
    let view = build_view(vec![test_source("web", &tools)]);
    let hint = |text: &str| view.search(&Query::new(text)).hint;
    assert_eq!(hint("feed the zebra").as_deref(), Some(WEAK_MATCHES_HINT));
    assert_eq!(hint("list the feeds"), None);
    // Unless the hit has a related word for the other one.
    let files = [("move_file", "Move or rename files."), ("list_files", "List files."), ("read_file", "Read a file.")];
    let view = build_view(vec![test_source("disk", &files)]);
    let hint = |text: &str| view.search(&Query::new(text)).hint;
    assert_eq!(hint("rename the zebra").as_deref(), Some(WEAK_MATCHES_HINT));
    assert_eq!(hint("rename a document"), None);
}

#[test]
fn slips_are_corrected_as_written_and_not_in_other_languages() {
    let view = build_view(vec![
        test_source("calendar", &[("list_events", "List the events of a calendar."), ("clear", "Clear everything.")]),
        test_source("dns", &[("list_domains", "List every domain."), ("archive", "Archive a date or a letter.")]),
    ]);
    check(&view, "calender evnts", &["calendar__list_events"]);
    check(&view, "calendr event", &["calendar__list_events"]);
    // `crear` is near `clear`, `demain` near `domain`, `datei` near `date`, `archivo` near `archive`.
    for text in ["crear evento", "demain", "météo demain", "datei suchen", "archivo"] {
        assert_eq!(found_names(&view, &Query::new(text)), [""; 0], "{text}");
    }
    // One word of another language, or one with an accent, does not make a query foreign.
    for text in ["EST calender evnts", "café calender evnts", "résumé calender", "wetter calender evnts"] {
        check(&view, text, &["calendar__list_events"]);
    }
}

#[test]
fn a_short_word_is_corrected_if_a_letter_is_missing_or_two_are_swapped() {
    let view = build_view(vec![
        test_source("github", &[("create_issue", "Create an issue."), ("list_events", "List every event.")]),
        test_source(
            "disk",
            &[("delete_file", "Delete a file."), ("send_email", "Send an email."), ("case", "A case.")],
        ),
    ]);
    check(&view, "isue", &["github__create_issue"]);
    check(&view, "crate an isue", &["github__create_issue"]);
    check(&view, "evnt", &["github__list_events"]);
    check(&view, "emal", &["disk__send_email"]);
    check(&view, "delet fiel", &["disk__delete_file"]);
    assert_eq!(found_names(&view, &Query::new("cake")), [""; 0]);
}

#[test]
fn a_word_of_another_language_does_not_match_by_its_english_stem() {
    let job = ("wait_for_job", "Wait for the terminal status of a job.");
    let view = build_view(vec![test_source("ci", &[job])]);
    for text in ["Termin", "Termin buchen", "Kalender Termine"] {
        assert_eq!(found_names(&view, &Query::new(text)), [""; 0], "{text}");
    }
    let view = build_view(vec![test_source("ci", &[job]), test_source("kalender", &[("neu", "Termine anlegen.")])]);
    check(&view, "Termine", &["kalender__neu"]);
}

#[test]
fn names_are_understood_as_clients_and_people_write_them() {
    let view = sample_view();
    for text in [
        "mcp__github__list_issues",
        "mcp__toolcrib__github__list_issues",
        "call mcp__github__list_issues now",
        "`github__list_issues` for the weather forecast",
        "`list_issues(state)`",
        "run `list issues` and send an email",
    ] {
        check(&view, text, &["github__list_issues"]);
    }
    check(&view, "send an email with the `forecast`", &["weather__forecast"]);
    check(&view, "mcp__unknown__tool", &[]);
    for text in
        ["mcp__github__list_isues", "github__list_isues please, and send an email", "call `list isues` for mail"]
    {
        let results = view.search(&Query::new(text));
        assert_eq!(results.hits[0].name.as_str(), "github__list_issues", "{text}");
        assert!(results.hits[0].score > 1000.0, "{text}");
    }
}

#[test]
fn a_stated_source_is_preferred() {
    let tools = [("create_ticket", "Create a ticket with a title."), ("search", "Search tickets.")];
    let view = build_view(["alpha", "jira", "my_desk"].map(|source| test_source(source, &tools)).into());
    for (text, source) in [
        ("search tickets in jira", "jira"),
        ("using jira, create a ticket", "jira"),
        ("search tickets from the my desk server", "my_desk"),
        ("create a ticket with a title on alpha", "alpha"),
        ("in jira, create a ticket", "jira"),
        ("jira: search tickets", "jira"),
    ] {
        let found = found_names(&view, &Query::new(text));
        assert!(found[0].starts_with(source), "{text}: {found:?}");
    }
    // `mcp` and `server` in an id only say what it is.
    let view = build_view(["alpha", "desk_mcp", "mcp_server_tracker"].map(|source| test_source(source, &tools)).into());
    for (text, source) in [
        ("search tickets with the tracker integration", "mcp_server_tracker"),
        ("search tickets in desk", "desk_mcp"),
        ("desk create ticket", "desk_mcp"),
        ("tracker__create_ticket", "mcp_server_tracker"),
    ] {
        let found = found_names(&view, &Query::new(text));
        assert!(found[0].starts_with(source), "{text}: {found:?}");
    }
}

#[test]
fn a_hit_that_only_a_related_word_explains_comes_last_and_is_not_counted() {
    let view = build_view(vec![
        test_source("weather", &[("forecast", "Weather forecast.")]),
        test_source(
            "shop",
            &[("list_items", "List items: hats, coats, shoes, bags, gloves, scarves, one umbrella, and more.")],
        ),
    ]);
    let results = view.search(&Query::new("umbrella"));
    let names: Vec<&str> = results.hits.iter().map(|hit| hit.name.as_str()).collect();
    assert_eq!((names, results.total, results.hint), (vec!["shop__list_items", "weather__forecast"], 1, None));
    let results = view.search(&Query { source: SourceId::parse("weather").ok(), ..Query::new("umbrella") });
    assert_eq!((results.hits.len(), results.total, results.hint.as_deref()), (1, 0, Some(WEAK_MATCHES_HINT)));
}

#[test]
fn a_question_prefers_tools_that_only_read() {
    let tools = [("archive_orders", "Orders."), ("list_orders", "Orders.")];
    let view = build_view(vec![test_source("shop", &tools)]);
    check(&view, "which orders are there?", &["shop__list_orders", "shop__archive_orders"]);
    check(&view, "orders", &["shop__archive_orders", "shop__list_orders"]);
    let hinted = vec![
        json!({"name": "a", "description": "Orders."}),
        json!({"name": "b", "description": "Orders.", "annotations": {"readOnlyHint": true}}),
    ];
    let view = build_view(vec![TestSource { tools: hinted, ..test_source("shop", &[]) }]);
    check(&view, "how many orders", &["shop__b", "shop__a"]);
}

#[test]
fn numbers_and_paths_do_not_outweigh_words() {
    let view = build_view(vec![
        test_source("a", &[("merge_files", "Merge documents of any kind into one.")]),
        test_source("b", &[("year_2026", "All of 2026."), ("data_srv", "All of srv.")]),
    ]);
    check(&view, "merge 2026", &["a__merge_files", "b__year_2026"]);
    check(&view, "merge ./srv", &["a__merge_files", "b__data_srv"]);
    check(&view, "2026", &["b__year_2026"]);
    let view = build_view(vec![
        test_source("tracker", &[("delete_issue", "Delete an issue."), ("create_note", "Create a note in an issue.")]),
        test_source("disk", &[("delete_file", "Delete a file."), ("read_text", "Read a text.")]),
        test_source("chat", &[("post", "Post a message to a channel of chat."), ("send_email", "Send an email.")]),
    ]);
    check(&view, "delete the file /home/user/issues/create/note.txt", &["disk__delete_file"]);
    check(&view, r"read C:\Users\bob\issue\note.md", &["disk__read_text"]);
    check(&view, "email bob@chat.com the report", &["chat__send_email"]);
}

#[test]
fn synonyms_are_found() {
    let view = sample_view();
    check(&view, "ticket in my repo", &["github__create_issue"]);
    check(&view, "do I need an umbrella?", &["weather__forecast"]);
}

#[test]
fn a_single_word_is_found_inside_others_and_ranks_below() {
    let view = build_view(vec![
        test_source("a", &[("screenshot", "Capture the page."), ("shot", "Fire a shot.")]),
        test_source("b", &[("other", "Nothing to see.")]),
    ]);
    assert_eq!(found_names(&view, &Query::new("shot")), ["a__shot", "a__screenshot"]);
    assert_eq!(found_names(&view, &Query::new("creensh")), ["a__screenshot"]);
    assert_eq!(found_names(&view, &Query::new("aptur")), ["a__screenshot"]);
}

#[test]
fn a_misspelled_word_is_found() {
    check(&sample_view(), "wether forcast", &["weather__forecast"]);
    check(&sample_view(), "send an emial", &["mail__send_email"]);
    let view = build_view(vec![test_source("s", &[("find", "Поиск файлов"), ("list", "Список файлов")])]);
    check(&view, "поисск", &["s__find"]);
}

#[test]
fn a_query_of_punctuation_matches_no_name() {
    let long = "x".repeat(60);
    let view = build_view(vec![test_source("s", &[("!!!", "Shouts"), ("🦀", "A crab"), (&long, "Long")])]);
    for text in ["", "...", "?!", "🦀🦀"] {
        assert_eq!(found_names(&view, &Query::new(text)), Vec::<String>::new(), "{text}");
    }
    check(&view, "shouts", &["s_____"]);
}

#[test]
fn a_single_cjk_character_is_a_word() {
    let view = build_view(vec![test_source("s", &[("search", "关键词搜索"), ("other", "其他")])]);
    check(&view, "词", &["s__search"]);
}

#[test]
fn duplicates_share_a_hit_unless_searched_by_name() {
    let described = ("create_issue", "Create a new issue in a repository, with a title, a body and labels.");
    let other = ("create_issue", "Opens a case for the legal department.");
    let view =
        build_view(vec![test_source("a", &[described]), test_source("b", &[described]), test_source("c", &[other])]);
    let results = view.search(&Query::new("new issue with labels in a repository"));
    let lines: Vec<String> = results.hits.iter().map(|hit| format!("{} {:?}", hit.name, hit.also.len())).collect();
    assert_eq!(lines, ["a__create_issue 1", "c__create_issue 0"]);
    assert!(results.hits[0].to_line().ends_with("(also: b__create_issue)"));
    assert_eq!(results.total, 3);
    for name in ["create_issue", "create issue", "create_isssue"] {
        assert_eq!(found_names(&view, &Query::new(name)).len(), 3, "{name}");
    }
    // Inflections and synonyms of a name are not the name.
    for words in ["creating issues", "create ticket", "new tickets"] {
        assert_eq!(found_names(&view, &Query::new(words)), ["a__create_issue", "c__create_issue"], "{words}");
    }
    assert_eq!(found_names(&view, &Query::new("b__create_issue")).first().map(String::as_str), Some("b__create_issue"));
}

#[test]
fn thousands_of_tools_with_the_same_name_are_found() {
    // Different names that normalise to the same letters.
    let spelled = |index: usize| -> String {
        let letters = "searchtheweb".chars().enumerate();
        letters.map(|(at, letter)| if index >> at & 1 == 1 { format!("{letter}_") } else { letter.into() }).collect()
    };
    let tools: Vec<(String, &str)> = (0..2_048).map(|index| (spelled(index), "Search.")).collect();
    let tools: Vec<(&str, &str)> = tools.iter().map(|(name, description)| (name.as_str(), *description)).collect();
    let view = build_view(vec![test_source("a", &tools)]);
    let results = view.search(&Query::new("searchtheweb"));
    assert_eq!(results.total, 2_048);
    let results = view.search(&Query::new("search_the_web ".repeat(1_000)));
    assert_eq!(results.total, 2_048);
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
fn a_hit_is_formatted_as_a_short_line() {
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
    /// Results of any query are sorted, within the limit and repeatable.
    #[test]
    fn any_query_gives_sorted_and_repeatable_results(text in "\\PC{0,80}|[a-z_ ]{0,60}|[\u{0}-\u{1f}github_issue ]{0,40}", limit in 0_usize..4) {
        let view = sample_view();
        let query = Query::new(text).with_limit(limit);
        let results = view.search(&query);
        prop_assert!(limit == 0 || results.hits.len() <= limit);
        prop_assert!(results.hint.is_some() || !results.hits.is_empty());
        prop_assert!(results.hits.windows(2).all(|pair| pair[0].score >= pair[1].score));
        prop_assert!(results.hits.iter().all(|hit| hit.score.is_finite() && hit.score > 0.0));
        prop_assert_eq!(view.search(&query), results);
    }
}
