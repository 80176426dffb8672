use std::time::Duration;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;
use crate::access::{LONGEST_LIFE, Role};
use crate::compare::Class;
use crate::manifest::{Bounds, Change, Manifest, Packed};

fn id(name: &str) -> SourceId {
    SourceId::parse(name).unwrap()
}

fn declaration(definition: &str, enabled: bool) -> Declaration {
    let enabled = Some(enabled);
    let definition = Fingerprint::of(definition);
    Declaration { source: id("git"), kind: "mcp".into(), origin: Origin::Config, definition, enabled }
}

fn declare(definition: &str, enabled: bool) -> Command {
    Command::Declare(declaration(definition, enabled))
}

fn declared() -> Event {
    let Declaration { source, kind, origin, definition, enabled } = declaration("one", true);
    Event::SourceDeclared { source, kind, origin, definition, enabled }
}

fn disabled() -> Event {
    Event::SourceDisabled { source: id("git") }
}

fn packed(tools: &[(&str, &str)]) -> Arc<Packed> {
    let raw = |(name, description): &(&str, &str)| {
        RawValue::from_string(serde_json::json!({"name": name, "description": description}).to_string()).unwrap()
    };
    let offered: Vec<_> = tools.iter().map(raw).collect();
    Arc::new(Packed::new(&Manifest::new(&id("git"), &offered, Vec::new(), &Bounds::default())).unwrap())
}

fn record(before: Option<&Arc<Packed>>, after: &Arc<Packed>) -> Command {
    let before = before.cloned().map_or(Before::Nothing, Before::Known);
    Command::Record(Recording { before, after: after.clone(), delta: None })
}

fn recorded(after: &Packed, added: &[&str], changed: Vec<Change>, removed: &[&str]) -> Event {
    Event::InventoryRecorded {
        source: id("git"),
        fingerprint: after.fingerprint,
        added: added.iter().map(|name| name.to_string()).collect(),
        changed,
        removed: removed.iter().map(|name| name.to_string()).collect(),
        renamed: Vec::new(),
    }
}

fn given(events: &[Event]) -> Inventory {
    let mut inventory = Inventory::default();
    for event in events {
        let seq = inventory.version + 1;
        let at = Timestamp(seq as i64 * 1000);
        inventory.apply(&Record { seq, at, actor: Actor::new("test"), event: event.clone() });
    }
    inventory
}

#[track_caller]
fn check(facts: &[Event], wish: Command, expected: &[Event]) {
    assert_eq!(given(facts).decide(&wish).unwrap(), expected);
}

#[test]
fn a_source_is_declared_once_and_changed_when_its_definition_changes() {
    check(&[], declare("one", true), &[declared()]);
    check(&[declared()], declare("one", true), &[]);
    let Declaration { source, kind, origin, definition, enabled } = declaration("two", true);
    check(&[declared()], declare("two", true), &[Event::SourceChanged { source, kind, origin, definition, enabled }]);
}

#[test]
fn disabling_a_source_is_a_fact_once() {
    check(&[declared()], Command::Disable(id("git")), &[disabled()]);
    check(&[declared(), disabled()], Command::Disable(id("git")), &[]);
    check(&[declared(), disabled()], Command::Enable(id("git")), &[Event::SourceEnabled { source: id("git") }]);
    assert_eq!(given(&[]).decide(&Command::Disable(id("git"))).unwrap_err().code, Code::NotFound);
}

#[test]
fn declaring_again_does_not_enable_again_but_an_edit_of_enabled_does() {
    check(&[declared(), disabled()], declare("one", true), &[]);
    let events = given(&[declared()]).decide(&declare("one", false)).unwrap();
    assert!(matches!(events[..], [Event::SourceChanged { enabled: Some(false), .. }, Event::SourceDisabled { .. }]));
    let silent = Declaration { enabled: None, ..declaration("one", true) };
    let said = given(&[declared(), disabled()]).decide(&Command::Declare(silent)).unwrap();
    assert!(matches!(said[..], [Event::SourceChanged { enabled: None, .. }, Event::SourceEnabled { .. }]));
    let mut facts = vec![declared()];
    facts.extend(events);
    facts.push(Event::SourceEnabled { source: id("git") });
    check(&facts, declare("one", false), &[]);
}

