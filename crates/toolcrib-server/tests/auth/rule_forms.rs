//! Forms of the console that change groups, access rules and policies.

use toolcrib::core::access::Role;
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

/// The same for a token: of two administrators that edit it, the second is told of the change of the first.
#[tokio::test]
async fn a_form_of_a_token_that_has_changed_is_not_saved() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    server.create_token("desk", Role::Agent, None).await;
    let id = server.registry.tokens().list()[0].id.clone();
    let path = format!("/access/tokens?id={id}");
    let opened = hidden_field(&server.get(&path, &cookie).await.body, "original_digest");
    let save = async |opened: &str, name: &str| {
        let fields = format!("csrf={csrf}&id={id}&original_digest={opened}&name={name}&role=agent");
        server.post_form("/access/tokens", &cookie, &fields).await
    };
    assert_eq!(save(&opened, "theirs").await.status, 303);
    let refused = save(&opened, "mine").await;
    assert!(refused.status == 200 && refused.body.contains("has changed since you opened this form"), "{refused:?}");
    assert_eq!(server.registry.tokens().list()[0].name, "theirs");
    let opened = hidden_field(&server.get(&path, &cookie).await.body, "original_digest");
    assert_eq!(save(&opened, "mine").await.status, 303);
}

/// Advice for the command line is of no use in a browser.
#[tokio::test]
async fn errors_of_forms_give_no_advice_for_the_command_line() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    server.create_token("desk", Role::Agent, None).await;
    let page = server.post_form("/access/tokens", &cookie, &format!("csrf={csrf}&name=desk&role=agent")).await.body;
    let (_, message) = page.split_once("role=\"alert\">").unwrap();
    let message = message.split_once("</p>").unwrap().0;
    assert!(message.contains("desk") && !message.contains("toolcrib token"), "{message}");
}

/// Inputs with errors refer to them, for screen readers.
#[tokio::test]
async fn an_invalid_condition_is_marked_and_described() {
    let server = AuthTestServer::on_loopback().await;
    let (cookie, csrf) = server.sign_in(&server.admin_token).await;
    let fields = format!(
        "csrf={csrf}&rule=desk&groups=desk&when[0].claim=a&when[0].test=equals&when[0].value=b\
         &when[1].claim=team&when[1].test=matches&when[1].value=regex:("
    );
    let page = server.post_form("/access/rules", &cookie, &fields).await.body;
    let input = |name: &str| {
        let (_, rest) = page.split_once(&format!("name=\"{name}\"")).unwrap();
        rest.split_once('>').unwrap().0.to_owned()
    };
    let described = "aria-describedby=\"hint-when-1-\"";
    assert!(input("when[1].value").contains(&format!("{described} aria-invalid=\"true\"")), "{page}");
    assert!(input("when[1].claim").contains(described) && !input("when[1].claim").contains("aria-invalid"), "{page}");
    assert!(page.contains("id=\"hint-when-1-\"") && !input("when[0].value").contains("aria-d"), "{page}");
}
