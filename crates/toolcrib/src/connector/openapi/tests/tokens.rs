use toolcrib_core::source::Auth;

use super::*;

/// A server with its own tokens: `t1`, then `t2`, and so on.
async fn start_token_server(expires_in: u32, takes: &'static str) -> LoopbackServer {
    LoopbackServer::start(move |heard, _| match heard.target.as_str() {
        "/token" => {
            let number = TOKENS_ISSUED.with(|issued| issued.replace(issued.get() + 1)) + 1;
            server::json_reply(
                200,
                &format!(r#"{{"access_token":"token-{number}","token_type":"bearer","expires_in":{expires_in}}}"#),
            )
        }
        _ if heard.header("authorization").ends_with(takes) => server::json_reply(200, "{}"),
        _ => server::json_reply(401, &format!(r#"{{"message":"I do not know {}"}}"#, heard.header("authorization"))),
    })
    .await
}

thread_local! {
    /// A test has a thread of its own, and its server with it.
    static TOKENS_ISSUED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
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
    server.requests().iter().filter(|heard| heard.target == "/token").count()
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_who_wait_and_kept() {
    let server = start_token_server(3600, "token-1").await;
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    let calls = (0..20).map(|_| call(&connector, &operation, json!({})));
    for result in futures_util::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!((token_request_count(&server), server.requests().len()), (1, 21));
    let token = &server.requests()[0];
    assert_eq!(token.request_line(), "POST /token");
    assert_eq!(token.body, "grant_type=client_credentials&scope=read+write");
    // me:s3cret%3A%2Fword
    assert_eq!(token.header("authorization"), "Basic bWU6czNjcmV0JTNBJTJGd29yZA==");
}

#[tokio::test]
async fn a_token_that_ends_is_fetched_anew() {
    let server = start_token_server(0, "").await;
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    for _ in 0..3 {
        call(&connector, &operation, json!({})).await.unwrap();
    }
    assert_eq!(token_request_count(&server), 3);
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_replaced_once_and_never_told() {
    let server = start_token_server(3600, "token-2").await;
    let connector = oauth_connector(&server);
    let operation = operation("POST", &server.url, "/p");
    call(&connector, &operation, json!({})).await.unwrap();
    assert_eq!(server.request_lines(), ["POST /token", "POST /p", "POST /token", "POST /p"]);

    let server = start_token_server(3600, "nothing").await;
    let operation = Operation { server: server.url.clone(), ..operation };
    let (kind, code, message) = failure_parts(call(&oauth_connector(&server), &operation, json!({})).await);
    assert_eq!((kind, code, token_request_count(&server)), ("refused", Code::AuthRequired, 2));
    assert_eq!(message, "`POST /p` answered 401 Unauthorized: I do not know Bearer ***");
}

#[tokio::test]
async fn a_server_that_wants_the_credentials_in_the_body_gets_them_there() {
    let server = LoopbackServer::start(|heard, _| match heard.target.as_str() {
        "/token" if heard.body.contains("client_secret") => {
            server::json_reply(200, r#"{"access_token":"t","expires_in":"0"}"#)
        }
        "/token" => server::json_reply(401, r#"{"error":"invalid_client"}"#),
        _ => server::json_reply(200, "{}"),
    })
    .await;
    let connector = oauth_connector(&server);
    let operation = operation("GET", &server.url, "/p");
    for _ in 0..2 {
        call(&connector, &operation, json!({})).await.unwrap();
    }
    let lines = ["POST /token", "POST /token", "GET /p", "POST /token", "GET /p"];
    assert_eq!(server.request_lines(), lines);
    let heard = &server.requests()[1];
    let form = "grant_type=client_credentials&scope=read+write&client_id=me&client_secret=s3cret%3A%2Fword";
    assert_eq!((heard.body.as_str(), heard.header("authorization")), (form, ""));
}

#[tokio::test]
async fn why_there_is_no_token_is_told_without_secrets_and_once_for_all() {
    for (status, body, kind, expected) in [
        (
            400,
            r#"{"error":"invalid_scope","error_description":"s3cret:/word may not write"}"#,
            "refused",
            "it answered 400 Bad Request: invalid_scope, *** may not write",
        ),
        (500, "oops", "lost", "it answered 500 Internal Server Error"),
        (200, r#"{"token":"s3cret"}"#, "refused", "the response has no `access_token`"),
        (200, r#"{"access_token":"x","token_type":"mac"}"#, "refused", "its type is not `Bearer`"),
        (200, r#"{"access_token":"x\r\ny"}"#, "refused", "it is empty or has characters that HTTP does not allow"),
    ] {
        let server = LoopbackServer::start(move |_, _| server::json_reply(status, body)).await;
        let connector = oauth_connector(&server);
        let operation = operation("GET", &server.url, "/p");
        let calls = (0..5).map(|_| call(&connector, &operation, json!({})));
        for result in futures_util::future::join_all(calls).await {
            let told = failure_parts(result);
            assert_eq!((told.0, told.1), (kind, Code::ToolUnavailable));
            assert!(
                told.2.starts_with(&format!("`{}` issued no ", server.url)) && told.2.ends_with(expected),
                "{}",
                told.2
            );
        }
        assert_eq!(server.request_lines(), ["POST /token"]);
    }
}