#[test]
fn an_unchanged_inventory_writes_no_event_and_a_changed_one_writes_its_delta() {
    let (one, two) = (packed(&[("push", "x"), ("pull", "x")]), packed(&[("push", "y"), ("log", "x")]));
    let first = recorded(&one, &["pull", "push"], vec![], &[]);
    check(&[declared()], record(None, &one), std::slice::from_ref(&first));
    check(&[declared(), first.clone()], record(Some(&one), &one), &[]);
    let change = Change {
        name: "push".into(),
        fields: vec!["description".into()],
        class: Some(Class::Text),
        notes: vec!["its description changed".into()],
    };
    check(&[declared(), first], record(Some(&one), &two), &[recorded(&two, &["log"], vec![change], &["pull"])]);
}

#[test]
fn a_recording_against_another_manifest_is_a_conflict() {
    let (one, two) = (packed(&[("push", "x")]), packed(&[("push", "y")]));
    let inventory = given(&[declared(), recorded(&one, &["push"], vec![], &[])]);
    assert_eq!(inventory.decide(&record(None, &two)).unwrap_err().code, Code::Conflict);
}

#[test]
fn a_lost_manifest_is_replaced_and_only_names_that_came_or_went_are_told() {
    let (one, two) = (packed(&[("push", "x"), ("pull", "x")]), packed(&[("push", "y"), ("log", "x")]));
    let facts = [declared(), recorded(&one, &["pull", "push"], vec![], &[])];
    let wish = Command::Record(Recording { before: Before::Lost(one.fingerprint), after: two.clone(), delta: None });
    check(&facts, wish, &[recorded(&two, &["log"], vec![], &["pull"])]);
}

#[test]
fn a_tool_that_vanishes_is_deprecated_and_keeps_its_dates_when_it_returns() {
    let one = packed(&[("push", "x")]);
    let none = packed(&[]);
    let inventory = given(&[
        declared(),
        recorded(&one, &["push"], vec![], &[]),
        Event::ToolDisabled { source: id("git"), tool: "push".into() },
        recorded(&none, &[], vec![], &["push"]),
        recorded(&one, &["push"], vec![], &[]),
    ]);
    let tool = inventory.source(&id("git")).unwrap().tools["push"];
    let expected =
        ToolState { created_at: Timestamp(2000), updated_at: Timestamp(5000), disabled: true, deprecated: false };
    assert_eq!(tool, expected);
}

#[test]
fn a_removed_source_is_gone_and_its_past_stays() {
    let removed = Event::SourceRemoved { source: id("git") };
    check(&[declared()], Command::Remove(id("git")), std::slice::from_ref(&removed));
    check(&[declared(), removed.clone()], Command::Remove(id("git")), &[]);
    let one = packed(&[("push", "x")]);
    let inventory = given(&[declared(), recorded(&one, &["push"], vec![], &[]), removed, declared()]);
    let state = inventory.source(&id("git")).unwrap();
    assert_eq!((state.manifest, state.tools["push"].deprecated), (None, true));
}

#[test]
fn reconciling_removes_only_what_came_from_a_config_and_is_gone_from_it() {
    let runtime = Event::SourceDeclared {
        source: id("mine"),
        kind: "mcp".into(),
        origin: Origin::Runtime,
        definition: Fingerprint::of("x"),
        enabled: None,
    };
    let inventory = given(&[declared(), runtime]);
    assert!(matches!(&reconcile(&inventory, vec![], &[])[..], [Command::Remove(gone)] if *gone == id("git")));
    assert!(reconcile(&inventory, vec![], &[id("git")]).is_empty());
}

