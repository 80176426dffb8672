mod access_tokens;

use proptest::prelude::*;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::delta::ChangeClass;
use crate::delta::ToolChange;
use crate::features::{FeatureDelta, FeatureList, OfferedFeatures, OfferedList};
use crate::manifest::{Manifest, PackedManifest, ToolLimits};

fn source_id(name: &str) -> SourceId {
    SourceId::parse(name).unwrap()
}

fn declaration(definition: &str, enabled: bool) -> Declaration {
    let enabled = Some(enabled);
    let definition = Fingerprint::digest(definition);
    Declaration {
        source: source_id("git"),
        kind: "mcp".into(),
        origin: Origin::Config,
        definition,
        enabled,
        enabled_reference: None,
    }
}

fn declare_command(definition: &str, enabled: bool) -> Command {
    Command::Declare(declaration(definition, enabled))
}

fn declared_event() -> Event {
    let Declaration { source, kind, origin, definition, enabled, enabled_reference } = declaration("one", true);
    Event::SourceDeclared { source, kind, origin, definition, enabled, enabled_reference }
}

fn disabled_event() -> Event {
    Event::SourceDisabled { source: source_id("git") }
}

fn packed_manifest(tools: &[(&str, &str)]) -> Arc<PackedManifest> {
    let raw = |(name, description): &(&str, &str)| {
        RawValue::from_string(json!({"name": name, "description": description}).to_string()).unwrap()
    };
    let offered: Vec<_> = tools.iter().map(raw).collect();
    Arc::new(
        PackedManifest::new(&Manifest::new(&source_id("git"), &offered, Vec::new(), &ToolLimits::default())).unwrap(),
    )
}

fn record_command(before: Option<&Arc<PackedManifest>>, after: &Arc<PackedManifest>) -> Command {
    record_command_with_delta(before, after, Delta::all_added(after))
}

fn record_command_with_delta(
    before: Option<&Arc<PackedManifest>>,
    after: &Arc<PackedManifest>,
    delta: Delta,
) -> Command {
    let before = before.cloned().map_or(PreviousManifest::None, PreviousManifest::Available);
    Command::Record(ManifestUpdate { before, after: after.clone(), delta })
}

fn recorded_event(after: &PackedManifest, added: &[&str], changed: Vec<ToolChange>, removed: &[&str]) -> Event {
    Event::InventoryRecorded {
        source: source_id("git"),
        fingerprint: after.fingerprint,
        added: added.iter().map(|name| name.to_string()).collect(),
        changed,
        removed: removed.iter().map(|name| name.to_string()).collect(),
        renamed: Vec::new(),
    }
}

fn inventory_after(events: &[Event]) -> Inventory {
    let mut inventory = Inventory::default();
    for event in events {
        let seq = inventory.version + 1;
        let at = Timestamp(seq as i64 * 1000);
        inventory.apply(&Record { seq, at, actor: Actor::new("test"), event: event.clone() });
    }
    inventory
}

#[track_caller]
fn check(events: &[Event], command: Command, expected: &[Event]) {
    assert_eq!(inventory_after(events).decide(&command).unwrap(), expected);
}

#[test]
fn a_source_is_declared_once_and_changed_when_its_definition_changes() {
    check(&[], declare_command("one", true), &[declared_event()]);
    check(&[declared_event()], declare_command("one", true), &[]);
    let Declaration { source, kind, origin, definition, enabled, enabled_reference } = declaration("two", true);
    check(
        &[declared_event()],
        declare_command("two", true),
        &[Event::SourceChanged { source, kind, origin, definition, enabled, enabled_reference }],
    );
}

#[test]
fn disabling_a_source_twice_emits_one_event() {
    check(&[declared_event()], Command::Disable(source_id("git")), &[disabled_event()]);
    check(&[declared_event(), disabled_event()], Command::Disable(source_id("git")), &[]);
    check(
        &[declared_event(), disabled_event()],
        Command::Enable(source_id("git")),
        &[Event::SourceEnabled { source: source_id("git") }],
    );
    assert_eq!(inventory_after(&[]).decide(&Command::Disable(source_id("git"))).unwrap_err().code, Code::NotFound);
}

