//! A small server made with the official Rust SDK, as a counterpart in tests: on stdio, or with `--http [PORT]` over
//! Streamable HTTP on loopback.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServiceExt, schemars, tool, tool_router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

struct Server;

#[derive(Deserialize, schemars::JsonSchema)]
struct Greet {
    /// Whom to greet
    name: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Sum {
    numbers: Vec<i64>,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Total {
    total: i64,
}

#[tool_router(server_handler)]
impl Server {
    #[tool(description = "Greets somebody by name")]
    fn greet(&self, Parameters(Greet { name }): Parameters<Greet>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(description = "Repeats a text")]
    fn echo(&self, Parameters(Echo { text }): Parameters<Echo>) -> String {
        text
    }

    #[tool(description = "Adds up numbers")]
    fn sum(&self, Parameters(Sum { numbers }): Parameters<Sum>) -> Json<Total> {
        Json(Total { total: numbers.iter().fold(0, |total, number| total.wrapping_add(*number)) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => stdio().await,
        ["--http"] => http(0).await,
        ["--http", port] => http(port.parse()?).await,
        _ => Err("usage: rmcp-server [--http [PORT]]".into()),
    }
}

async fn stdio() -> Result<(), Box<dyn Error>> {
    Server.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}

async fn http(port: u16) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Server), sessions, StreamableHttpServerConfig::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
