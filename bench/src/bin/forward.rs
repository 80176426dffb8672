//! A proxy that does nothing: it passes every request on to one address, and the answer back. What a call through it
//! costs is what a second hop costs.
//!
//! `forward URL`; it prints `listening on http://127.0.0.1:PORT/mcp`.

#![expect(clippy::print_stdout, reason = "it says where it listens")]

use std::{io, time::Duration};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use tokio::net::TcpListener;

#[derive(Clone)]
struct ForwardTarget {
    client: reqwest::Client,
    url: reqwest::Url,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let url = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: forward URL"))?;
    let url = url.parse().map_err(io::Error::other)?;
    // The very client that Toolcrib speaks to servers with.
    let client = toolcrib_mcp::ClientOptions::http_client(Duration::from_secs(5)).map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // A stream that cannot be set so is only slower.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().route("/mcp", post(forward_request)).with_state(ForwardTarget { client, url }))
        .await
}

async fn forward_request(State(way): State<ForwardTarget>, mut headers: HeaderMap, body: Bytes) -> Response {
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let Ok(answer) = way.client.post(way.url).headers(headers).body(body).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let (status, kind) = (answer.status(), answer.headers().get(header::CONTENT_TYPE).cloned());
    let Ok(body) = answer.bytes().await else { return StatusCode::BAD_GATEWAY.into_response() };
    let mut response = (status, body).into_response();
    if let Some(kind) = kind {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