#[test]
fn declaring_again_enables_only_if_enabled_was_edited() {
    check(&[declared_event(), disabled_event()], declare_command("one", true), &[]);
    let events = inventory_after(&[declared_event()]).decide(&declare_command("one", false)).unwrap();
    assert!(matches!(events[..], [Event::SourceChanged { enabled: Some(false), .. }, Event::SourceDisabled { .. }]));
    let silent = Declaration { enabled: None, ..declaration("one", true) };
    let events_of_silent =
        inventory_after(&[declared_event(), disabled_event()]).decide(&Command::Declare(silent)).unwrap();
    assert!(matches!(events_of_silent[..], [Event::SourceChanged { enabled: None, .. }, Event::SourceEnabled { .. }]));
    let mut journal = vec![declared_event()];
    journal.extend(events);
    journal.push(Event::SourceEnabled { source: source_id("git") });
    check(&journal, declare_command("one", false), &[]);
}

#[test]
fn recording_an_unchanged_manifest_emits_nothing_and_a_changed_one_its_delta() {
    let one = packed_manifest(&[("push", "x"), ("pull", "x")]);
    let two = packed_manifest(&[("push", "y"), ("log", "x")]);
    let first = recorded_event(&one, &["pull", "push"], vec![], &[]);
    check(&[declared_event()], record_command(None, &one), std::slice::from_ref(&first));
    check(&[declared_event(), first.clone()], record_command(Some(&one), &one), &[]);
    let change = ToolChange {
        name: "push".into(),
        fields: vec!["description".into()],
        class: Some(ChangeClass::Text),
        notes: vec!["its description changed".into()],
    };
    let delta = Delta {
        added: vec!["log".into()],
        changed: vec![change.clone()],
        removed: vec!["pull".into()],
        ..Delta::default()
    };
    check(
        &[declared_event(), first],
        record_command_with_delta(Some(&one), &two, delta),
        &[recorded_event(&two, &["log"], vec![change], &["pull"])],
    );
}

#[test]
fn recording_against_another_manifest_is_a_conflict() {
    let one = packed_manifest(&[("push", "x")]);
    let two = packed_manifest(&[("push", "y")]);
    let inventory = inventory_after(&[declared_event(), recorded_event(&one, &["push"], vec![], &[])]);
    assert_eq!(inventory.decide(&record_command(None, &two)).unwrap_err().code, Code::Conflict);
}

#[test]
fn an_unreadable_manifest_is_replaced_with_a_delta_by_names() {
    let one = packed_manifest(&[("push", "x"), ("pull", "x")]);
    let two = packed_manifest(&[("push", "y"), ("log", "x")]);
    let events = [declared_event(), recorded_event(&one, &["pull", "push"], vec![], &[])];
    let command = Command::Record(ManifestUpdate {
        before: PreviousManifest::Unreadable(one.fingerprint),
        after: two.clone(),
        delta: Delta::all_added(&two),
    });
    check(&events, command, &[recorded_event(&two, &["log"], vec![], &["pull"])]);
}

#[test]
fn a_removed_tool_is_deprecated_and_keeps_its_dates_when_it_returns() {
    let one = packed_manifest(&[("push", "x")]);
    let none = packed_manifest(&[]);
    let inventory = inventory_after(&[
        declared_event(),
        recorded_event(&one, &["push"], vec![], &[]),
        Event::ToolDisabled { source: source_id("git"), tool: "push".into() },
        recorded_event(&none, &[], vec![], &["push"]),
        recorded_event(&one, &["push"], vec![], &[]),
    ]);
    let tool = inventory.source(&source_id("git")).unwrap().tools["push"];
    let expected =
        ToolState { created_at: Timestamp(2000), updated_at: Timestamp(5000), disabled: true, deprecated: false };
    assert_eq!(tool, expected);
}

#[test]
fn a_removed_source_keeps_its_history() {
    let removed = Event::SourceRemoved { source: source_id("git"), withheld: Vec::new() };
    check(&[declared_event()], Command::Remove(source_id("git")), std::slice::from_ref(&removed));
    check(&[declared_event(), removed.clone()], Command::Remove(source_id("git")), &[]);
    let one = packed_manifest(&[("push", "x")]);
    let inventory =
        inventory_after(&[declared_event(), recorded_event(&one, &["push"], vec![], &[]), removed, declared_event()]);
    let state = inventory.source(&source_id("git")).unwrap();
    assert_eq!((state.manifest, state.tools["push"].deprecated), (None, true));
}

#[test]
fn reconciling_removes_only_config_sources_missing_from_the_config() {
    let runtime = Event::SourceDeclared {
        source: source_id("mine"),
        kind: "mcp".into(),
        origin: Origin::Runtime,
        definition: Fingerprint::digest("x"),
        enabled: None,
        enabled_reference: None,
    };
    let inventory = inventory_after(&[declared_event(), runtime]);
    assert!(matches!(&reconcile(&inventory, vec![], &[])[..], [Command::Remove(gone)] if *gone == source_id("git")));
    assert!(reconcile(&inventory, vec![], &[source_id("git")]).is_empty());
}

