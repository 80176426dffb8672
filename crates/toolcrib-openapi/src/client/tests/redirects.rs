use std::collections::BTreeMap;

use toolcrib_core::execution::{BodyEncoding, BodySpec};
use toolcrib_core::source::Auth;

use super::*;

/// Operation that is redirected, with its arguments; POST has a body.
fn start_operation(post: bool, server: &str) -> (Operation, Value) {
    if !post {
        return (operation("GET", server, "/start"), json!({}));
    }
    let body = BodySpec {
        argument: "body".into(),
        required: true,
        media_type: "text/plain".into(),
        content: BodyEncoding::Text,
        fields: BTreeMap::new(),
    };
    (Operation { body: Some(body), ..operation("POST", server, "/start") }, json!({"body": "said"}))
}

fn connector_with_credentials(allow_private: bool) -> OpenApiConnector {
    connector(OpenApiSource {
        allow_private,
        auth: Some(Auth::Bearer("s3cret-token".into())),
        headers: BTreeMap::from([("X-Configured".to_owned(), "yes".to_owned())]),
        ..OpenApiSource::default()
    })
}

fn start_redirecting_server(status: u16, location: String) -> LoopbackServer {
    LoopbackServer::start(move |requests| match requests.target.as_str() {
        "/start" => HttpReply::new(status, &format!("location: {location}"), "elsewhere"),
        _ => HttpReply::new(200, "content-type: text/plain", "arrived"),
    })
}

#[tokio::test]
async fn redirects_on_the_same_server_are_followed_as_browsers_do() {
    for (method, status, expected) in [
        ("GET", 301, "GET /end "),
        ("GET", 308, "GET /end "),
        ("POST", 301, "GET /end "),
        ("POST", 302, "GET /end "),
        ("POST", 303, "GET /end "),
        ("POST", 307, "POST /end said"),
        ("POST", 308, "POST /end said"),
    ] {
        let server = start_redirecting_server(status, "/end".into());
        let (operation, arguments) = start_operation(method == "POST", &server.url);
        let result = call(&connector_with_credentials(false), &operation, arguments).await.unwrap();
        assert_eq!(result["content"][0]["text"], "arrived");
        let last = server.requests().pop().unwrap();
        assert_eq!(format!("{} {}", last.request_line(), last.text()), expected, "{method} {status}");
        assert_eq!(last.header("authorization"), Some("Bearer s3cret-token"));
        assert_eq!(last.header("content-type").is_none(), last.body.is_empty());
    }
}

#[tokio::test]
async fn a_redirect_to_another_server_carries_no_credentials_or_headers() {
    let other = LoopbackServer::start(|_| HttpReply::new(200, "", "arrived"));
    let server = start_redirecting_server(302, format!("{}/end?x=1", other.url));
    let result =
        call(&connector_with_credentials(true), &operation("GET", &server.url, "/start"), json!({})).await.unwrap();
    assert_eq!(result["content"][0]["text"], "arrived");
    let requests = other.requests();
    assert_eq!(requests[0].request_line(), "GET /end?x=1");
    for name in ["authorization", "cookie", "x-configured"] {
        assert_eq!(requests[0].header(name), None, "{name}");
    }
}

#[tokio::test]
async fn a_rejected_redirect_names_its_target() {
    let other = LoopbackServer::start(|_| HttpReply::new(200, "", "arrived"));
    let target = format!("{}/end?secret=1", other.url);
    let shown_target = format!("{}/end", other.url);
    for (connector, post, location, expected) in [
        (
            connector_with_credentials(false),
            false,
            target.clone(),
            format!("was redirected to `{shown_target}`, where nothing is sent: "),
        ),
        (
            connector_with_credentials(true),
            true,
            target,
            format!("was redirected to `{shown_target}`, which is another server: only GET is sent there"),
        ),
        (
            connector_with_credentials(true),
            false,
            "file:///etc/passwd".into(),
            "was redirected to an invalid URL".into(),
        ),
        (connector_with_credentials(true), false, "/start".into(), "was redirected more than 5 times".into()),
    ] {
        let server = start_redirecting_server(307, location);
        let (operation, arguments) = start_operation(post, &server.url);
        let (kind, code, message) = failure_parts(call(&connector, &operation, arguments).await);
        assert_eq!((kind, code), ("rejected", Code::ToolExecutionFailed));
        let expected = format!("`{} /start` {expected}", operation.method);
        assert!(message.starts_with(&expected) && !message.contains("secret"), "{message}");
    }
    assert_eq!(other.requests().len(), 0);
}
