use std::sync::atomic::{AtomicUsize, Ordering};

use toolcrib_core::source::Auth;

use super::*;

/// Server that issues `token-1`, `token-2` and so on, and accepts tokens that end with `accepted`.
fn start_token_server(expires_in: u32, accepted: &'static str) -> LoopbackServer {
    let issued = AtomicUsize::new(0);
    LoopbackServer::start(move |request| match request.target.as_str() {
        "/token" => {
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            HttpReply::json(
                200,
                format!(r#"{{"access_token":"token-{number}","token_type":"bearer","expires_in":{expires_in}}}"#),
            )
        }
        _ => match request.header("authorization") {
            Some(token) if token.ends_with(accepted) => HttpReply::json(200, "{}"),
            token => HttpReply::json(401, format!(r#"{{"message":"I do not know {}"}}"#, token.unwrap_or_default())),
        },
    })
}

fn oauth_connector(server: &LoopbackServer) -> OpenApiConnector {
    let auth = Auth::Oauth2 {
        token_url: format!("{}/token", server.url),
        client_id: "me".into(),
        client_secret: "s3cret:/word".into(),
        scopes: vec!["read".into(), "write".into()],
    };
    connector(OpenApiSource { auth: Some(auth), ..OpenApiSource::default() })
}

fn token_request_count(server: &LoopbackServer) -> usize {
    server.requests().iter().filter(|request| request.target == "/token").count()
}

#[tokio::test]
async fn a_token_is_fetched_once_for_concurrent_calls_and_cached() {
    let server = start_token_server(3600, "token-1");
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    let calls = (0..20).map(|_| call(&connector, &operation, json!({})));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!((token_request_count(&server), server.requests().len()), (1, 21));
    let token = &server.requests()[0];
    assert_eq!(token.request_line(), "POST /token");
    assert_eq!(token.text(), "grant_type=client_credentials&scope=read+write");
    // me:s3cret%3A%2Fword
    assert_eq!(token.header("authorization"), Some("Basic bWU6czNjcmV0JTNBJTJGd29yZA=="));
}

#[tokio::test]
async fn an_expired_token_is_fetched_again() {
    let server = start_token_server(0, "");
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    for _ in 0..3 {
        call(&connector, &operation, json!({})).await.unwrap();
    }
    assert_eq!(token_request_count(&server), 3);
}

#[tokio::test]
async fn a_rejected_token_is_renewed_once_and_never_shown() {
    let server = start_token_server(3600, "token-2");
    let connector = oauth_connector(&server);
    let operation = operation("POST", &server.url, "/p");
    call(&connector, &operation, json!({})).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /token", "POST /p", "POST /token", "POST /p"]);

    let server = start_token_server(3600, "nothing");
    let operation = Operation { server: server.url.clone(), ..operation };
    let (kind, code, message) = failure_parts(call(&oauth_connector(&server), &operation, json!({})).await);
    assert_eq!((kind, code, token_request_count(&server)), ("rejected", Code::AuthRequired, 2));
    assert_eq!(message, "`POST /p` answered 401 Unauthorized: I do not know Bearer ***");
}

#[tokio::test]
async fn client_credentials_are_sent_in_the_body_if_basic_is_rejected() {
    let server = LoopbackServer::start(|request| match request.target.as_str() {
        "/token" if request.text().contains("client_secret") => {
            HttpReply::json(200, r#"{"access_token":"t","expires_in":"0"}"#)
        }
        "/token" => HttpReply::json(401, r#"{"error":"invalid_client"}"#),
        _ => HttpReply::json(200, "{}"),
    });
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    for _ in 0..2 {
        call(&connector, &operation, json!({})).await.unwrap();
    }
    let lines = ["POST /token", "POST /token", "GET /p", "POST /token", "GET /p"];
    assert_eq!(server.request_lines(), lines);
    let request = &server.requests()[1];
    let form = "grant_type=client_credentials&scope=read+write&client_id=me&client_secret=s3cret%3A%2Fword";
    assert_eq!((request.text().as_str(), request.header("authorization")), (form, None));
}

#[tokio::test]
async fn a_token_error_is_shared_by_concurrent_calls_and_contains_no_secret() {
    for (status, body, kind, expected) in [
        (
            400,
            r#"{"error":"invalid_scope","error_description":"s3cret:/word may not write"}"#,
            "rejected",
            "it answered 400 Bad Request: invalid_scope, *** may not write",
        ),
        (500, "oops", "unavailable", "it answered 500 Internal Server Error"),
        (200, r#"{"token":"s3cret"}"#, "rejected", "the response has no `access_token`"),
        (200, r#"{"access_token":"x","token_type":"mac"}"#, "rejected", "its type is not `Bearer`"),
        (200, r#"{"access_token":"x\r\ny"}"#, "rejected", "it is empty or has characters that HTTP does not allow"),
    ] {
        let server = LoopbackServer::start(move |_| HttpReply::json(status, body));
        let connector = oauth_connector(&server);
        let operation = operation("GET", &server.url, "/p");
        let calls = (0..5).map(|_| call(&connector, &operation, json!({})));
        for result in futures_util::future::join_all(calls).await {
            let failure = failure_parts(result);
            assert_eq!((failure.0, failure.1), (kind, Code::ToolUnavailable));
            assert!(
                failure.2.starts_with(&format!("`{}` issued no ", server.url)) && failure.2.ends_with(expected),
                "{}",
                failure.2
            );
        }
        assert_eq!(server.request_lines(), ["POST /token"]);
    }
}
