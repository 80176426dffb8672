//! Tests the contents of console pages: counts, limits of arguments, errors, and unknown tools and pages.

use serde_json::{Value, json};
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::features::{OfferedFeatures, OfferedList};
use toolcrib::core::inventory::Actor;
use toolcrib::registry::{EnableTarget, EnabledState};
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Refresh, RegistryOptions, SourceId};

use super::support::{AuthTestServer, bearer_header};
use crate::test_server::{SourceScripts, open_scripted};

/// Returns one prompt and instructions with a hidden character.
fn some_features() -> OfferedFeatures {
    let prompt = serde_json::value::to_raw_value(&json!({ "name": "review" })).unwrap();
    let mut features =
        OfferedFeatures { instructions: Some("Knock\u{200b} <b>first</b>.".into()), ..OfferedFeatures::default() };
    features.lists.prompts = OfferedList::Items(vec![prompt]);
    features
}

/// Starts a server with three sources: one with many tools, one that fails and one that is disabled.
async fn start_with_three_sources() -> AuthTestServer {
    let (clock, manual_clock) = Clock::manual(Timestamp(1_794_700_800_000));
    let plain = |number: usize| json!({ "name": format!("open_door_{number}"), "inputSchema": { "type": "object" } });
    let many = ScriptedSource::new((0..300).map(plain).chain([constrained_tool()]));
    many.set_features(some_features());
    let broken = ScriptedSource::new(Vec::<Value>::new());
    let off = ScriptedSource::new([plain(0)]);
    broken.fail(&format!("cannot start `{}`", "long/".repeat(100)));
    let options = RegistryOptions { clock, ..RegistryOptions::default() };
    let scripts: SourceScripts<'_> = &[("many", &many), ("broken", &broken), ("off", &off)];
    let registry = open_scripted(config_with_sources(["many", "broken", "off"]), options, scripts).await;
    let off = EnableTarget::Source(SourceId::from_name("off").unwrap());
    registry.sources().set_enabled(off, EnabledState::Disabled, Actor::new("test")).await.unwrap();
    registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    AuthTestServer::start(registry, manual_clock, "127.0.0.1:0", false).await
}

fn constrained_tool() -> Value {
    let line =
        json!({ "type": "object", "required": ["sku"], "properties": { "sku": { "type": "string", "minLength": 3 } } });
    let tags = json!({ "type": "array", "items": { "type": "string", "maxLength": 8 }, "maxItems": 5 });
    let countries: Vec<String> = (0..40).map(|number| format!("land-{number}")).collect();
    json!({ "name": "fit", "inputSchema": { "type": "object", "required": ["count", "line"], "properties": {
        "count": { "type": "integer", "minimum": 2, "maximum": 90 },
        "code": { "type": "string", "pattern": "^[A-Z]{3}$", "description": "As it is printed" },
        "mail": { "type": "string", "format": "email", "maxLength": 60 },
        "tags": tags, "country": { "enum": countries }, "line": line,
        "evil": { "type": "string", "pattern": "^(a+)+$" },
    } } })
}

impl AuthTestServer {
    async fn get_page(&self, path: &str) -> String {
        let response = self.get(path, "").await;
        assert_eq!(response.status, 200, "{path}");
        response.body
    }
}

#[track_caller]
fn assert_contains(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "`{part}` is not in {page}");
    }
}

#[tokio::test]
async fn the_tool_list_shows_counts_and_valid_pages() {
    let server = start_with_three_sources().await;
    assert_contains(&server.get_page("/tools?q=open+door").await, &["The best 200 of 300 matches", "Page 1 of 4"]);
    assert_contains(&server.get_page("/tools?q=open+door&used=never").await, &["The best 200 of 300 matches"]);
    assert_contains(&server.get_page("/tools").await, &["301 tools", "Page 1 of 7"]);
    let beyond = server.get_page("/tools?page=99999").await;
    assert_contains(&beyond, &["There is no page 99,999", "href=\"/tools?\"", "href=\"/tools?page=7\"", "301 tools"]);
    assert!(!beyond.contains("No tools are known"), "{beyond}");
}

