use serde_json::{Value, json};

use super::*;

fn source_id() -> SourceId {
    SourceId::parse("git").unwrap()
}

fn items(values: &[Value]) -> OfferedList {
    OfferedList::Items(values.iter().map(|value| RawValue::from_string(value.to_string()).unwrap()).collect())
}

fn offered(prompts: &[Value], resources: &[Value], instructions: Option<&str>) -> OfferedFeatures {
    let lists = ByFeatureKind {
        prompts: items(prompts),
        resources: items(resources),
        resource_templates: OfferedList::default(),
    };
    OfferedFeatures { lists, instructions: instructions.map(str::to_owned), skipped: Vec::new() }
}

fn list(prompts: &[Value], resources: &[Value], instructions: Option<&str>) -> FeatureList {
    FeatureList::new(&source_id(), offered(prompts, resources, instructions), None)
}

fn keys(list: &FeatureList, kind: FeatureKind) -> Vec<&str> {
    list.features(kind).iter().map(|feature| feature.key.as_str()).collect()
}

#[test]
fn the_fingerprint_depends_on_the_content_alone() {
    let (a, b) = (json!({"name": "a", "description": "A"}), json!({"name": "b"}));
    let one = list(&[a.clone(), b.clone()], &[], Some("Use it."));
    assert_eq!(
        one.summary.fingerprint,
        list(&[b.clone(), a.clone()], &[], Some("Use it.")).summary.fingerprint,
        "order of items"
    );
    let reordered = RawValue::from_string(r#"{ "description":"A", "name":"a" }"#.to_owned()).unwrap();
    let mut other = offered(std::slice::from_ref(&b), &[], Some("Use it."));
    other.lists.prompts = match other.lists.prompts {
        OfferedList::Items(mut items) => {
            items.push(reordered);
            OfferedList::Items(items)
        }
        OfferedList::Failed => OfferedList::Failed,
    };
    assert_eq!(
        one.summary.fingerprint,
        FeatureList::new(&source_id(), other, None).summary.fingerprint,
        "order of fields"
    );
    for other in [
        list(std::slice::from_ref(&a), &[], Some("Use it.")),
        list(&[a.clone(), json!({"name": "b", "x": 1})], &[], Some("Use it.")),
        list(&[a, b], &[], Some("Use it well.")),
    ] {
        assert_ne!(one.summary.fingerprint, other.summary.fingerprint);
    }
}

#[test]
fn texts_are_sanitised_and_unknown_fields_kept() {
    let prompt = json!({"name": "review", "description": "Reviews\u{200b} it", "x-vendor": 1.50,
        "arguments": [{"name": "path", "description": "A\u{202e} path", "required": true}]});
    let list = list(&[prompt], &[], Some("Be\u{200b} brief.\n\nAlways."));
    let feature = list.find(FeatureKind::Prompt, "review").unwrap();
    let item: Value = serde_json::from_str(list.json(feature)).unwrap();
    assert_eq!(item["description"], "Reviews it");
    assert_eq!(item["arguments"][0], json!({"name": "path", "description": "A path", "required": true}));
    assert_eq!(item["x-vendor"], 1.5);
    assert_eq!(list.summary.instructions.as_deref(), Some("Be brief.\n\nAlways."));
}

#[test]
fn unusable_items_are_skipped_with_a_reason() {
    let list = list(
        &[
            json!({"name": "ok"}),
            json!({"name": "ok", "description": "again"}),
            json!({"name": "hid\u{200b}den"}),
            json!({"description": "nameless"}),
            json!(7),
            json!({"name": "arguments", "arguments": [{"name": "pa\u{200b}th"}]}),
            json!({"name": "large", "description": "x".repeat(300_000)}),
            json!({"name": "not a list", "arguments": "x"}),
            json!({"name": "nameless argument", "arguments": [{"nope": 1}, 3]}),
            json!({"name": "other argument", "arguments": [3, {"name": "hid\u{200b}den"}]}),
        ],
        &[json!({"uri": format!("file:///{}", "a".repeat(3000))}), json!({"uri": "file:///b", "name": "b"})],
        None,
    );
    assert_eq!(keys(&list, FeatureKind::Prompt), ["ok"]);
    assert_eq!(keys(&list, FeatureKind::Resource), ["file:///b"]);
    let skipped: Vec<String> =
        list.summary.skipped.iter().map(|item| format!("{}: {}", item.name, item.reason)).collect();
    assert_eq!(
        skipped,
        [
            "prompt #4: it has no `name`",
            "prompt #5: it is not a JSON object",
            "prompt #7: it is larger than 262144 bytes",
            "prompt arguments: the name of an argument has hidden or invalid characters",
            "prompt hidden: its `name` has hidden or invalid characters",
            "prompt nameless argument: its `arguments` are not a list of objects with a `name`",
            "prompt not a list: its `arguments` are not a list of objects with a `name`",
            "prompt ok: the source offers this prompt twice; the first one is kept",
            "prompt other argument: its `arguments` are not a list of objects with a `name`",
            "resource #1: its `uri` is longer than 2048 bytes",
        ]
    );
}

/// Official clients refuse a whole list for one field of the wrong type.
#[test]
fn fields_of_the_wrong_type_are_dropped_and_missing_names_filled_in() {
    let good_prompt = json!({"name": "good", "title": "T", "description": "D", "icons": [{"src": "x", "sizes": ["any"]}],
        "_meta": {"k": 1}, "arguments": [{"name": "a", "title": "T", "description": "D", "required": true}], "x": [1]});
    let bad_prompt = json!({"name": "bad", "title": 1, "description": {}, "icons": "no", "_meta": [],
        "arguments": [{"name": "a", "title": null, "description": 1, "required": "yes", "x": null}], "x": null});
    let annotations = json!({"priority": 0.5, "audience": ["user"], "lastModified": "2025-01-12T15:00:58Z"});
    let good_resource = json!({"uri": "x://good", "name": "n", "mimeType": "text/plain", "size": 12,
        "annotations": annotations, "icons": [{"src": "x", "theme": "dark"}], "_meta": {}});
    let bad_resource = json!({"uri": "x://bad", "mimeType": 1, "size": "big", "icons": [{"sizes": []}], "_meta": null,
        "annotations": {"priority": "high", "audience": "user"}});
    let late = json!({"uri": "x://late", "name": "", "annotations": {"lastModified": "yesterday"}, "size": 1.5});
    let partly = json!({"uri": "x://partly", "name": "n", "annotations": {"lastModified": "today", "priority": 1}});
    let list = list(&[good_prompt.clone(), bad_prompt], &[good_resource.clone(), bad_resource, late, partly], None);
    let item = |kind, key: &str| -> Value { serde_json::from_str(list.json(list.find(kind, key).unwrap())).unwrap() };
    assert_eq!(item(FeatureKind::Prompt, "good"), good_prompt);
    assert_eq!(
        item(FeatureKind::Prompt, "bad"),
        json!({"name": "bad", "arguments": [{"name": "a", "x": null}], "x": null})
    );
    assert_eq!(item(FeatureKind::Resource, "x://good"), good_resource);
    assert_eq!(item(FeatureKind::Resource, "x://bad"), json!({"uri": "x://bad", "name": "x://bad"}));
    assert_eq!(item(FeatureKind::Resource, "x://late"), json!({"uri": "x://late", "name": "x://late"}));
    assert_eq!(item(FeatureKind::Resource, "x://partly")["annotations"], json!({"priority": 1}));
}

#[test]
fn a_list_that_could_not_be_read_stays() {
    let known = list(&[json!({"name": "a"}), json!({"x": 1})], &[json!({"uri": "file:///a"})], Some("one"));
    let mut next = offered(&[], &[json!({"uri": "file:///b"})], Some("two"));
    next.lists.prompts = OfferedList::Failed;
    let after = FeatureList::new(&source_id(), next.clone(), Some(&known));
    assert_eq!(keys(&after, FeatureKind::Prompt), ["a"]);
    assert_eq!(keys(&after, FeatureKind::Resource), ["file:///b"]);
    assert_eq!(after.summary.skipped, known.summary.skipped);
    let changes = after.changes_since(Some(&known));
    assert!(changes.lists.prompts.is_empty() && changes.instructions_changed);
    let expected =
        FeatureDelta { added: vec!["file:///b".into()], removed: vec!["file:///a".into()], ..FeatureDelta::default() };
    assert_eq!(changes.lists.resources, expected);
    assert_eq!(keys(&FeatureList::new(&source_id(), next, None), FeatureKind::Prompt), [""; 0]);
}

#[test]
fn a_stored_list_is_read_back_and_damage_is_found() {
    let list = list(&[json!({"name": "a", "title": "A"})], &[json!({"uri": "file:///ä", "name": "ä\nö"})], Some("one"));
    let fingerprint = list.summary.fingerprint;
    let summary = list.summary.to_json().unwrap();
    assert_eq!(FeatureSummary::read(fingerprint, &summary).unwrap(), list.summary);
    let items = list.items_text().unwrap();
    let read = FeatureList::read(fingerprint, &summary, &items).unwrap();
    assert_eq!(read, list);
    assert_eq!(read.find_damage(), None);
    let damaged = items.replace("\"title\":\"A\"", "\"title\":\"B\"");
    let damaged = FeatureList::read(fingerprint, &summary, &damaged).unwrap();
    assert_eq!(damaged.find_damage().unwrap(), "the stored prompt `a` does not match its fingerprint");
    for (text, other) in [("\"one\"", "\"two\""), ("\"prompts\":1", "\"prompts\":2")] {
        let other_text = summary.replace(text, other);
        let damaged = FeatureList::read(fingerprint, &other_text, &items).unwrap();
        assert_eq!(damaged.find_damage().unwrap(), "the stored prompts and resources do not match their fingerprint");
    }
    for damaged in ["{}", "", items.lines().next().unwrap()] {
        assert!(FeatureList::read(fingerprint, &summary, damaged).is_err(), "{damaged}");
    }
}

#[test]
fn a_summary_is_small_whatever_the_number_of_items() {
    let resources: Vec<Value> = (0..5_000).map(|number| json!({"uri": format!("file:///{number}")})).collect();
    let list = list(&[], &resources, None);
    assert_eq!(list.summary.counts.resources, 5_000);
    assert!(list.summary.to_json().unwrap().len() < 1_000);
    let delta = list.changes_since(None).lists.resources.truncated(2);
    assert_eq!(delta.added, ["file:///0", "file:///1"]);
    assert_eq!(delta.omitted, OmittedNames { added: 4_998, ..OmittedNames::default() });
}
