use super::*;

#[tokio::test]
async fn addresses_that_are_not_public_are_rejected() {
    let server = serve("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let tool = tool("url_fetch", None);
    for url in [
        server.as_str(),
        "http://127.0.0.1",
        "http://[::1]",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://0x7f000001",
        "http://2130706433",
        "http://0177.0.0.1",
        "http://127.1",
        "http://0/",
        "http://localhost",
        "http://user@127.0.0.1",
        "http://example.com@127.0.0.1/",
        "http://１２７.0.0.1/",
    ] {
        let error = tool(json!({ "url": url })).await.unwrap_err();
        assert_eq!(error.code, Code::ToolInvalidInput, "{url}: {error}");
        assert!(error.message.contains("is not a public address; set `allow_private`"), "{url}: {error}");
    }
    for (url, reason) in [
        ("file:///etc/passwd", "`file` URLs are not fetched, only http and https"),
        ("ftp://example.com", "`ftp` URLs are not fetched, only http and https"),
        ("not a url", "`not a url` is not a URL: relative URL without a base"),
        ("http://", "`http://` is not a URL: empty host"),
    ] {
        assert_eq!(tool(json!({ "url": url })).await.unwrap_err().message, reason);
    }
}

#[tokio::test]
async fn text_is_returned_and_binary_content_described() {
    for (response, texts, is_error) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<p>hi</p>",
            ["HTTP 200 OK, text/html, 9 bytes", "<p>hi</p>"],
            false,
        ),
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno",
            ["HTTP 404 Not Found, no content type, 2 bytes", "no"],
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 3\r\n\r\n\0PN",
            ["HTTP 200 OK, image/png, 3 bytes", "(binary content, not shown)"],
            false,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\na\0b\0",
            ["HTTP 200 OK, text/plain, 4 bytes", "(binary content, not shown)"],
            false,
        ),
    ] {
        let url = serve(response);
        let output = tool_allowing_private("url_fetch")(json!({ "url": url })).await.unwrap();
        assert_eq!(output.is_error, is_error);
        assert_eq!(output.content[0]["text"], format!("{}, {url}", texts[0]));
        assert_eq!(output.content[1]["text"], texts[1]);
    }
}

#[tokio::test]
async fn an_endless_body_is_cut() {
    let body = "x".repeat(3 * 1024 * 1024);
    let server =
        LoopbackServer::start(move |_| HttpReply::new(200, "content-type: text/plain", body.as_str()).then_close());
    let output = tool_allowing_private("url_fetch")(json!({ "url": server.url, "max_bytes": 1000 })).await.unwrap();
    assert_eq!(output.content[1]["text"].as_str().unwrap().len(), 1000);
    assert_eq!(output.content[2]["text"], "(cut after 1000 bytes)");
}

#[tokio::test]
async fn redirects_are_checked_and_limited() {
    let target = serve("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let redirect_to =
        |target: &str| serve(&format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n"));
    let tool = tool_allowing_private("url_fetch");
    let output = tool(json!({ "url": redirect_to(&target) })).await.unwrap();
    assert_eq!(output.content[1]["text"], "ok");

    let error = tool(json!({ "url": redirect_to("file:///etc/passwd") })).await;
    assert!(error.is_err() || error.unwrap().is_error, "not followed");
    let error = tool(json!({ "url": redirect_to("/again") })).await.unwrap_err();
    assert_eq!(error.message, "more than 5 redirects");
}

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let error = tool_allowing_private("url_fetch")(json!({ "url": "http://127.0.0.1:1" })).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::ToolExecutionFailed, "cannot connect to `127.0.0.1`"));
}

/// URL of a server that sends the same response to every request.
fn serve(response: &str) -> String {
    let response = response.to_owned();
    LoopbackServer::start(move |_| HttpReply::raw(response.as_str())).url + "/"
}
