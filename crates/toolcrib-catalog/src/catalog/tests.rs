use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_core::Code;
use toolcrib_core::inventory::{Actor, Event, Inventory, Origin, Record};
use toolcrib_core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib_core::policy::Rule;
use toolcrib_core::time::Timestamp;

use super::*;
use crate::render::Format;

fn catalog_source(source: &str, builtin: bool, tools: &[&str], rules: &[(&str, Verdict)]) -> Arc<CatalogSource> {
    let id = SourceId::parse(source).unwrap();
    let offered: Vec<_> =
        tools.iter().map(|name| RawValue::from_string(json!({"name": name}).to_string()).unwrap()).collect();
    let manifest = Manifest::new(&id, &offered, Vec::new(), &ToolLimits::default());
    let packed = Arc::new(PackedManifest::new(&manifest).unwrap());
    let segment = Arc::new(if builtin { Segment::without_prefix(packed) } else { Segment::with_prefix(packed) });
    let mut inventory = Inventory::default();
    let definition = Fingerprint::digest("x");
    let fingerprint = manifest.fingerprint;
    let added = manifest.tools.iter().map(|(tool, _)| tool.name.clone()).collect();
    let facts = [
        Event::SourceDeclared {
            source: id.clone(),
            kind: "mcp".into(),
            origin: Origin::Config,
            definition,
            enabled: None,
            enabled_reference: None,
        },
        Event::InventoryRecorded {
            source: id.clone(),
            fingerprint,
            added,
            changed: vec![],
            removed: vec![],
            renamed: vec![],
        },
    ];
    for (index, event) in facts.into_iter().enumerate() {
        inventory.apply(&Record { seq: index as u64 + 1, at: Timestamp(0), actor: Actor::new("test"), event });
    }
    let rules = rules.iter().map(|(glob, verdict)| Rule { glob: (*glob).into(), verdict: *verdict }).collect();
    let options = SourceOptions { kind: "mcp".into(), builtin, rules: Rules::new(rules), ..SourceOptions::default() };
    Arc::new(CatalogSource::new(segment, inventory.source(&id).unwrap().clone(), options))
}

fn build_view(sources: Vec<Arc<CatalogSource>>) -> View {
    View::full(Arc::new(Catalog::build(1, sources)))
}

fn offered_names(view: &View) -> Vec<&str> {
    view.offered_tools().map(|tool| tool.name().as_str()).collect()
}

#[test]
fn tools_are_sorted_by_name_including_builtins() {
    let view = build_view(vec![
        catalog_source("a", false, &["z", "y"], &[]),
        catalog_source("a1", false, &["x"], &[]),
        catalog_source("a_b", false, &["x"], &[]),
        catalog_source("core", true, &["a_tool", "zeta", "a"], &[]),
    ]);
    let listed = offered_names(&view);
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(listed, sorted);
    assert_eq!(listed, ["a", "a1__x", "a__y", "a__z", "a_b__x", "a_tool", "zeta"]);
}

#[test]
fn a_tool_with_the_name_of_a_builtin_is_skipped_and_reported() {
    let view = build_view(vec![
        catalog_source("git", false, &["push", "file_read"], &[]),
        catalog_source("core", true, &["file_read"], &[]),
    ]);
    assert_eq!(offered_names(&view), ["file_read", "git__push"]);
    let git = SourceId::parse("git").unwrap();
    assert_eq!(view.skipped_tools(&git)[0].name, "file_read");
    assert_eq!(view.listed_count(&git), 1);
    assert_eq!(view.find("git__file_read").unwrap_err().code, Code::ToolNotImplemented);
    assert_eq!(view.find("file_read").unwrap().source().as_str(), "core");
}

#[test]
fn a_tool_is_found_by_every_spelling_of_its_name() {
    let view = build_view(vec![
        catalog_source("git", false, &["push", "a.b", "x__y"], &[]),
        catalog_source("hub", false, &["push", "pull"], &[]),
    ]);
    for (query, name) in [
        ("git__push", "git__push"),
        ("git/push", "git__push"),
        ("Git:push", "git__push"),
        ("pull", "hub__pull"),
        ("git:a.b", "git__a_b"),
        ("git__a_b", "git__a_b"),
        ("a.b", "git__a_b"),
        ("git__x__y", "git__x__y"),
        ("x__y", "git__x__y"),
    ] {
        assert_eq!(view.find(query).unwrap().name().as_str(), name, "{query}");
    }
    let ambiguous = view.find("push").unwrap_err();
    assert_eq!(ambiguous.message, "`push` is offered by several sources: git__push, hub__push");
    let unknown = view.find("git__psuh").unwrap_err();
    assert_eq!(
        (unknown.code, unknown.message.as_str()),
        (Code::ToolNotImplemented, "no tool named `git__psuh`; did you mean `git__push`?")
    );
}

