//! Hidden and control characters: which parts of tool lists and results reach an agent.

use std::io::{BufRead, BufReader};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib::core::manifest::{Manifest, PackedManifest, ToolLimits};
use toolcrib::core::tool::{Tool, ToolNote};
use toolcrib::testkit::ScriptedSource;
use toolcrib::{CallContext, ResultPaging};
use toolcrib_testkit::programs;

use crate::support::{agent, call, config, force_refresh, id, list_tools, open, open_yaml, output_text, wait_until};

const DIRTY: &str = "a\u{202e}b\u{1b}[31mc\u{e0041}\u{200b}d\u{3164} ⚠\u{fe0f} 👩\u{200d}💻 می\u{200c}خواهم\r\n";
const CLEAN: &str = "abcd ⚠\u{fe0f} 👩\u{200d}💻 می\u{200c}خواهم\r\n";

#[tokio::test(start_paused = true)]
async fn text_content_is_cleaned_and_structured_content_is_not() {
    let say = ScriptedSource::new(["say"]);
    say.set_reply(|_, _| {
        json!({
            "content": [{ "type": "text", "text": DIRTY }, { "type": "resource", "resource": { "uri": "x:y", "text": DIRTY } }],
            "structuredContent": { "said": DIRTY },
        })
    });
    let fixture = open(&[("git", &say)]).await;
    let output = call(&fixture, "git__say", json!({})).await.unwrap();
    let content: Value = serde_json::from_str(output.content()).unwrap();
    assert_eq!((&content[0]["text"], &content[1]["resource"]["text"]), (&json!(CLEAN), &json!(CLEAN)));
    let structured: Value = serde_json::from_str(output.structured().unwrap()).unwrap();
    assert_eq!(structured["said"], DIRTY);
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_cleaned_on_every_page() {
    let say = ScriptedSource::new(["say"]);
    say.set_reply(|_, _| json!("x\u{202e}".repeat(300_000)));
    let fixture = open(&[("git", &say)]).await;
    let output = fixture.call("git__say", json!({})).paging(ResultPaging::Whole).caller(agent()).await.unwrap();
    assert_eq!(output_text(&output), "x".repeat(300_000));
    let mut output = call(&fixture, "git__say", json!({})).await.unwrap();
    let mut read = 0;
    loop {
        assert!(!output.content().contains('\u{202e}') && !output.content().contains("\\u202e"));
        read += output_text(&output).matches('x').count();
        let Some(next) = output.page.as_ref().and_then(|page| page.next.clone()) else { break };
        output = fixture.result_page(&next, &CallContext { caller: agent(), ..CallContext::default() }).unwrap();
    }
    assert_eq!(read, 300_000);
}

#[tokio::test(start_paused = true)]
async fn raw_results_are_passed_unchanged_and_the_setting_needs_no_reconnect() {
    let say = ScriptedSource::new(["say"]);
    say.set_reply(|_, _| json!(DIRTY));
    let yaml = |settings: &str| format!("sources: {{ git: {{ command: scripted{settings} }} }}");
    let fixture = open_yaml(&yaml(", results: raw"), &[("git", &say)]).await;
    let result_text = async || output_text(&call(&fixture, "git__say", json!({})).await.unwrap());
    assert_eq!(result_text().await, DIRTY);
    for (settings, expected) in [("", CLEAN), (", results: raw", DIRTY), (", results: clean", CLEAN)] {
        fixture.configuration().apply(&config(&yaml(settings))).await.unwrap();
        assert_eq!(result_text().await, expected, "{settings}");
    }
    let defaults = format!("{}\ndefaults: {{ results: raw }}", yaml(""));
    fixture.configuration().apply(&config(&defaults)).await.unwrap();
    assert_eq!(result_text().await, DIRTY);
    assert_eq!(say.discoveries(), 1);
    // Any other change reconnects. Exactly one close afterwards proves that the changes above did not.
    fixture.configuration().apply(&config(&yaml(", title: Other"))).await.unwrap();
    wait_until("the connection is closed", || say.closes() > 0).await;
    assert_eq!(say.closes(), 1);
}

/// An older version stored such lists; the fingerprints are the same, because they cover what the source sent.
#[tokio::test(start_paused = true)]
async fn a_list_that_was_stored_with_hidden_characters_is_clean_after_a_refresh() {
    let tool = json!({ "name": "say", "description": DIRTY, "inputSchema": {} });
    let git = ScriptedSource::new([tool.clone()]);
    let fixture = open(&[("git", &git)]).await;
    list_tools(&fixture).await;
    let mut old = Manifest::new(&id("git"), &[to_raw_value(&tool).unwrap()], Vec::new(), &ToolLimits::default());
    for (tool, _) in &mut old.tools {
        tool.listing.description = DIRTY.into();
        tool.original = Default::default();
    }
    fixture.store.put_manifest(&PackedManifest::new(&old).unwrap()).await.unwrap();

    let registry = fixture.open_again("sources: { git: { command: scripted } }").await;
    let described =
        || registry.unrestricted_catalog().find("git__say").unwrap().tool().unwrap().listing.description.clone();
    assert_eq!(described(), DIRTY);
    let journal = fixture.journal_len().await;
    let hash = registry.unrestricted_catalog().hash();
    let outcome = force_refresh(&registry, "git").await;
    assert!(outcome.changed.is_empty() && outcome.added.is_empty() && outcome.removed.is_empty(), "{outcome:?}");
    assert_eq!(described(), CLEAN.replace('\r', ""));
    assert_eq!((fixture.journal_len().await, registry.unrestricted_catalog().hash()), (journal, hash));
    let reopened = fixture.open_again("sources: { git: { command: scripted } }").await;
    let stored = reopened.unrestricted_catalog().find("git__say").unwrap().tool().unwrap().listing.description.clone();
    assert_eq!(stored, CLEAN.replace('\r', ""));
}

const SCOTLAND_FLAG: &str = "🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}";

/// Returns all text of a tool that an agent reads.
fn agent_text(tool: &Tool) -> String {
    let raw = |raw: Option<&RawValue>| raw.map(RawValue::get).unwrap_or_default().to_owned();
    let face = &tool.listing;
    [
        face.title.clone().unwrap_or_default(),
        face.description.clone(),
        raw(Some(&face.input_schema)),
        raw(face.annotations.as_deref()),
        raw(tool.output_schema.as_deref()),
    ]
    .join("\n")
}

/// Written independently of the tested code.
fn is_hidden_character(character: char) -> bool {
    let code = u32::from(character);
    (character.is_control() && !matches!(character, '\n' | '\t'))
        || matches!(code, 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x2800 | 0x3164 | 0xffa0 | 0xfeff)
        || matches!(code, 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f)
        || matches!(code, 0xe000..=0xf8ff | 0xe0000..=0xe0fff | 0xf0000..=0x10ffff)
}

#[test]
fn no_hidden_character_of_the_collected_attacks_reaches_an_agent() {
    let Some(data) = programs::data_dir() else { return programs::skip("collected attacks", "there is no test data") };
    let mut tricks = 0;
    for file in ["malicious", "selfauthored", "benign"] {
        let lines = BufReader::new(std::fs::File::open(data.join(format!("attacks/{file}.jsonl"))).unwrap()).lines();
        for line in lines {
            let entry: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let mut tool = json!({
                "name": entry["name"],
                "title": entry["description"],
                "description": entry["description"],
                "annotations": { "title": entry["description"] },
                "inputSchema": { "properties": { "a": { "description": entry["description"] } } },
            });
            if entry["inputSchema"].is_object() {
                tool["inputSchema"] = entry["inputSchema"].clone();
            }
            let manifest =
                Manifest::new(&id("git"), &[to_raw_value(&tool).unwrap()], Vec::new(), &ToolLimits::default());
            // Control characters are escaped in JSON, so the raw description is checked too.
            let description = entry["description"].as_str().unwrap();
            let is_trick = description.chars().chain(tool.to_string().chars()).any(is_hidden_character);
            tricks += usize::from(is_trick);
            match manifest.tools.first() {
                Some((listed, _)) => {
                    // Joined emoji and the flag of Scotland are legitimate uses in a benign description.
                    let text = agent_text(listed).replace("👨\u{200d}👩\u{200d}👧", "").replace(SCOTLAND_FLAG, "");
                    assert!(!text.chars().any(is_hidden_character), "{}: {text:?}", entry["id"]);
                    let may_change = is_trick && entry["label"] != "benign";
                    assert!(may_change || listed.original.is_empty(), "{} changed without a reason", entry["name"]);
                }
                None => assert!(is_trick, "{} was skipped: {:?}", entry["name"], manifest.skipped),
            }
        }
    }
    assert!(tricks >= 10, "{tricks}");
}

#[test]
fn no_text_of_a_real_list_is_changed() {
    let Some(recordings) = programs::recorded_tool_lists() else {
        return programs::skip("real lists", "there is no test data");
    };
    let mut count = 0;
    let mut emoji = 0;
    for recording in recordings {
        let offered: Vec<Box<RawValue>> = recording.tools.iter().map(|tool| to_raw_value(tool).unwrap()).collect();
        let manifest = Manifest::new(&id("git"), &offered, Vec::new(), &ToolLimits::default());
        for (tool, _) in &manifest.tools {
            count += 1;
            emoji += agent_text(tool).matches('\u{fe0f}').count();
            let is_changed = tool.notes.contains(&ToolNote::TextCleaned);
            assert!(!is_changed, "{} of {}: {:?}", tool.name, recording.server, tool.original);
        }
        let hidden = manifest.skipped.iter().find(|refused| refused.reason.contains("hidden"));
        assert!(hidden.is_none(), "{hidden:?}");
    }
    assert!(count > 1_500 && emoji >= 30, "{count} tools, {emoji} emoji in emoji style");
}
