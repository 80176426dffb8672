use serde_json::Value;

use super::*;
use crate::tool::ToolNote;

fn source_id() -> SourceId {
    SourceId::parse("git").unwrap()
}

fn manifest(tools: &[&str]) -> Manifest {
    let offered: Vec<Box<RawValue>> = tools.iter().map(|text| RawValue::from_string((*text).into()).unwrap()).collect();
    Manifest::new(&source_id(), &offered, Vec::new(), &ToolLimits::default())
}

fn tool_names(manifest: &Manifest) -> Vec<&str> {
    manifest.tools.iter().map(|(tool, _)| tool.name.as_str()).collect()
}

fn skip_reason(tool: &str) -> String {
    let manifest = manifest(&[r#"{"name":"good","description":"x","inputSchema":{}}"#, tool]);
    assert_eq!(tool_names(&manifest), ["good"]);
    let tool = &manifest.skipped[0];
    format!("{}: {}", tool.name, tool.reason)
}

#[test]
fn an_invalid_tool_is_skipped_and_the_others_stay() {
    for (tool, reason) in [
        ("1", "#2: it is not a JSON object"),
        ("{}", "#2: it has no name"),
        (r#"{"name":7}"#, "#2: it has no name"),
        (r#"{"name":"a\ud800"}"#, "#2: its name is not valid Unicode"),
        ("{\"name\":\"a\u{fffd}\"}", "a\u{fffd}: its name is not valid UTF-8"),
        (r#"{"name":" "}"#, "#2: its name is empty"),
        (r#"{"name":"b","inputSchema":true}"#, "b: its input schema is not a JSON object"),
        (r#"{"name":"b","inputSchema":[1]}"#, "b: its input schema is not a JSON object"),
        (
            r#"{"name":"b","inputSchema":{"properties":{"a":{"$ref":"https://x.y/z"}}}}"#,
            "b: its input schema refers to `https://x.y/z`, outside of itself",
        ),
        (r#"{"name":"good"}"#, "good: the source offers this name twice; the first one is kept"),
    ] {
        assert_eq!(skip_reason(tool), reason);
    }
    let deep = format!(r#"{{"name":"b","inputSchema":{}1{}}}"#, r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    assert_eq!(skip_reason(&deep), "b: its input schema is nested deeper than 64 levels");
    let large = format!(r#"{{"name":"b","inputSchema":{{"title":"{}"}}}}"#, "x".repeat(256 * 1024));
    assert_eq!(skip_reason(&large), "b: its input schema is larger than 262144 bytes");
}

#[test]
fn missing_fields_get_defaults_and_a_note() {
    let manifest = manifest(&[r#"{"name":"push","description":"  "}"#]);
    let (tool, _) = &manifest.tools[0];
    assert_eq!(tool.listing.description, "git tool: push");
    assert_eq!(tool.listing.input_schema.get(), r#"{"type":"object"}"#);
    assert_eq!(tool.notes, [ToolNote::NoSchema, ToolNote::NoDescription]);
}

#[test]
fn texts_are_sanitised_and_the_originals_are_kept() {
    let manifest = manifest(&[r#"{"name":"push","title":"P","description":"a\u001b[31mb\u202e","inputSchema":{}}"#]);
    let (tool, _) = &manifest.tools[0];
    assert_eq!(tool.listing.description, "ab");
    assert_eq!(tool.original.get("description").unwrap().get(), r#""a\u001b[31mb\u202e""#);
    assert_eq!(tool.notes, [ToolNote::TextCleaned]);
}

#[test]
fn the_fingerprint_depends_on_content_alone() {
    let manifest_a = manifest(&[r#"{"name":"a","inputSchema":{"x":1,"y":2}}"#, r#"{"name":"b"}"#]);
    let manifest_b = manifest(&[r#"{"name":"b"}"#, r#"{ "inputSchema":{"y":2, "x":1}, "name":"a"}"#]);
    assert_eq!(manifest_a.fingerprint, manifest_b.fingerprint);
    let changed = manifest(&[r#"{"name":"a","inputSchema":{"x":1,"y":3}}"#, r#"{"name":"b"}"#]);
    assert_ne!(manifest_a.fingerprint, changed.fingerprint);
    // Schemas keep the order of their keys for output.
    assert_eq!(manifest_b.tools[0].0.listing.input_schema.get(), r#"{"y":2,"x":1}"#);
}

#[test]
fn a_packed_manifest_round_trips() {
    let raw = r#"{"name":"a","title":"A","description":"d","inputSchema":{"n":123456789012345678901234567890},"outputSchema":{},"annotations":{"readOnlyHint":true},"execution":{"x":1},"_meta":{"k":"}"}}"#;
    let packed = PackedManifest::new(&manifest(&[raw, r#"{"name":"b"}"#])).unwrap();
    let read =
        PackedManifest::read(packed.fingerprint, &packed.index_json().unwrap(), packed.body.to_string()).unwrap();
    let tool = read.tool(&read.tools[0]).unwrap();
    assert_eq!(tool.listing.input_schema.get(), r#"{"n":123456789012345678901234567890}"#);
    assert_eq!(tool.extra.get("execution").unwrap().get(), r#"{"x":1}"#);
    let listed: Value = serde_json::from_str(&format!("{{{}}}", read.listing_json(&read.tools[0]))).unwrap();
    let keys: Vec<&str> = listed.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["title", "description", "input_schema", "annotations"]);
    assert!(PackedManifest::read(packed.fingerprint, &packed.index_json().unwrap(), "short".into()).is_err());
}

#[test]
fn offered_fields_are_restored_and_verified() {
    let manifest = manifest(&[
        r#"{"name":"a","title":null,"description":7,"inputSchema":null,"outputSchema":null,"annotations":"x","z":1}"#,
        r#"{"name":"b","description":"a\u001bb","inputSchema":{"b":1,"a":2}}"#,
        r#"{"name":"c"}"#,
    ]);
    let packed = PackedManifest::new(&manifest).unwrap();
    assert_eq!(packed.find_damage(), None);
    let mut other = packed.clone();
    other.body = std::sync::Arc::new(packed.body.replace("\"z\":1", "\"z\":2"));
    assert_eq!(other.find_damage().unwrap(), "the stored tool `a` does not match its fingerprint");
}

#[test]
fn a_stored_tool_with_ninety_thousand_unknown_fields_is_verified_at_once() {
    let fields: String = (0..90_000).map(|number| format!(r#","u{number}":0"#)).collect();
    let manifest = manifest(&[&format!(r#"{{"name":"a"{fields}}}"#)]);
    assert_eq!(PackedManifest::new(&manifest).unwrap().find_damage(), None);
}

#[test]
fn hidden_characters_are_removed_from_schema_texts() {
    let manifest = manifest(&[
        r#"{"name":"a","inputSchema":{"properties":{"default":{"description":"hi\u202e\udb40\udc41\u001b[31m!","enum":["👩\u200d💻"]}},"title":"cut\ud83e","n":1.0e400}}"#,
        r#"{"name":"b","inputSchema":{"title":"caf\u00e9"}}"#,
        r#"{"name":"c","inputSchema":{},"outputSchema":{"title":"o\u200b"},"annotations":{"title":"t\u2066","readOnlyHint":true}}"#,
    ]);
    let tool = |index: usize| &manifest.tools[index].0;
    assert_eq!(
        tool(0).listing.input_schema.get(),
        "{\"properties\":{\"default\":{\"description\":\"hi!\",\"enum\":[\"👩\\u200d💻\"]}},\"title\":\"cut\u{fffd}\",\"n\":1.0e400}"
    );
    assert_eq!(tool(1).listing.input_schema.get(), r#"{"title":"caf\u00e9"}"#);
    assert_eq!(tool(2).output_schema.as_ref().unwrap().get(), r#"{"title":"o"}"#);
    assert_eq!(tool(2).listing.annotations.as_ref().unwrap().get(), r#"{"title":"t","readOnlyHint":true}"#);
    for (index, keys) in [(0, vec!["inputSchema"]), (1, vec![]), (2, vec!["outputSchema", "annotations"])] {
        let original_keys: Vec<&str> =
            tool(index).original.iter().map(|(key, _)| key).filter(|key| *key != "description").collect();
        assert_eq!(original_keys, keys);
    }
    assert_eq!(PackedManifest::new(&manifest).unwrap().find_damage(), None);
}

#[test]
fn a_tool_with_hidden_characters_in_names_or_values_is_skipped() {
    for (schema, location) in [
        (r#"{"properties":{"pa\u200bth":{}}}"#, "the name `path`"),
        (r#"{"properties":{"a":{"properties":{"b\udb40\udc41":{}}}}}"#, "the name `b`"),
        (r#"{"$defs":{"x\u2060":{}}}"#, "the name `x`"),
        (r#"{"patternProperties":{"^x\u3164":{}}}"#, "the name `^x`"),
        (r#"{"properties":{"a":{"enum":["x","y\u200b"]}}}"#, "a value of `enum`"),
        (r#"{"properties":{"a":{"const":{"k\u200b":1}}}}"#, "a value of `const`"),
        (r#"{"properties":{"a":{"default":["\u001b[31m"]}}}"#, "a value of `default`"),
        (r#"{"properties":{"a":{"default":"\ud800"}}}"#, "a value of `default`"),
        (r#"{"properties":{"a":{"pattern":"^\udb40\udc41$"}}}"#, "a value of `pattern`"),
        (r#"{"required":["a","b\udb40\udc41"]}"#, "a value of `required`"),
        (r#"{"anyOf":[{"properties":{"\u202ex":{}}}]}"#, "the name `x`"),
        (r#"{"properties":{"\ud800":{"description":"\u200b"}}}"#, "a name that is not valid Unicode"),
    ] {
        let tool = format!(r#"{{"name":"b","inputSchema":{schema}}}"#);
        assert_eq!(skip_reason(&tool), format!("b: its input schema has hidden characters in {location}"));
        let tool = format!(r#"{{"name":"b","inputSchema":{{}},"outputSchema":{schema}}}"#);
        assert_eq!(skip_reason(&tool), format!("b: its output schema has hidden characters in {location}"));
        let tool = format!(r#"{{"name":"b","inputSchema":{{}},"x-toolcrib-backing":{{"input_schema":{schema}}}}}"#);
        assert_eq!(skip_reason(&tool), format!("b: its whole input schema has hidden characters in {location}"));
    }
    // Allowed: line breaks in values, control characters in patterns, and joiners that some scripts need.
    let harmless = r#"{"properties":{"a":{"enum":["\r\n","\n","\t"],"pattern":"[^\u0000-\u001f\u007f]"},"می\u200cخواهم":{"default":"❤\ufe0f"}}}"#;
    let manifest = manifest(&[&format!(r#"{{"name":"b","inputSchema":{harmless}}}"#)]);
    assert_eq!(tool_names(&manifest), ["b"], "{:?}", manifest.skipped);
}

#[test]
fn the_index_has_tags_and_visibility_and_is_readable_without_them() {
    let tools = manifest(&[
        r#"{"name":"a","_meta":{"ui":{"visibility":["app"]}}}"#,
        r#"{"name":"b","_meta":{"ui":{"visibility":["model","app"]}}}"#,
        r#"{"name":"c","_meta":{"ui":{"visibility":"app"}}}"#,
        r#"{"name":"d","x-toolcrib-backing":{"execution":{"mode":"mcp_call"},"tags":["x","x","\u202ey",""]}}"#,
    ]);
    let packed = PackedManifest::new(&tools).unwrap();
    let traits: Vec<(bool, &[String])> =
        packed.tools.iter().map(|tool| (tool.traits.app_only, &*tool.traits.tags)).collect();
    let tags = ["x".to_owned(), "y".to_owned()];
    assert_eq!(traits, [(true, &[][..]), (false, &[]), (false, &[]), (false, &tags)]);
    let index = packed.index_json().unwrap();
    let read = PackedManifest::read(packed.fingerprint, &index, (*packed.body).clone()).unwrap();
    assert_eq!((read.has_traits, &read.tools), (true, &packed.tools));
    // As an older version wrote it.
    let mut old: Value = serde_json::from_str(&index).unwrap();
    old.as_object_mut().unwrap().remove("traits");
    for tool in old["tools"].as_array_mut().unwrap() {
        tool.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "tags" | "app_only"));
    }
    let read = PackedManifest::read(packed.fingerprint, &old.to_string(), (*packed.body).clone()).unwrap();
    assert!(!read.has_traits && read.tools.iter().all(|tool| tool.traits == ListTraits::default()));
}

#[test]
fn the_order_of_keys_is_no_other_content() {
    let one = PackedManifest::new(&manifest(&[r#"{"name":"a","inputSchema":{"type":"object","title":"t"}}"#])).unwrap();
    let other =
        PackedManifest::new(&manifest(&[r#"{"inputSchema":{"title":"t","type":"object"},"name":"a"}"#])).unwrap();
    assert_eq!(one.fingerprint, other.fingerprint);
    assert!(one.body != other.body && one.has_same_content(&other));
    let with_about = PackedManifest { about: Some("Shop".into()), ..other.clone() };
    assert!(!one.has_same_content(&with_about));
    let mut damaged = other;
    damaged.body = std::sync::Arc::new(damaged.body.replace("\"t\"", "\"u\""));
    assert!(!one.has_same_content(&damaged));
}

#[test]
fn a_list_is_identified_by_its_description_unless_it_was_recorded_without() {
    let list = |about: Option<&str>| PackedManifest {
        about: about.map(Into::into),
        ..PackedManifest::new(&manifest(&[r#"{"name":"a"}"#])).unwrap()
    };
    let record = |known: Option<&PackedManifest>, about| list(about).with_recorded_fingerprint(known);
    let (shop, market) = (record(None, Some("Shop")), record(None, Some("Market")));
    assert_eq!(record(None, None).fingerprint, list(None).fingerprint);
    assert!(shop.fingerprint != market.fingerprint && shop.fingerprint != list(None).fingerprint);
    assert_eq!(record(Some(&market), Some("Shop")).fingerprint, shop.fingerprint);
    assert_eq!(record(Some(&shop), Some("Shop")).fingerprint, shop.fingerprint);
    // As an older version recorded it.
    let old = list(Some("Shop"));
    assert_eq!(record(Some(&old), Some("Shop")).fingerprint, old.fingerprint);
    assert_eq!(record(Some(&old), Some("Market")).fingerprint, market.fingerprint);
    let without = record(Some(&old), None);
    assert_ne!(without.fingerprint, old.fingerprint);
    assert_eq!(record(Some(&without), None).fingerprint, without.fingerprint);
    for manifest in [&shop, &market, &old, &without] {
        assert_eq!(manifest.find_damage(), None);
    }
}