#[test]
fn an_unknown_event_is_counted_and_skipped() {
    let event: Event = serde_json::from_str(r#"{"type":"ToolPainted","source":"git","colour":"red"}"#).unwrap();
    let inventory = inventory_after(&[declared_event(), event]);
    assert_eq!((inventory.unknown_events, inventory.version), (1, 2));
    assert!(inventory.source(&source_id("git")).is_some());
}

fn feature_list(prompts: &[(&str, &str)], instructions: Option<&str>) -> Arc<FeatureList> {
    let raw = |(name, description): &(&str, &str)| {
        RawValue::from_string(json!({"name": name, "description": description}).to_string()).unwrap()
    };
    let mut offered = OfferedFeatures { instructions: instructions.map(str::to_owned), ..OfferedFeatures::default() };
    offered.lists.prompts = OfferedList::Items(prompts.iter().map(raw).collect());
    Arc::new(FeatureList::new(&source_id("git"), offered, None))
}

fn features_event(after: &FeatureList, prompts: FeatureDelta, instructions_changed: bool) -> Event {
    Event::FeaturesRecorded {
        source: source_id("git"),
        fingerprint: after.summary.fingerprint,
        prompts,
        resources: FeatureDelta::default(),
        resource_templates: FeatureDelta::default(),
        instructions_changed,
    }
}

#[test]
fn features_are_recorded_when_they_change() {
    let record = |before: Option<&Arc<FeatureList>>, after: &Arc<FeatureList>| {
        Command::RecordFeatures(Box::new(FeaturesUpdate {
            before: before.map(|before| before.summary.fingerprint),
            after: after.summary.clone(),
            changes: after.changes_since(before.map(|before| &**before)),
        }))
    };
    let none = feature_list(&[], None);
    let one = feature_list(&[("a", "A"), ("b", "B")], None);
    let two = feature_list(&[("b", "other"), ("c", "C")], None);
    let told = feature_list(&[("b", "other"), ("c", "C")], Some("Use it."));
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| name.to_string()).collect() };
    let added = FeatureDelta { added: names(&["a", "b"]), ..FeatureDelta::default() };
    let added = features_event(&one, added, false);
    check(&[declared_event()], record(None, &none), &[]);
    check(&[declared_event()], record(None, &one), std::slice::from_ref(&added));
    let events = [declared_event(), added.clone()];
    check(&events, record(Some(&one), &one), &[]);
    let changed = FeatureDelta {
        added: names(&["c"]),
        changed: names(&["b"]),
        removed: names(&["a"]),
        ..FeatureDelta::default()
    };
    check(&events, record(Some(&one), &two), &[features_event(&two, changed, false)]);
    let gone = FeatureDelta { removed: names(&["a", "b"]), ..FeatureDelta::default() };
    check(&events, record(Some(&one), &none), &[features_event(&none, gone, false)]);
    let events = [declared_event(), features_event(&two, FeatureDelta::default(), false)];
    check(&events, record(Some(&two), &told), &[features_event(&told, FeatureDelta::default(), true)]);
    let removed = [events[0].clone(), added, Event::SourceRemoved { source: source_id("git"), withheld: Vec::new() }];
    assert_eq!(inventory_after(&removed).sources[&source_id("git")].features, None);
    assert!(inventory_after(&removed).decide(&record(Some(&one), &two)).is_err());
    // Changes that were computed against another list are computed again.
    let outdated = inventory_after(&events).decide(&record(Some(&one), &told));
    assert_eq!(outdated.unwrap_err().code, Code::Conflict);
}

/// Stored journals stay readable for ever: lines may be added to the golden file, but never changed.
#[test]
fn event_json_matches_the_golden_file() {
    let golden = include_str!("golden_events.jsonl");
    for line in golden.lines() {
        let event: Event = serde_json::from_str(line).unwrap();
        assert_ne!(event, Event::Unknown, "{line}");
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }
    assert_eq!(golden.lines().count(), 27, "one line for each event type, and for each field added later");
}

