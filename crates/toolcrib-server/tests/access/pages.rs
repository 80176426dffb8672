//! What pages say: numbers that mean the same everywhere, limits of arguments, errors, and addresses that lead nowhere.

use serde_json::{Value, json};
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::inventory::Actor;
use toolcrib::registry::{Switch, Target};
use toolcrib::testkit::{Scripted, config};
use toolcrib::{Options, Refresh, Registry, SourceId};

use crate::support::{House, bearer};

/// Three sources: one with many tools, one that fails, one that is disabled.
async fn furnished() -> House {
    let (clock, hand) = Clock::manual(Timestamp(1_794_700_800_000));
    let plain = |number: usize| json!({ "name": format!("open_door_{number}"), "inputSchema": { "type": "object" } });
    let many = Scripted::new((0..300).map(plain).chain([constrained()]));
    let (broken, off) = (Scripted::new(Vec::<Value>::new()), Scripted::new([plain(0)]));
    broken.fail(&format!("cannot start `{}`", "long/".repeat(100)));
    let connect = Some(Scripted::connect([("many", &many), ("broken", &broken), ("off", &off)]));
    let options = Options { clock, connect, ..Options::default() };
    let registry = Registry::open(config(["many", "broken", "off"]), options).await.unwrap();
    let off = Target::Source(SourceId::from_name("off").unwrap());
    registry.switch(off, Switch::Disabled, Actor::new("test")).await.unwrap();
    registry.refresh(Refresh { force: true, ..Refresh::default() }).await;
    House::open(registry, hand, "127.0.0.1:0", false).await
}

fn constrained() -> Value {
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

impl House {
    async fn page(&self, path: &str) -> String {
        let answer = self.get(path, "").await;
        assert_eq!(answer.status, 200, "{path}");
        answer.body
    }
}

#[track_caller]
fn says(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "`{part}` is not in {page}");
    }
}

#[tokio::test]
async fn a_list_says_how_much_there_is_and_where_it_ends() {
    let house = furnished().await;
    says(&house.page("/tools?q=open+door").await, &["The best 200 of 300 matches", "Page 1 of 4"]);
    says(&house.page("/tools?q=open+door&used=never").await, &["The best 200 of 300 matches"]);
    says(&house.page("/tools").await, &["301 tools", "Page 1 of 7"]);
    let beyond = house.page("/tools?page=99999").await;
    says(&beyond, &["There is no page 99,999", "href=\"/tools?\"", "href=\"/tools?page=7\"", "301 tools"]);
    assert!(!beyond.contains("No tools are known"), "{beyond}");
}

#[tokio::test]
async fn a_number_means_the_same_on_every_page() {
    let house = furnished().await;
    let page = house.page("/").await;
    says(
        &page,
        &["<span>Sources</span><span class=\"count\">3</span>", "<span>Tools</span><span class=\"count\">301</span>"],
    );
    says(&page, &["<dt>Sources</dt><dd>3</dd><dd class=\"note\">1 with errors, 1 disabled</dd>"]);
    says(&page, &["<dt>Tools</dt><dd>301</dd>"]);
    assert!(!page.contains(" 100 %") && !page.contains(">100 % fewer"), "{page}");
}

#[tokio::test]
async fn a_tool_tells_its_limits_and_an_example_that_keeps_them() {
    let house = furnished().await;
    let page = house.page("/tools/many__fit").await;
    says(&page, &["<span class=\"type\">integer, 2 to 90</span>", "string, matching <code>^[A-Z]{3}$</code></span>"]);
    says(&page, &["at most 5 items, each at most 8 characters", "28 more choices", "<code>land-39</code>"]);
    says(&page, &["whole number</span> <span class=\"needed\">required</span>"]);
    says(&page, &["type=\"number\" name=\"/count\" value=\"\" step=\"1\" min=\"2\" max=\"90\""]);
    says(&page, &["type=\"email\" name=\"/mail\"", "at most 60 characters"]);
    // What could keep a browser busy for ever is told, and not run.
    says(&page, &["matching <code>^(a+)+$</code>"]);
    assert!(!page.contains("pattern="), "{page}");
    says(&page, &["toolcrib call many__fit count:=2 'line:={&quot;sku&quot;:&quot;………&quot;}'"]);
}

#[tokio::test]
async fn sources_say_what_is_wrong_and_hide_what_is_secret() {
    let house = furnished().await;
    let page = house.get("/sources", &bearer(&house.admin)).await.body;
    says(&page, &["<tr class=\"more\" id=\"error-broken\"><td class=\"message\" colspan=\"5\">"]);
    // Cut in the middle of a name, it is a name all the same.
    says(&page, &["cannot start <code>long/", "…</code></td>"]);
    says(&page, &["<input type=\"password\" name=\"bearer\"", "href=\"#add\""]);
    let unknown = house.get("/tools/nowhere__x", "").await;
    says(&unknown.body, &["No tool named <code>nowhere__x</code>"]);
}
