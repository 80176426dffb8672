use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_core::SourceId;
use toolcrib_core::inventory::{Actor, Event, Inventory, Origin, Record};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::time::Timestamp;

use super::*;
use crate::{Catalog, CatalogSource, Segment, SourceOptions};

fn catalog_source(source: &str, tools: &[String], options: SourceOptions) -> Arc<CatalogSource> {
    let id = SourceId::parse(source).unwrap();
    let offered: Vec<_> =
        tools.iter().map(|name| RawValue::from_string(json!({"name": name}).to_string()).unwrap()).collect();
    let manifest = Manifest::new(&id, &offered, Vec::new(), &ToolLimits::default());
    let mut packed = PackedManifest::new(&manifest).unwrap();
    // Fixed counts: tokenizing fifty thousand tools would be slow, and counting is tested elsewhere.
    packed.tools.iter_mut().for_each(|tool| tool.tokens = 40);
    let segment = if options.builtin {
        Segment::without_prefix(Arc::new(packed))
    } else {
        Segment::with_prefix(Arc::new(packed))
    };
    let mut inventory = Inventory::default();
    let definition = manifest.fingerprint;
    let event = Event::SourceDeclared {
        source: id.clone(),
        kind: "mcp".into(),
        origin: Origin::Config,
        definition,
        enabled: None,
        enabled_reference: None,
    };
    inventory.apply(&Record { seq: 1, at: Timestamp(0), actor: Actor::new("test"), event });
    Arc::new(CatalogSource::new(Arc::new(segment), inventory.source(&id).unwrap().clone(), options))
}

fn plain_source(source: &str, tools: &[&str]) -> Arc<CatalogSource> {
    catalog_source(source, &tools.iter().map(|&name| name.to_owned()).collect::<Vec<_>>(), SourceOptions::default())
}

fn build_view(sources: Vec<Arc<CatalogSource>>, essential: &[&str]) -> View {
    let globs = essential.iter().map(|&glob| glob.to_owned()).collect();
    let catalog = Catalog::build(1, sources).with_essential(globs);
    View::full(Arc::new(catalog))
}

/// View of a number of sources with a number of tools each, with names of a given length.
fn uniform_view(sources: usize, tools: usize, length: usize) -> View {
    let name = |number: usize| format!("{:a<length$}", format!("tool_{number}_"));
    let tools: Vec<String> = (0..tools).map(name).collect();
    build_view(
        (0..sources)
            .map(|number| catalog_source(&format!("source_{number}"), &tools, SourceOptions::default()))
            .collect(),
        &[],
    )
}

fn summarize(view: &View, budget: usize) -> Summary {
    view.summary(SummaryBudget::from_tokens(budget).unwrap())
}

#[test]
fn a_summary_lists_sources_and_how_to_find_tools() {
    let github = [
        "get_me",
        "get_issue",
        "get_issue_comment",
        "create_issue",
        "search_code",
        "search_issues",
        "merge_pull_request",
    ];
    let core =
        catalog_source("core", &["calculate".to_owned()], SourceOptions { builtin: true, ..SourceOptions::default() });
    let view = build_view(vec![plain_source("github", &github), plain_source("files", &["read", "write"]), core], &[]);
    let text = summarize(&view, 500).text;
    let expected = "\
You can use 10 tools from 3 sources. Their schemas are not loaded; use these three tools:
- search_tools(query) finds tools by what they do
- describe_tools(names) shows their arguments
- call_tool(name, arguments) calls one
Search before you say that something cannot be done. A tool is named source__tool, for example github__get_me.
Essential tools, by source:
github: get_me, search_code, create_issue, merge_pull_request, get_issue, search_issues, get_issue_comment
Other tools, by source:
core (no prefix): calculate
files: read, write";
    assert_eq!(text, expected);
}

#[test]
fn essential_tools_come_first() {
    let tools: Vec<String> = (0..30).map(|number| format!("a{number}")).chain(["very_long_name".to_owned()]).collect();
    let sources = || ["alpha", "beta", "gamma"].map(|id| catalog_source(id, &tools, SourceOptions::default())).to_vec();
    let lines = |view: &View| -> Vec<String> {
        let text = summarize(view, 200).text;
        text.lines().skip_while(|line| !line.ends_with("by source:")).map(str::to_owned).collect()
    };
    let none = build_view(sources(), &[]);
    assert_eq!(
        lines(&none)[..2],
        [
            "Tools by source:",
            "alpha: a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16 (+14 more)"
        ]
    );
    let named = build_view(sources(), &["gamma__very_*"]);
    let gamma = ["Essential tools, by source:", "gamma: very_long_name", "Other tools, by source:"];
    assert_eq!(lines(&named)[..3], gamma);
    assert_eq!(
        named.configured_essentials().map(|tool| tool.name().to_string()).collect::<Vec<_>>(),
        ["gamma__very_long_name"]
    );
    let mut sources = sources();
    sources[1] =
        catalog_source("beta", &tools, SourceOptions { essential: vec!["a2*".into()], ..SourceOptions::default() });
    let by_source = build_view(sources, &[]);
    let beta = "beta: a2, a20, a21, a22, a23, a24, a25, a26, a27, a28, a29";
    assert_eq!(lines(&by_source)[..2], ["Essential tools, by source:", beta]);
    // Configured tools come before those that match a pattern, and both before all others.
    let searching = plain_source("alpha", &["zip", "search_all"]);
    let both = build_view(vec![searching, plain_source("zeta", &["post", "read"])], &["zeta__post"]);
    let expected = ["Essential tools, by source:", "zeta: post", "alpha: search_all", "Other tools, by source:"];
    assert_eq!(lines(&both)[..4], expected);
    assert_eq!(lines(&both)[4..], ["alpha: zip", "zeta: read"]);
}