#[tokio::test]
async fn counts_agree_on_all_pages() {
    let server = start_with_three_sources().await;
    let page = server.get_page("/").await;
    assert_contains(
        &page,
        &["<span>Sources</span><span class=\"count\">3</span>", "<span>Tools</span><span class=\"count\">301</span>"],
    );
    assert_contains(&page, &["<dt>Sources</dt><dd>3</dd><dd class=\"note\">1 with errors, 1 disabled</dd>"]);
    assert_contains(&page, &["<dt>Tools</dt><dd>301</dd>"]);
    assert!(!page.contains(" 100 %") && !page.contains(">100 % fewer"), "{page}");
}

#[tokio::test]
async fn a_tool_page_shows_limits_and_a_valid_example() {
    let server = start_with_three_sources().await;
    let page = server.get_page("/tools/many__fit").await;
    assert_contains(
        &page,
        &["<span class=\"type\">integer, 2 to 90</span>", "string, matching <code>^[A-Z]{3}$</code></span>"],
    );
    assert_contains(&page, &["at most 5 items, each at most 8 characters", "28 more choices", "<code>land-39</code>"]);
    assert_contains(&page, &["whole number</span> <span class=\"needed\">required</span>"]);
    assert_contains(&page, &["type=\"number\" name=\"/count\" value=\"\" step=\"1\" min=\"2\" max=\"90\""]);
    assert_contains(&page, &["type=\"email\" name=\"/mail\"", "at most 60 characters"]);
    // A pattern that could take a browser very long is shown, but not set as a `pattern` attribute.
    assert_contains(&page, &["matching <code>^(a+)+$</code>"]);
    assert!(!page.contains("pattern="), "{page}");
    assert_contains(&page, &["toolcrib call many__fit count:=2 'line:={&quot;sku&quot;:&quot;………&quot;}'"]);
}

#[tokio::test]
async fn source_errors_are_shown_and_secrets_are_masked() {
    let server = start_with_three_sources().await;
    let page = server.get("/sources", &bearer_header(&server.admin_token)).await.body;
    assert_contains(&page, &["<tr class=\"more\" id=\"error-broken\"><td class=\"message\" colspan=\"5\">"]);
    // Text that is cut within backticks is still formatted as code.
    assert_contains(&page, &["cannot start <code>long/", "…</code></td>"]);
    assert_contains(&page, &["<input type=\"password\" name=\"bearer\"", "href=\"#add\""]);
    let unknown = server.get("/tools/nowhere__x", "").await;
    assert_contains(&unknown.body, &["No tool named <code>nowhere__x</code>"]);
    // The message for REST clients would name a route here.
    let unknown = server.get("/sources/nowhere", "").await;
    assert_contains(&unknown.body, &["<p>No source named <code>nowhere</code>.</p>"]);
}

#[tokio::test]
async fn a_source_shows_its_prompts_and_instructions() {
    let server = start_with_three_sources().await;
    let page = server.get("/sources/many", &bearer_header(&server.admin_token)).await.body;
    assert_contains(&page, &["301 tools · 1 prompt · ", "<pre tabindex=\"0\">Knock &lt;b&gt;first&lt;/b&gt;.</pre>"]);
    assert_contains(&page, &["1 prompt added to <code>many</code>: review; instructions changed"]);
    let get = async |path: &str| -> Value {
        serde_json::from_str(&server.get(path, &bearer_header(&server.admin_token)).await.body).unwrap()
    };
    let source = get("/api/sources/many").await;
    assert_eq!((&source["prompt_count"], &source["resource_count"]), (&json!(1), &json!(0)));
    assert_eq!(source["instructions"], "Knock <b>first</b>.");
    let sources = get("/api/sources").await;
    let listed = sources["sources"].as_array().unwrap().iter().find(|source| source["id"] == "many").unwrap().clone();
    assert_eq!((&listed["prompt_count"], listed.get("instructions")), (&json!(1), None));
}