#[test]
fn an_unknown_event_is_counted_and_skipped() {
    let event: Event = serde_json::from_str(r#"{"type":"ToolPainted","source":"git","colour":"red"}"#).unwrap();
    let inventory = given(&[declared(), event]);
    assert_eq!((inventory.unknown_events, inventory.version), (1, 2));
    assert!(inventory.source(&id("git")).is_some());
}

fn token(id: &str, name: &str, now: i64) -> NewToken {
    let expires_at = Some(Timestamp(1_000));
    let (id, name, hash) = (id.to_owned(), name.to_owned(), Fingerprint::of(id));
    NewToken { id, name, role: Role::Agent, hash, expires_at, now: Timestamp(now) }
}

fn token_created(id: &str, name: &str) -> Event {
    let NewToken { id: token, name, role, hash, expires_at, .. } = token(id, name, 0);
    Event::TokenCreated { token, name, role, hash, expires_at }
}

#[test]
fn a_token_has_its_name_alone_until_it_is_revoked_or_expires() {
    let (one, two) = (token_created("a1", "ci"), token_created("b2", "ci"));
    let revoked = Event::TokenRevoked { token: "a1".into(), name: "ci".into() };
    check(&[], Command::CreateToken(token("a1", "ci", 0)), std::slice::from_ref(&one));
    check(std::slice::from_ref(&one), Command::CreateToken(token("a1", "ci", 0)), &[]);
    let second = Command::CreateToken(token("b2", "ci", 999));
    let taken = given(std::slice::from_ref(&one)).decide(&second).unwrap_err();
    assert_eq!((taken.code, taken.retryable()), (Code::Conflict, false));
    check(&[one.clone(), revoked.clone()], second, std::slice::from_ref(&two));
    check(std::slice::from_ref(&one), Command::CreateToken(token("b2", "ci", 1_000)), &[revoked.clone(), two]);
    check(std::slice::from_ref(&one), Command::RevokeToken("a1".into()), std::slice::from_ref(&revoked));
    check(&[one, revoked], Command::RevokeToken("a1".into()), &[]);
}

#[test]
fn a_token_lives_for_a_hundred_years_at_most() {
    let lives = |life: Duration| {
        let new = NewToken { expires_at: Some(Timestamp(1_000).plus(life)), ..token("a1", "ci", 1_000) };
        Inventory::default().decide(&Command::CreateToken(new))
    };
    assert!(lives(LONGEST_LIFE).is_ok());
    for life in [LONGEST_LIFE + Duration::from_millis(1), Duration::MAX] {
        assert_eq!(lives(life).unwrap_err().code, Code::BadRequest);
    }
}

#[test]
fn an_id_means_its_own_token_whatever_others_are_named() {
    let inventory = given(&[token_created("a1", "ci"), token_created("b2", "a1")]);
    assert_eq!(inventory.token("a1").unwrap().name, "ci");
}

#[test]
fn a_token_keeps_its_hash_when_its_name_or_role_changes() {
    let facts = [token_created("a1", "ci"), token_created("b2", "build")];
    let change = |name: Option<&str>, role| {
        Command::ChangeToken(TokenChange { id: "a1".into(), name: name.map(str::to_owned), role })
    };
    let changed = Event::TokenChanged { token: "a1".into(), name: "ci".into(), role: Role::Admin };
    check(&facts, change(None, Some(Role::Admin)), std::slice::from_ref(&changed));
    check(&facts, change(Some("ci"), Some(Role::Agent)), &[]);
    assert_eq!(given(&facts).decide(&change(Some("build"), None)).unwrap_err().code, Code::Conflict);
    assert_eq!(given(&facts).decide(&change(Some("a b"), None)).unwrap_err().code, Code::BadRequest);
    let inventory = given(&[facts[0].clone(), changed]);
    let token = inventory.token("ci").unwrap();
    assert_eq!((token.role, token.hash), (Role::Admin, Fingerprint::of("a1")));
    assert_eq!(inventory.token("a1"), Some(token));
}

/// The journal is read for ever: this file may grow, its lines may not change.
#[test]
fn events_are_written_as_they_always_were() {
    let golden = include_str!("golden_events.jsonl");
    for line in golden.lines() {
        let event: Event = serde_json::from_str(line).unwrap();
        assert_ne!(event, Event::Unknown, "{line}");
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }
    assert_eq!(golden.lines().count(), 13, "one line for each kind of event, and for what was added to one");
}

#[test]
fn what_is_not_understood_is_newer_or_damaged() {
    let newer = |kind: &str| Reading::Newer { kind: kind.to_owned() };
    for (body, kind) in [
        (r#"{"type":"ToolPainted","source":"git","colour":"red"}"#, "ToolPainted"),
        // What this build would refuse in its own events.
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
        assert_eq!(Reading::of(body), newer(kind), "{body}");
    }
    let deep = format!(r#"{{"type":"ToolPainted","x":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
    assert_eq!(Reading::of(&deep), newer("ToolPainted"));
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
        assert!(matches!(Reading::of(body), Reading::Damaged(_)), "{body}: {:?}", Reading::of(body));
    }
    // What is added to a known event is not asked for, and the class of a change has a word for what is new.
    let more = r#"{"type":"SourceEnabled","source":"git","because":["x",{"y":1}]}"#;
    assert_eq!(Reading::of(more), Reading::Known(Event::SourceEnabled { source: id("git") }));
    let class = include_str!("golden_events.jsonl").replace("breaking", "painted");
    assert!(class.lines().all(|line| matches!(Reading::of(line), Reading::Known(_))));
}

/// Stored with each record for older versions to read, so it is held like the events themselves.
#[test]
fn each_event_says_whether_it_may_be_ignored_and_since_when_it_is_known() {
    let golden = include_str!("golden_events.jsonl").lines();
    let stated: Vec<(String, bool, &str)> = golden
        .map(|line| match Reading::of(line) {
            Reading::Known(event) => (type_of(line).unwrap(), event.critical(), event.since()),
            other @ (Reading::Newer { .. } | Reading::Damaged(_)) => panic!("{line}: {other:?}"),
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
    for (kind, is_critical, since) in &stated {
        assert_eq!(*is_critical, critical.contains(&kind.as_str()), "{kind}");
        assert_eq!(*is_critical, Event::is_critical_type(kind), "{kind}");
        assert_eq!(*since, "0.1.0", "{kind}");
    }
    assert!(!Event::is_critical_type("ToolPainted"));
}

#[test]
fn versions_are_ordered_by_their_numbers() {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (one, other, order) in [
        ("0.1.0", "0.1.0", Equal),
        ("0.10.0", "0.9.9", Greater),
        ("1.0", "1.0.0", Equal),
        ("0.2.0-rc.1", "0.2.0", Equal),
        ("0.2.0+build", "0.1.9", Greater),
        ("soon", "0.0.1", Less),
        ("", "0.0.0", Equal),
    ] {
        assert_eq!(compare_versions(one, other), order, "{one} {other}");
    }
}

fn wish() -> impl Strategy<Value = Command> {
    let name = prop_oneof![Just("git"), Just("mail")];
    let tool = prop_oneof![Just("push"), Just("pull"), Just("log")];
    let tool_id =
        (name.clone(), tool.clone()).prop_map(|(source, tool)| ToolId { source: id(source), name: tool.into() });
    prop_oneof![
        (name.clone(), "[ab]", any::<bool>(), any::<bool>()).prop_map(|(source, definition, enabled, config)| {
            let origin = if config { Origin::Config } else { Origin::Runtime };
            Command::Declare(Declaration { source: id(source), origin, ..declaration(&definition, enabled) })
        }),
        name.clone().prop_map(|source| Command::Enable(id(source))),
        name.clone().prop_map(|source| Command::Disable(id(source))),
        name.prop_map(|source| Command::Remove(id(source))),
        tool_id.clone().prop_map(Command::EnableTool),
        tool_id.prop_map(Command::DisableTool),
        prop::collection::btree_map(tool, "[xy]", 0..3).prop_map(|tools| {
            let tools: Vec<(&str, &str)> = tools.iter().map(|(name, text)| (*name, text.as_str())).collect();
            record(None, &packed(&tools))
        }),
    ]
}

proptest! {
    /// After its own events are taken in, a wish finds nothing left to do.
    #[test]
    fn deciding_again_after_applying_is_empty(wishes in prop::collection::vec(wish(), 1..30)) {
        let mut inventory = Inventory::default();
        let mut current: Option<Arc<Packed>> = None;
        for mut wish in wishes {
            if let Command::Record(recording) = &mut wish {
                let manifest = inventory.source(&id("git")).and_then(|state| state.manifest);
                let known = current.clone().filter(|packed| Some(packed.fingerprint) == manifest);
                recording.before = known.map_or(Before::Nothing, Before::Known);
            }
            let Ok(events) = inventory.decide(&wish) else { continue };
            for event in events {
                let (seq, at) = (inventory.version + 1, Timestamp(0));
                inventory.apply(&Record { seq, at, actor: Actor::new("test"), event });
            }
            if let Command::Record(recording) = &wish {
                current = Some(recording.after.clone());
            }
            // Removing twice, and all else, is the same as once.
            prop_assert_eq!(inventory.decide(&wish).unwrap_or_default(), vec![]);
        }
    }
}
