//! Views compared with catalogues that consist of their tools alone: random tools, options and masks.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;
use serde_json::value::to_raw_value;
use toolcrib_core::inventory::{Origin, SourceState, ToolState};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::policy::{Rule, Rules};
use toolcrib_core::time::Timestamp;

use super::*;
use crate::filter::ListOrder;
use crate::render::{Format, ListPosition};
use crate::search::Query;
use crate::summary::SummaryBudget;
use crate::{Segment, SourceOptions};

/// One tool of a random catalogue; the name is unique within its source.
#[derive(Debug, Clone)]
struct SampleTool {
    name: &'static str,
    description: &'static str,
    disabled: bool,
    created_at: i64,
}

#[derive(Debug, Clone)]
struct SampleSource {
    id: &'static str,
    tools: Vec<SampleTool>,
    rule: Option<(&'static str, Verdict)>,
    title: Option<&'static str>,
}

const SOURCES: [&str; 3] = ["git", "hub", "core"];
const NAMES: [&str; 5] = ["push", "pull", "create_issue", "search_code", "read"];
const DESCRIPTIONS: [&str; 4] = [
    "Record changes in the repository.",
    "Search issues and comments for words.",
    "Create an issue in a tracker of the repository with a title.",
    "",
];

fn sample_tools() -> impl Strategy<Value = Vec<SampleTool>> {
    let tool = (prop::sample::select(&DESCRIPTIONS[..]), prop::bool::weighted(0.2), 0..2_i64);
    let tools = prop::collection::vec(prop::option::weighted(0.7, tool), NAMES.len());
    tools.prop_map(|tools| {
        let named = NAMES.into_iter().zip(tools).filter_map(|(name, tool)| Some((name, tool?)));
        let sample =
            |(name, (description, disabled, created_at))| SampleTool { name, description, disabled, created_at };
        named.map(sample).collect()
    })
}

fn sample_sources() -> impl Strategy<Value = Vec<SampleSource>> {
    let rules = vec![None, Some(("pu*", Verdict::Hide)), Some(("*issue", Verdict::Deny)), Some(("read", Verdict::Ask))];
    let title = prop::sample::select(vec![None, Some("Issue tracker")]);
    let sources = prop::collection::vec((sample_tools(), prop::sample::select(rules), title), SOURCES.len());
    sources.prop_map(|sources| {
        let sample = |(id, (tools, rule, title))| SampleSource { id, tools, rule, title };
        SOURCES.into_iter().zip(sources).map(sample).collect()
    })
}

/// Bits that decide which tools a view shows.
fn sample_mask() -> impl Strategy<Value = u16> {
    any::<u16>()
}

fn is_in_mask(mask: u16, source: &str, name: &str) -> bool {
    let source = SOURCES.iter().position(|id| *id == source).unwrap();
    let name = NAMES.iter().position(|known| *known == name).unwrap();
    mask & (1 << (source * NAMES.len() + name)) != 0
}

fn build_source(sample: &SampleSource) -> Arc<CatalogSource> {
    let id = SourceId::parse(sample.id).unwrap();
    let raw: Vec<_> = sample
        .tools
        .iter()
        .map(|tool| to_raw_value(&json!({"name": tool.name, "description": tool.description})).unwrap())
        .collect();
    let packed = PackedManifest::new(&Manifest::new(&id, &raw, Vec::new(), &ToolLimits::default())).unwrap();
    let state = |tool: &SampleTool| ToolState {
        disabled: tool.disabled,
        created_at: Timestamp(tool.created_at),
        ..ToolState::default()
    };
    let state = SourceState {
        manifest: Some(packed.fingerprint),
        tools: sample.tools.iter().map(|tool| (tool.name.to_owned(), state(tool))).collect(),
        ..SourceState::new("mcp", Origin::Config, Fingerprint::digest("x"), None)
    };
    let builtin = sample.id == "core";
    let rules = sample.rule.map(|(glob, verdict)| Rule { glob: glob.into(), verdict });
    let options = SourceOptions {
        kind: "mcp".into(),
        builtin,
        // A built-in tool shadows those of other sources by the names in the whole catalogue, which a catalogue of
        // the visible tools alone does not have.
        keep_conflicts: true,
        rules: Rules::new(rules.into_iter().collect()),
        title: sample.title.map(str::to_owned),
        ..SourceOptions::default()
    };
    let packed = Arc::new(packed);
    let segment = if builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) };
    Arc::new(CatalogSource::new(Arc::new(segment), Arc::new(state), options))
}

fn full_view(version: u64, sources: &[SampleSource]) -> View {
    View::full(Arc::new(Catalog::build(version, sources.iter().map(build_source).collect())))
}

