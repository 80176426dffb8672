//! Compressed responses, and responses whose framing is wrong.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::*;

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> [Vec<u8>; 2] {
    let mut wrapped = ZlibEncoder::new(Vec::new(), Compression::default());
    wrapped.write_all(body).unwrap();
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
    bare.write_all(body).unwrap();
    [wrapped.finish().unwrap(), bare.finish().unwrap()]
}

fn encoded_json(encoding: &str, body: Vec<u8>) -> HttpReply {
    HttpReply::new(200, &format!("content-type: application/json\ncontent-encoding: {encoding}"), body)
}

/// Result of a GET to a server that replies like this.
async fn get(
    reply_to: impl Fn(&ReceivedRequest) -> HttpReply + Send + Sync + 'static,
) -> (Result<Value, CallFailure>, Vec<ReceivedRequest>) {
    send("GET", reply_to).await
}

async fn send(
    method: &str,
    reply_to: impl Fn(&ReceivedRequest) -> HttpReply + Send + Sync + 'static,
) -> (Result<Value, CallFailure>, Vec<ReceivedRequest>) {
    let server = LoopbackServer::start(reply_to);
    let result = call(&connector(OpenApiSource::default()), &operation(method, &server.url, "/p"), json!({})).await;
    (result, server.requests())
}

#[tokio::test]
async fn compressed_responses_are_requested_and_decoded() {
    let body = br#"{"words": "all the words, all the words"}"#;
    let [wrapped, bare] = deflate(body);
    for (encoding, encoded) in [
        ("gzip", gzip(body)),
        ("x-gzip", gzip(body)),
        ("deflate", wrapped),
        ("deflate", bare),
        ("gzip, gzip", gzip(&gzip(body))),
        ("identity", body.to_vec()),
    ] {
        let (result, requests) = get(move |_| encoded_json(encoding, encoded.clone())).await;
        let result = result.unwrap();
        assert_eq!(result["structuredContent"]["words"], "all the words, all the words", "{encoding}");
        assert_eq!(requests[0].header("accept-encoding"), Some("gzip, deflate"));
    }
    let (empty, _) = get(|_| encoded_json("gzip", Vec::new())).await;
    assert_eq!(empty.unwrap()["content"][0]["text"], "200 OK");
    let (error, _) = get(|_| {
        let body = gzip(br#"{"message": "no such pet"}"#);
        HttpReply::new(404, "content-type: application/json\ncontent-encoding: gzip", body)
    })
    .await;
    assert_eq!(failure_parts(error).2, "`GET /p` answered 404 Not Found: no such pet");

    // A source that wants no compression says so.
    let server = LoopbackServer::start(|_| HttpReply::json(200, "{}"));
    let headers = BTreeMap::from([("Accept-Encoding".to_owned(), "identity".to_owned())]);
    let plain = connector(OpenApiSource { headers, ..OpenApiSource::default() });
    call(&plain, &operation("GET", &server.url, "/p"), json!({})).await.unwrap();
    assert_eq!(server.requests()[0].header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn the_limit_counts_decoded_bytes() {
    // 17 MiB of spaces, and the same in two layers: a few kilobytes.
    let bomb = gzip(&vec![b' '; 17 * 1024 * 1024]);
    let message = "the response to `GET /p` is larger than 16 MiB; request less data".to_owned();
    for (encoding, body) in [("gzip", bomb.clone()), ("gzip, gzip", gzip(&bomb))] {
        let (result, requests) = get(move |_| encoded_json(encoding, body.clone())).await;
        assert_eq!(failure_parts(result), ("rejected", Code::ToolExecutionFailed, message.clone()));
        assert_eq!(requests.len(), 1);
    }
}

#[tokio::test]
async fn a_compressed_response_without_an_end_is_stopped_at_the_limit() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![0; 40 * 1024 * 1024]).unwrap();
    let body = encoder.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: video/mp4\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked";
    // The connection stays open, and no further chunk comes.
    let reply = [format!("{head}\r\n\r\n{:x}\r\n", body.len()).into_bytes(), body, b"\r\n".to_vec()].concat();
    let (result, _) = get(move |_| HttpReply::raw(reply.clone())).await;
    let message = "the response to `GET /p` is larger than 16 MiB; request less data".to_owned();
    assert_eq!(failure_parts(result), ("rejected", Code::ToolExecutionFailed, message));
}

#[tokio::test]
async fn wrong_and_incomplete_compression_are_errors() {
    let (result, requests) = get(|_| encoded_json("gzip", b"{\"a\": 1}".to_vec())).await;
    let message =
        "the response to `GET /p` cannot be decoded: its body is not what its `Content-Encoding` says".to_owned();
    assert_eq!(failure_parts(result), ("rejected", Code::ToolExecutionFailed, message));
    assert_eq!(requests.len(), 1);

    // Without a length, the end of the connection is the end of the body. Only the compressed data shows that it is not.
    let cut = gzip(br#"{"words": "all the words"}"#)[..20].to_vec();
    let (result, requests) = get(move |_| encoded_json("gzip", cut.clone()).then_close()).await;
    let error = result.unwrap_err().into_error();
    assert_eq!(error.message, "the response to `GET /p` cannot be decoded: its compressed body is incomplete");
    assert_eq!((error.is_retryable(), requests.len()), (true, 2));
}

#[tokio::test]
async fn a_cut_off_response_is_retried_and_retryable_if_idempotent() {
    const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"a\":";
    const UNFINISHED: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n";
    for cut in [SHORT, UNFINISHED] {
        let (recovered, requests) = get(move |request| match request.number {
            1 => HttpReply::raw(cut).then_close(),
            _ => HttpReply::json(200, r#"{"a": 1}"#),
        })
        .await;
        assert_eq!(recovered.unwrap()["structuredContent"], json!({"a": 1}));
        assert_eq!(requests.len(), 2);

        for (method, retryable, count) in [("GET", true, 2), ("POST", false, 1)] {
            let (result, requests) = send(method, move |_| HttpReply::raw(cut).then_close()).await;
            let error = result.unwrap_err().into_error();
            assert!(error.message.contains("was interrupted: "), "{error}");
            let facts = (error.code, error.is_retryable(), requests.len());
            assert_eq!(facts, (Code::ToolExecutionFailed, retryable, count), "{method} {cut}");
        }
    }
}

#[tokio::test]
async fn malformed_responses_end_in_an_error_or_are_read_up_to_their_length() {
    let (longer, _) = get(|_| {
        HttpReply::raw("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}{}{}")
            .then_close()
    })
    .await;
    assert_eq!(longer.unwrap()["structuredContent"], json!({}));

    let many_headers = || format!("HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\n{{}}", "x-a: b\r\n".repeat(10_000));
    let long_header = || format!("HTTP/1.1 200 OK\r\nx-a: {}\r\ncontent-length: 2\r\n\r\n{{}}", "b".repeat(2_000_000));
    let bad_length = || "HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\n{}".to_owned();
    for bytes in [many_headers(), long_header(), bad_length()] {
        let (result, _) = get(move |_| HttpReply::raw(bytes.clone()).then_close()).await;
        let (kind, code, message) = failure_parts(result);
        assert_eq!((kind, code), ("unavailable", Code::ToolExecutionFailed), "{message}");
        assert!(message.len() < 300, "{message}");
    }
}
