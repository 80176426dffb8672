//! Callers of identity providers in previews of rules, and on the page of a tool.

use serde_json::{Value, json};
use toolcrib::Refresh;
use toolcrib::core::access_rules::{AccessRule, Group, NamedRule};
use toolcrib::core::inventory::Actor;

use super::support::{AuthTestServer, bearer_header, build_configured_server, open_registry};
use super::test_issuer::{NOW, SigningKey, TestIssuer};

/// A caller is known from the first request with a valid token until its last token has expired.
#[tokio::test]
async fn callers_of_an_identity_provider_are_known_while_their_tokens_are_valid() {
    let key = SigningKey::ed25519("ed");
    let issuer = TestIssuer::start(&[&key]);
    let (registry, clock) = open_registry().await;
    let (http_server, directory) =
        build_configured_server(&registry, "127.0.0.1:0", true, issuer.config()).await.unwrap();
    let server = AuthTestServer::from_server(registry, clock, http_server, directory);
    server.registry.refresh(Refresh::default()).await;
    let admin = bearer_header(&server.admin_token);
    let group = Group { tools: vec!["git__push".to_owned()], ..Group::default() };
    let rule = AccessRule { when: Vec::new(), groups: vec!["pushers".to_owned()], active: true };
    for rule in [NamedRule::Group("pushers".to_owned(), group), NamedRule::Access("everyone".to_owned(), rule)] {
        server.registry.rules().define(rule, Actor::new("test")).await.unwrap();
    }
    for (name, sub, exp) in [("ada", "1", NOW + 300), ("ada", "1", NOW + 600), ("bob", "2", NOW + 300)] {
        let claims = json!({ "preferred_username": name, "sub": sub, "exp": exp });
        let token = key.token(issuer.url(), claims);
        assert_eq!(server.get("/api/whoami", &bearer_header(&token)).await.status, 200);
    }
    let known = async || -> Vec<String> {
        let callers: Value = server.get("/api/tools/git__push/callers", &admin).await.json();
        assert_eq!(callers["groups"], json!([{ "name": "pushers", "access": ["everyone"] }]));
        let callers = callers["callers"].as_array().unwrap().iter();
        callers.map(|caller| format!("{} {}", readable_name(&caller["caller"]), caller["visible"])).collect()
    };
    assert_eq!(known().await, ["local true", "jwt:ada true", "jwt:bob true"]);
    let path = "/api/policies/careful?dry_run=true";
    let headers = format!("Content-Type: application/json\r\n{admin}");
    let body = json!({ "verdict": "deny" }).to_string();
    let preview = server.send("PUT", path, &headers, body).await.json();
    assert_eq!(preview["changed"], 3, "{preview}");
    assert_eq!(readable_name(&preview["callers"][2]["caller"]), "jwt:bob");
    assert_eq!(preview["callers"][1]["loses"], json!(["git__push"]));

    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    let page = server.get("/tools/git__push", &cookie).await.body;
    let heading = "Group <a href=\"/access/groups?name=pushers\">pushers</a>, given by \
                   <a href=\"/access/rules?name=everyone\">everyone</a>";
    assert!(page.contains(heading) && page.contains("jwt:bob"), "{page}");
    let form = format!("csrf={csrf}&rule=careful&match.source=git&verdict=deny&step=preview");
    let page = server.post_form("/access/policies", &cookie, &form).await.body;
    assert!(page.contains("Changes for 3 callers") && page.contains("jwt:ada"), "{page}");

    server.clock.advance(std::time::Duration::from_secs(400));
    assert_eq!(known().await, ["local true", "jwt:ada true"]);
}

/// Name of a caller without the hash of its identity.
fn readable_name(caller: &Value) -> &str {
    caller.as_str().unwrap().split('#').next().unwrap()
}