fn masked_view(full: &View, mask: u16) -> View {
    full.restrict(|tool| is_in_mask(mask, tool.source().as_str(), tool.original_name()))
}

/// The sources with the visible tools alone.
fn visible_sources(sources: &[SampleSource], mask: u16) -> Vec<SampleSource> {
    let visible = sources.iter().map(|source| {
        let tools = source.tools.iter().filter(|tool| is_in_mask(mask, source.id, tool.name)).cloned().collect();
        SampleSource { tools, ..source.clone() }
    });
    visible.filter(|source| !source.tools.is_empty()).collect()
}

/// Everything that can be read through a view, without its digests.
fn read_everything(view: &View) -> Vec<String> {
    let mut texts: Vec<String> = vec![format!("{:?}", view.by_source())];
    for format in [Format::Mcp, Format::AnthropicDeferred, Format::OpenaiStrict] {
        texts.push(view.render(format).unwrap());
    }
    let after = ListPosition { rank: 0, name: "a".to_owned() };
    let mut page = view.render_page(Format::Json, |_| true, &ListOrder::Name, Some(&after), 3).unwrap();
    texts.push(format!("{:?} {}", page.last.take(), page.array));
    texts.push(view.summary_text(SummaryBudget::default()));
    texts.push(format!("{:?}", view.configured_essentials().map(|tool| tool.name().to_string()).collect::<Vec<_>>()));
    for source in SOURCES.map(|id| SourceId::parse(id).unwrap()) {
        let is_known = view.source(&source).is_some_and(|source| !source.segment.entries().is_empty());
        texts.push(format!("{source} {is_known} {}", view.listed_count(&source)));
    }
    for text in ["push", "create an issue", "isue", "repo", "hub__pull", "tracker", "search words"] {
        texts.push(format!("{:?}", view.search(&Query::new(text))));
    }
    for name in ["push", "hub__push", "git/read", "hub__pulll", "serch_code", "create_issue"] {
        texts.push(format!("{:?}", view.find(name).map(|tool| tool.name().to_string()).map_err(|error| error.message)));
    }
    texts
}

/// The visible tools with everything that is shown of them, for the comparison of keys.
fn sight(sources: &[SampleSource]) -> String {
    format!("{sources:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_view_reads_like_a_catalogue_of_its_tools_alone(sources in sample_sources(), mask in sample_mask()) {
        let view = masked_view(&full_view(1, &sources), mask);
        let alone = full_view(2, &visible_sources(&sources, mask));
        prop_assert_eq!(read_everything(&view), read_everything(&alone));
    }

    #[test]
    fn views_share_a_key_exactly_when_they_show_the_same(
        sources in sample_sources(),
        others in sample_sources(),
        mask in sample_mask(),
        other_mask in sample_mask(),
        keeps_sources in any::<bool>(),
    ) {
        // Half of the cases compare two masks of one catalogue, the others two catalogues.
        let others = if keeps_sources { sources.clone() } else { others };
        let full = full_view(1, &sources);
        let other_full = full_view(2, &others);
        let is_same = |a: u16, b: u16| sight(&visible_sources(&sources, a)) == sight(&visible_sources(&others, b));
        prop_assert_eq!(full.key() == other_full.key(), sight(&sources) == sight(&others));

        let (view, other) = (masked_view(&full, mask), masked_view(&other_full, other_mask));
        // A full view shows sources without tools too.
        let has_empty = |view: &View, sources: &[SampleSource]| {
            view.mask.is_none() && sources.iter().any(|source| source.tools.is_empty())
        };
        if !has_empty(&view, &sources) && !has_empty(&other, &others) {
            prop_assert_eq!(view.key() == other.key(), is_same(mask, other_mask));
            if view.key() == other.key() {
                prop_assert_eq!(view.hash(), other.hash());
            }
        }
    }

    #[test]
    fn one_tool_more_makes_another_key(sources in sample_sources(), mask in sample_mask()) {
        let full = full_view(1, &sources);
        let view = masked_view(&full, mask);
        let names: Vec<String> = view.tools().map(|tool| tool.name().to_string()).collect();
        let mut keys: BTreeSet<String> = [view.key().to_string()].into();
        for name in &names {
            keys.insert(view.restrict(|tool| tool.name().as_str() != name).key().to_string());
        }
        prop_assert_eq!(keys.len(), names.len() + 1);
        prop_assert_eq!(view.restrict(|_| true).key(), view.key());
    }

    #[test]
    fn a_list_that_is_stored_in_another_form_makes_another_key(sources in sample_sources()) {
        let replaced = sources.iter().map(build_source).map(|source| {
            let packed = source.segment.packed();
            let tools = packed.tools.iter().map(|tool| {
                let mut parsed = packed.tool(tool).unwrap();
                parsed.listing.description.push('!');
                (parsed, tool.fingerprint)
            });
            let manifest = Manifest {
                source: packed.source.clone(),
                fingerprint: packed.fingerprint,
                tools: tools.collect(),
                skipped: packed.skipped.clone(),
                about: packed.about.clone(),
            };
            let packed = Arc::new(PackedManifest::new(&manifest).unwrap());
            let segment = if source.options.builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) };
            Arc::new(CatalogSource::new(Arc::new(segment), source.state.clone(), source.options.clone()))
        });
        let after = View::full(Arc::new(Catalog::build(1, replaced.collect())));
        let before = full_view(1, &sources);
        prop_assert_eq!(before.key() == after.key(), before.tools().next().is_none());
    }

    #[test]
    fn a_change_of_a_tool_outside_the_view_keeps_its_key(sources in sample_sources(), mask in sample_mask()) {
        let mut changed = sources.clone();
        let mut has_changed = false;
        for source in &mut changed {
            for tool in source.tools.iter_mut().filter(|tool| !is_in_mask(mask, source.id, tool.name)) {
                (tool.description, tool.disabled, tool.created_at) = ("Does something else.", !tool.disabled, 7);
                has_changed = true;
            }
        }
        let (before, after) = (full_view(1, &sources), full_view(2, &changed));
        prop_assert_eq!(before.key() == after.key(), !has_changed);
        prop_assert_eq!(masked_view(&before, mask).key() == masked_view(&after, mask).key(), true);
    }
}