#[test]
fn default_essential_words_apply_only_without_configuration() {
    let sources = || vec![plain_source("one", &["x", "searchAll", "Send_EMAIL"]), plain_source("slack", &["post"])];
    let essential = |view: &View| -> Vec<String> {
        view.offered_tools().filter(|tool| view.is_essential(tool)).map(|tool| tool.name().to_string()).collect()
    };
    let unconfigured = build_view(sources(), &[]);
    assert_eq!(essential(&unconfigured), ["one__Send_EMAIL", "one__searchAll", "slack__post"]);
    assert_eq!(unconfigured.configured_essentials().count(), 0);
    assert_eq!(essential(&build_view(sources(), &["x"])), ["one__x"]);
    assert_eq!(essential(&build_view(sources(), &["nothing_like_it"])), [""; 0]);
}

#[test]
fn patterns_are_words_or_globs_that_can_be_replaced() {
    let sources = vec![plain_source("one", &["searchAll", "Send_EMAIL", "list_orders"])];
    let essential = |patterns: &[&str]| -> Vec<String> {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let catalog = Catalog::build(1, sources.clone()).with_essential_patterns(&patterns);
        let view = View::full(Arc::new(catalog));
        view.offered_tools().filter(|tool| view.is_essential(tool)).map(|tool| tool.name().to_string()).collect()
    };
    assert_eq!(essential(&["ORDER"]), ["one__list_orders"]);
    assert_eq!(essential(&["one__s*"]), ["one__Send_EMAIL", "one__searchAll"]);
    assert_eq!(essential(&["", "nothing"]), [""; 0]);
    assert_eq!(essential(&[]), [""; 0]);
}

/// Names of the tools in a recorded list.
#[cfg(feature = "tokens")]
fn recorded_names(server: &str) -> Option<Vec<String>> {
    let path = toolcrib_testkit::programs::data_dir()?.join("toollists").join(format!("{server}.json"));
    let recorded: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    recorded["tools"].as_array()?.iter().map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
}

#[cfg(feature = "tokens")]
#[test]
fn sixty_tools_of_five_real_servers_are_all_named_within_500_tokens() {
    let servers = [
        ("github", "modelcontextprotocol__server-github"),
        ("browser", "playwright__mcp"),
        ("kubernetes", "mcp-server-kubernetes"),
        ("gitlab", "zereight__mcp-gitlab"),
        ("google_workspace", "workspace-mcp"),
    ];
    let recorded: Option<Vec<(&str, Vec<String>)>> = servers
        .iter()
        .map(|(id, server)| Some((*id, recorded_names(server)?.into_iter().take(12).collect())))
        .collect();
    let Some(recorded) = recorded else {
        let name = "sixty_tools_of_five_real_servers_are_all_named_within_500_tokens";
        return toolcrib_testkit::programs::skip(name, "the recorded tool lists are missing");
    };
    for essential in [&[][..], &["github__*", "*merge*"], &["browser__browser_click"]] {
        check_all_named(&recorded, essential);
    }
}

#[cfg(feature = "tokens")]
#[test]
fn sixty_tools_of_five_sources_are_all_named_within_500_tokens() {
    let verbs = ["get", "list", "create", "update", "delete", "search"];
    let sources = [
        ("github", ["issue", "pull_request"]),
        ("calendar", ["event", "reminder"]),
        ("mail", ["message", "draft"]),
        ("wiki", ["page", "comment"]),
        ("kubernetes", ["pod", "deployment"]),
    ];
    let names = |nouns: [&str; 2]| nouns.iter().flat_map(|noun| verbs.map(|verb| format!("{verb}_{noun}"))).collect();
    let sources = sources.map(|(id, nouns)| (id, names(nouns)));
    for essential in [&[][..], &["github__*"], &["mail__create_message"]] {
        check_all_named(&sources, essential);
    }
}

