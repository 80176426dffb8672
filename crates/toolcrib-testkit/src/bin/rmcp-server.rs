//! Small MCP server based on the official Rust SDK, as a counterpart in tests: on stdio, or with `--http [PORT]` over
//! Streamable HTTP on loopback.
//!
//! It shows whether Toolcrib works with an implementation of the protocol that is not its own. In benchmarks it stands
//! for a typical server.

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

/// MCP server with three tools.
struct RmcpServer;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Greet")]
struct GreetArguments {
    /// Whom to greet
    name: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Echo")]
struct EchoArguments {
    text: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Sum")]
struct SumArguments {
    numbers: Vec<i64>,
}

#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "Total")]
struct SumResult {
    total: i64,
}

#[tool_router(server_handler)]
impl RmcpServer {
    #[tool(description = "Greets a person by name")]
    fn greet(&self, Parameters(GreetArguments { name }): Parameters<GreetArguments>) -> String {
        format!("Hello, {name}!")
    }

    #[tool(description = "Repeats a text")]
    fn echo(&self, Parameters(EchoArguments { text }): Parameters<EchoArguments>) -> String {
        text
    }

    #[tool(description = "Adds up numbers")]
    fn sum(&self, Parameters(SumArguments { numbers }): Parameters<SumArguments>) -> Json<SumResult> {
        Json(SumResult { total: numbers.iter().fold(0, |total, number| total.wrapping_add(*number)) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => serve_stdio().await,
        ["--http"] => serve_http(0).await,
        ["--http", port] => serve_http(port.parse()?).await,
        _ => Err("usage: rmcp-server [--http [PORT]]".into()),
    }
}

/// Serves one session on stdin and stdout.
async fn serve_stdio() -> Result<(), Box<dyn Error>> {
    RmcpServer.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}

/// Serves on loopback; port 0 chooses a free one. Prints the URL first.
async fn serve_http(port: u16) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(RmcpServer), sessions, StreamableHttpServerConfig::default());
    loop {
        let (stream, _) = listener.accept().await?;
        // Without it, the SDK's responses wait for delayed acknowledgements (44 ms per call).
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