#[test]
fn a_shadowed_tool_is_in_no_view() {
    let tool = |name| SampleTool { name, description: "", disabled: false, created_at: 0 };
    let source = |id, tools| SampleSource { id, tools, rule: None, title: None };
    let core = build_source(&source("core", vec![tool("read")]));
    let git = build_source(&source("git", vec![tool("read"), tool("push"), tool("pull")]));
    let options = SourceOptions { keep_conflicts: false, ..git.options.clone() };
    let git = Arc::new(CatalogSource::new(git.segment.clone(), git.state.clone(), options));
    let full = View::full(Arc::new(Catalog::build(1, vec![core, git])));
    assert!(full.restrict(|_| true).mask.is_none(), "nothing that was there is left out");
    let view = full.restrict(|tool| tool.original_name() != "push");
    assert_eq!(view.tools().map(|tool| tool.name().as_str()).collect::<Vec<_>>(), ["git__pull", "read"]);
    assert!(view.find("git__read").is_err());
    assert_eq!(view.listed_count(&SourceId::parse("git").unwrap()), 1);
    assert!(full.skipped_tools(&SourceId::parse("git").unwrap()).len() == 1);
}

#[test]
fn a_default_verdict_on_a_tool_outside_the_view_keeps_its_key() {
    let tool = |name| SampleTool { name, description: "", disabled: false, created_at: 0 };
    let core =
        build_source(&SampleSource { id: "core", tools: vec![tool("push"), tool("read")], rule: None, title: None });
    let full_view = |verdict| {
        let verdicts = [("push".to_owned(), verdict)].into();
        let options = SourceOptions { verdicts, ..core.options.clone() };
        let source = CatalogSource::new(core.segment.clone(), core.state.clone(), options);
        View::full(Arc::new(Catalog::build(1, vec![Arc::new(source)])))
    };
    let (before, after) = (full_view(Verdict::Allow), full_view(Verdict::Ask));
    assert_ne!(before.key(), after.key());
    let key_without = |view: &View, name: &str| view.restrict(|tool| tool.name().as_str() != name).key();
    assert_eq!(key_without(&before, "push"), key_without(&after, "push"));
    assert_ne!(key_without(&before, "read"), key_without(&after, "read"));
}

/// The removal of withheld tools must not be noticed.
#[test]
fn a_view_without_some_tools_has_the_digests_of_a_catalogue_without_them() {
    let tool = |name| SampleTool { name, description: "", disabled: false, created_at: 0 };
    let source = |tools| SampleSource { id: "git", tools, rule: None, title: None };
    let without_push = full_view(2, &[source(vec![tool("read"), tool("pull")])]);
    let all = full_view(1, &[source(vec![tool("read"), tool("pull"), tool("push")])]);
    let restricted = all.restrict(|tool| tool.original_name() != "push");
    assert_eq!((restricted.key(), restricted.hash()), (without_push.key(), without_push.hash()));
    assert_ne!((all.key(), all.hash()), (restricted.key(), restricted.hash()));
}