#[test]
fn names_that_collide_after_sanitizing_stay_unique() {
    let view = build_view(vec![catalog_source("git", false, &["a_b", "a.b", "a b"], &[])]);
    let listed = offered_names(&view);
    assert_eq!(listed.len(), 3);
    assert!(listed.contains(&"git__a_b"));
    assert_eq!(view.find("git/a_b").unwrap().original_name(), "a_b");
    assert_eq!(view.find("git/a.b").unwrap().original_name(), "a.b");
}

#[test]
fn agents_see_neither_hidden_nor_denied_tools_and_people_see_both() {
    let rules = [("push", Verdict::Hide), ("pull", Verdict::Deny)];
    let git = catalog_source("git", false, &["add", "push", "pull"], &rules);
    let catalog = Arc::new(Catalog::build(1, vec![git]));
    let people = View::full(catalog.clone());
    assert_eq!(offered_names(&people), ["git__add"]);
    let listed: Vec<_> = people.listed_tools().map(|tool| (tool.name().as_str(), tool.verdict())).collect();
    let expected = [("git__add", Verdict::Allow), ("git__pull", Verdict::Deny), ("git__push", Verdict::Hide)];
    assert_eq!(listed, expected);
    assert_eq!(people.find("push").unwrap().verdict(), Verdict::Hide, "people find a hidden tool by its bare name");
    let agents = View::for_agents(catalog.clone());
    assert_eq!(agents.tools().map(|tool| tool.name().as_str()).collect::<Vec<_>>(), ["git__add"]);
    assert!(agents.find("git__pull").is_err() && !agents.render(Format::Json).unwrap().contains("pull"));
    assert_ne!(agents.key(), people.key());
    assert_eq!(View::for_agents(catalog).key(), agents.key());
    // Without rules against tools both are the same.
    let catalog = Arc::new(Catalog::build(1, vec![catalog_source("git", false, &["add"], &[("add", Verdict::Ask)])]));
    assert_eq!(View::for_agents(catalog.clone()).key(), View::full(catalog).key());
}

#[test]
fn rules_match_sanitized_names() {
    let view =
        build_view(vec![catalog_source("git", false, &["delete.repo", "delete all"], &[("delete_*", Verdict::Hide)])]);
    assert_eq!(offered_names(&view), Vec::<&str>::new());
}

#[test]
fn lists_are_rendered_in_each_format() {
    let view = build_view(vec![catalog_source("git", false, &["push"], &[])]);
    let parsed = |format| serde_json::from_str::<Value>(&view.render(format).unwrap()).unwrap();
    let list = parsed(Format::Json);
    let tool = &list["tools"][0];
    assert_eq!(list["inventory_hash"], view.hash().to_string());
    for (key, value) in [
        ("id", json!("git:push")),
        ("name", json!("git__push")),
        ("source", json!("git")),
        ("original_name", json!("push")),
        ("kind", json!("mcp")),
        ("title", json!(null)),
        ("description", json!("git tool: push")),
        ("input_schema", json!({"type": "object"})),
        ("annotations", json!(null)),
        ("tags", json!([])),
        ("policy", json!("allow")),
        ("enabled", json!(true)),
        ("state", json!("active")),
        ("created_at", json!("1970-01-01T00:00:00.000Z")),
    ] {
        assert_eq!(tool[key], value, "{key}");
    }
    let schema = json!({"type": "object"});
    assert_eq!(
        parsed(Format::Mcp),
        json!([{"name": "git__push", "description": "git tool: push", "inputSchema": schema}])
    );
    assert_eq!(
        parsed(Format::Anthropic),
        json!([{"name": "git__push", "description": "git tool: push", "input_schema": schema}])
    );
    // OpenAI rejects an object without `properties`.
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        parsed(Format::Openai),
        json!([{"type": "function", "function": {"name": "git__push", "description": "git tool: push", "parameters": schema}}])
    );
}

#[test]
fn the_hash_changes_only_with_the_listed_tools() {
    let hash = |sources| Catalog::build(1, sources).hash();
    let base = || vec![catalog_source("git", false, &["push"], &[]), catalog_source("hub", false, &["pull"], &[])];
    let mut reversed = base();
    reversed.reverse();
    assert_eq!(hash(base()), hash(reversed));
    assert_ne!(
        hash(base()),
        hash(vec![
            catalog_source("git", false, &["push"], &[("push", Verdict::Hide)]),
            catalog_source("hub", false, &["pull"], &[])
        ])
    );
}
