//! Proxy without any logic: forwards every request to one URL and returns the response. The time of a call through it
//! is the cost of a second hop.
//!
//! Usage: `forward URL`. It prints `listening on http://127.0.0.1:PORT/mcp`.

#![expect(clippy::print_stdout, reason = "prints the address it listens on")]

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

/// Upstream of all requests.
#[derive(Clone)]
struct ForwardTarget {
    client: reqwest::Client,
    url: reqwest::Url,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let url = std::env::args().nth(1).ok_or_else(|| io::Error::other("usage: forward URL"))?;
    let url = url.parse().map_err(io::Error::other)?;
    // The same HTTP client that Toolcrib uses for MCP servers.
    let client = toolcrib_mcp::ClientOptions::http_client(Duration::from_secs(5)).map_err(io::Error::other)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // Without it the connection is only slower, so an error is ignored.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, Router::new().route("/mcp", post(forward_request)).with_state(ForwardTarget { client, url }))
        .await
}

/// Forwards one request with its headers, except those of the connection.
async fn forward_request(State(target): State<ForwardTarget>, mut headers: HeaderMap, body: Bytes) -> Response {
    // The client sets both anew for its own connection.
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    let Ok(response) = target.client.post(target.url).headers(headers).body(body).send().await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).cloned();
    let Ok(body) = response.bytes().await else { return StatusCode::BAD_GATEWAY.into_response() };
    // Bodies are read completely: responses of the minimal server are no streams.
    let mut response = (status, body).into_response();
    if let Some(kind) = kind {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}