#[test]
fn unknown_events_are_newer_or_damaged() {
    let newer = |kind: &str| StoredEvent::Newer { kind: kind.to_owned() };
    for (body, kind) in [
        (r#"{"type":"ToolPainted","source":"git","colour":"red"}"#, "ToolPainted"),
        // Values that would be invalid in a known event.
        (r#"{"type":"ToolPainted","source":7,"hash":"?","n":1e999,"n":[[]]}"#, "ToolPainted"),
        (r#" {"source":"git","type":"Unknown"}"#, "Unknown"),
        (r#"{"type":"","x":1}"#, ""),
        (r#"{"type":"TokenChanged","token":"a1","name":"ci","role":"owner"}"#, "TokenChanged"),
        (r#"{"type":"TokenChanged","token":"a1","name":"ci","role":{"owner":{"of":"all"}}}"#, "TokenChanged"),
        (r#"{"role":"owner","name":"ci","token":"a1","type":"TokenChanged"}"#, "TokenChanged"),
        (
            r#"{"type":"SourceDeclared","source":"git","kind":"mcp","origin":"imported",
                "definition":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","enabled":null}"#,
            "SourceDeclared",
        ),
    ] {
        assert_eq!(StoredEvent::parse(body), newer(kind), "{body}");
    }
    let deep = format!(r#"{{"type":"ToolPainted","x":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    assert_eq!(StoredEvent::parse(&deep), newer("ToolPainted"));
    for body in [
        "",
        "{",
        "null",
        "7",
        r#""ToolPainted""#,
        r#"["ToolPainted"]"#,
        r#"["SourceEnabled","git"]"#,
        "{}",
        r#"{"kind":"ToolPainted"}"#,
        r#"{"type":null}"#,
        r#"{"type":99}"#,
        r#"{"type":["ToolPainted"]}"#,
        r#"{"type":"ToolPainted","type":"ToolDrawn"}"#,
        r#"{"type":"ToolPainted"} x"#,
        r#"{"type":"ToolPainted","source":}"#,
        r#"{"type":"SourceEnabled"}"#,
        r#"{"type":"SourceEnabled","source":7}"#,
        r#"{"type":"SourceEnabled","source":"No Id"}"#,
        r#"{"type":"TokenChanged","token":"a1","name":"ci","role":7}"#,
        r#"{"type":"TokenChanged","token":"a1","name":"ci"}"#,
    ] {
        assert!(matches!(StoredEvent::parse(body), StoredEvent::Damaged(_)), "{body}: {:?}", StoredEvent::parse(body));
    }
    // Unknown fields of a known event are ignored, and an unknown change class maps to a variant for it.
    let more = r#"{"type":"SourceEnabled","source":"git","because":["x",{"y":1}]}"#;
    assert_eq!(StoredEvent::parse(more), StoredEvent::Known(Event::SourceEnabled { source: source_id("git") }));
    let class = include_str!("golden_events.jsonl").replace("breaking", "painted");
    assert!(class.lines().all(|line| matches!(StoredEvent::parse(line), StoredEvent::Known(_))));
}

/// Both values are stored with each record for older versions, so they must not change.
#[test]
fn criticality_and_min_version_of_events_are_fixed() {
    let golden = include_str!("golden_events.jsonl").lines();
    let stated: Vec<(String, bool, &str)> = golden
        .map(|line| match StoredEvent::parse(line) {
            StoredEvent::Known(event) => (event_type(line).unwrap(), event.is_critical(), event.min_version()),
            other @ (StoredEvent::Newer { .. } | StoredEvent::Damaged(_)) => panic!("{line}: {other:?}"),
        })
        .collect();
    let critical = [
        "SourceChanged",
        "SourceDisabled",
        "SourceRemoved",
        "ToolDisabled",
        "TokenChanged",
        "TokenRevoked",
        "DamageAccepted",
    ];
    let rules =
        ["GroupDefined", "GroupRemoved", "AccessRuleDefined", "AccessRuleRemoved", "PolicyDefined", "PolicyRemoved"];
    for (kind, is_critical, since) in &stated {
        // Only an event that restricts more than the first release knows has a later version.
        let is_restriction = *since != "0.1.0";
        let is_rule = rules.contains(&kind.as_str());
        assert_eq!(*is_critical, is_restriction || critical.contains(&kind.as_str()), "{kind}");
        assert_eq!(Event::is_critical_type(kind), is_rule || critical.contains(&kind.as_str()), "{kind}");
        assert_eq!((Event::is_rule_type(kind), is_rule && !is_restriction), (is_rule, false), "{kind}");
    }
    let later = stated.iter().filter(|(kind, _, since)| *since != "0.1.0" && !rules.contains(&kind.as_str()));
    let later: Vec<(&str, &str)> = later.map(|(kind, _, since)| (kind.as_str(), *since)).collect();
    assert_eq!(later, [("TokenCreated", "0.2.0"), ("TokenChanged", "0.2.0")]);
    assert!(!Event::is_critical_type("ToolPainted"));
}

#[test]
fn versions_are_ordered_by_their_numbers() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (a, b, order) in [
        ("0.1.0", "0.1.0", Equal),
        ("0.10.0", "0.9.9", Greater),
        ("1.0", "1.0.0", Equal),
        ("0.2.0-rc.1", "0.2.0", Equal),
        ("0.2.0+build", "0.1.9", Greater),
        ("soon", "0.0.1", Less),
        ("", "0.0.0", Equal),
    ] {
        assert_eq!(compare_versions(a, b), order, "{a} {b}");
    }
}

fn any_command() -> impl Strategy<Value = Command> {
    let name = prop_oneof![Just("git"), Just("mail")];
    let tool = prop_oneof![Just("push"), Just("pull"), Just("log")];
    let tool_id =
        (name.clone(), tool.clone()).prop_map(|(source, tool)| ToolId { source: source_id(source), name: tool.into() });
    prop_oneof![
        (name.clone(), "[ab]", any::<bool>(), any::<bool>()).prop_map(|(source, definition, enabled, config)| {
            let origin = if config { Origin::Config } else { Origin::Runtime };
            Command::Declare(Declaration { source: source_id(source), origin, ..declaration(&definition, enabled) })
        }),
        name.clone().prop_map(|source| Command::Enable(source_id(source))),
        name.clone().prop_map(|source| Command::Disable(source_id(source))),
        name.prop_map(|source| Command::Remove(source_id(source))),
        tool_id.clone().prop_map(Command::EnableTool),
        tool_id.prop_map(Command::DisableTool),
        prop::collection::btree_map(tool, "[xy]", 0..3).prop_map(|tools| {
            let tools: Vec<(&str, &str)> = tools.iter().map(|(name, text)| (*name, text.as_str())).collect();
            record_command(None, &packed_manifest(&tools))
        }),
    ]
}

proptest! {
    /// After its events are applied, the same command returns no events.
    #[test]
    fn deciding_again_after_applying_is_empty(commands in prop::collection::vec(any_command(), 1..30)) {
        let mut inventory = Inventory::default();
        let mut current: Option<Arc<PackedManifest>> = None;
        for mut command in commands {
            if let Command::Record(update) = &mut command {
                let manifest = inventory.source(&source_id("git")).and_then(|state| state.manifest);
                let known = current.clone().filter(|packed| Some(packed.fingerprint) == manifest);
                update.before = known.map_or(PreviousManifest::None, PreviousManifest::Available);
            }
            let Ok(events) = inventory.decide(&command) else { continue };
            for event in events {
                let seq = inventory.version + 1;
                let at = Timestamp(0);
                inventory.apply(&Record { seq, at, actor: Actor::new("test"), event });
            }
            if let Command::Record(update) = &command {
                current = Some(update.after.clone());
            }
            // All commands are idempotent.
            prop_assert_eq!(inventory.decide(&command).unwrap_or_default(), vec![]);
        }
    }
}

#[test]
fn the_last_manifest_of_a_removed_tool_is_known() {
    let both = packed_manifest(&[("pull", ""), ("push", "")]);
    let (one, other) = (packed_manifest(&[("pull", "")]), packed_manifest(&[("tag", "")]));
    let mut events = vec![declared_event(), recorded_event(&both, &["pull", "push"], Vec::new(), &[])];
    let last = |events: &[Event], tool: &str| {
        inventory_after(events).source(&source_id("git")).unwrap().last_manifests.get(tool).copied()
    };
    assert_eq!(last(&events, "push"), None);
    events.push(recorded_event(&one, &[], Vec::new(), &["push"]));
    events.push(recorded_event(&other, &["tag"], Vec::new(), &["pull"]));
    assert_eq!((last(&events, "push"), last(&events, "pull")), (Some(both.fingerprint), Some(one.fingerprint)));
    events.push(recorded_event(&both, &["pull", "push"], Vec::new(), &["tag"]));
    assert_eq!((last(&events, "push"), last(&events, "tag")), (None, Some(other.fingerprint)));
    // A source that was removed and declared again knows what it had.
    events.push(Event::SourceRemoved { source: source_id("git"), withheld: Vec::new() });
    events.push(declared_event());
    assert_eq!(last(&events, "pull"), Some(both.fingerprint));
}
