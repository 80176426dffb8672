//! Forms of the console that change groups, access rules and policies.

use toolcrib::core::access_rules::{Group, NamedRule};
use toolcrib::core::inventory::Actor;

use super::support::AuthTestServer;

/// Two administrators edit one group: the second save must not overwrite the first one unseen.
#[tokio::test]
async fn a_form_of_a_rule_that_has_changed_is_not_saved() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    let define = async |title: &str| {
        let definition = Group { title: Some(title.to_owned()), ..Group::default() };
        server.registry.rules().define(NamedRule::Group("desk".into(), definition), Actor::new("test")).await.unwrap();
    };
    let title = || server.registry.rules().in_force().group("desk").and_then(|group| group.definition.title.clone());
    define("Desk").await;
    let form = server.get("/access/groups?name=desk", &cookie).await.body;
    let opened = hidden_field(&form, "original_digest");
    let save = async |opened: &str, step: &str, previewed: &str| {
        let fields = format!("csrf={csrf}&original=desk&original_digest={opened}&title=Mine&step={step}");
        server.post_form("/access/groups", &cookie, &format!("{fields}&previewed={previewed}")).await
    };
    let previewed = hidden_field(&save(&opened, "preview", "").await.body, "previewed");
    define("Theirs").await;
    for step in ["save", "remove"] {
        let refused = save(&opened, step, &previewed).await;
        assert!(
            refused.status == 200 && refused.body.contains("has changed since you opened this form"),
            "{refused:?}"
        );
        assert_eq!(title().as_deref(), Some("Theirs"), "{step}");
    }
    let opened = hidden_field(&server.get("/access/groups?name=desk", &cookie).await.body, "original_digest");
    assert_eq!(save(&opened, "save", &previewed).await.status, 303);
    assert_eq!(title().as_deref(), Some("Mine"));
}

/// Value of a hidden field of a form.
#[track_caller]
fn hidden_field(page: &str, name: &str) -> String {
    let start = format!(r#"type="hidden" name="{name}" value=""#);
    let (_, rest) = page.split_once(&start).ok_or((name, page)).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}