/// Checks that a summary of 500 tokens names all of 60 tools.
#[cfg(feature = "tokens")]
fn check_all_named(sources: &[(&str, Vec<String>)], essential: &[&str]) {
    let view = sources.iter().map(|(id, names)| catalog_source(id, names, SourceOptions::default()));
    let summary = summarize(&build_view(view.collect(), essential), 500);
    assert!(summary.tools == 60 && summary.tokens <= 500, "{summary:?}");
    for (id, names) in sources {
        let lines: Vec<&str> = summary.text.lines().filter_map(|line| line.strip_prefix(&format!("{id}: "))).collect();
        let named: Vec<&str> = lines.iter().flat_map(|line| line.split(", ")).collect();
        assert!(names.iter().all(|name| named.contains(&name.as_str())), "{id}\n{}", summary.text);
    }
}

#[test]
fn sources_take_turns_when_not_all_tools_fit() {
    let many: Vec<String> = (0..3_000).map(|number| format!("tool_{number}")).collect();
    let few: Vec<String> = (0..10).map(|number| format!("task_{number}")).collect();
    let sources = ["alpha", "beta", "gamma"].map(|id| catalog_source(id, &many, SourceOptions::default()));
    let small = catalog_source("small", &few, SourceOptions::default());
    let summary = summarize(&build_view(sources.into_iter().chain([small]).collect(), &[]), 500);
    let named = |id: &str| {
        let line = summary.text.lines().find_map(|line| line.strip_prefix(&format!("{id}: "))).unwrap();
        line.matches(", ").count() + 1
    };
    assert_eq!(named("small"), 10);
    assert!(named("alpha") > 15 && named("alpha") - named("gamma") <= 1, "{}", summary.text);
    assert!(summary.tokens > 480, "{}", summary.tokens);
}

#[test]
fn an_empty_catalogue_has_a_summary_too() {
    let empty = summarize(&build_view(Vec::new(), &[]), 500);
    assert!(empty.text.contains("Tools will be discovered"), "{}", empty.text);
    assert_eq!((empty.tools, empty.tokens_full), (0, 0));
    assert!(summarize(&build_view(Vec::new(), &[]), 15).text.contains("Tools will be discovered"));
}

#[test]
fn a_summary_stays_within_its_budget_for_any_catalogue() {
    for (sources, tools, length) in [
        (1, 1, 4),
        (1, 1, 64),
        (1, 7, 60),
        (3, 50, 12),
        (47, 34, 20),
        (2_000, 4, 16),
        (2_000, 1, 64),
        (500, 30, 18),
        (2, 25_000, 24),
    ] {
        let view = uniform_view(sources, tools, length);
        let budgets = [1, 2, 5, 8, 13, 20, 34, 60, 100, 200, 500, 1_000, 5_000];
        let few = if sources * tools > 10_000 { budgets.len() } else { 1 };
        for budget in budgets.into_iter().step_by(few).chain([500]) {
            let summary = summarize(&view, budget);
            assert_eq!(summary.tokens, token_count::count(&summary.text));
            assert!(summary.tokens <= budget, "{sources} {tools} {length} {budget}: {summary:?}");
            assert_eq!((summary.tools, summary.tokens_full), (sources * tools, sources * tools * 40));
            assert_eq!(summary.text, view.summary(SummaryBudget::from_tokens(budget).unwrap()).text);
            if budget >= 100 {
                let text = &summary.text;
                assert!(
                    text.contains("search_tools") && text.contains("source_0"),
                    "{sources} {length} {budget} {text}"
                );
            }
            if budget == 500 && sources > 100 {
                assert!(summary.tokens * 10 > budget * 8, "room is left in {budget}: {summary:?}");
            }
            assert_eq!(mentioned_tool_count(&summary.text).unwrap_or(summary.tools), summary.tools, "{}", summary.text);
        }
    }
}

/// Number of tools that a summary accounts for: named ones and those counted as more; `None` without source lines.
fn mentioned_tool_count(text: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("source_") && line.contains(": ")).collect();
    let named = |line: &&str| line.split(" (+").next().unwrap_or_default().matches(", ").count() + 1;
    let number =
        |text: &str| text.split(' ').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default();
    let more = |line: &&str| line.split_once(" (+").map_or(0, |(_, more)| number(more));
    let others = text.lines().find_map(|line| line.strip_prefix("and ")).map_or(0, number);
    (!lines.is_empty()).then(|| lines.iter().map(|line| named(line) + more(line)).sum::<usize>() + others)
}

#[test]
fn a_budget_of_zero_is_rejected() {
    assert_eq!(SummaryBudget::from_tokens(0).unwrap_err().code, Code::BadRequest);
    assert_eq!(SummaryBudget::default().tokens(), 500);
}
