//! Provides an MCP service over scripted sources with a connected client.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::config::{Config, Expose, ExposeMode};
use toolcrib::core::json::{parse_exact, to_exact_raw};
use toolcrib::testkit::config_with_sources;
use toolcrib::{Registry, RegistryOptions};
use toolcrib_mcp::server::{ServerOptions, Service, serve_stream};
use toolcrib_mcp::{ConnectTarget, ConnectionEvent, McpClient, RequestOptions, WireError};
use toolcrib_server::{HttpServer, McpService, bind};

pub(crate) use crate::test_server::TEST_TIMEOUT;
use crate::test_server::{RunningServer, SourceScripts, open_scripted, server_config};

/// A service and one client, connected through a stream in memory.
pub(crate) struct McpFixture {
    pub(crate) registry: Registry,
    pub(crate) service: McpService,
    pub(crate) client: McpClient,
    _server: JoinHandle<()>,
}

/// Starts an MCP service over these sources and connects a client to it.
pub(crate) async fn start(mode: ExposeMode, sources: SourceScripts<'_>) -> McpFixture {
    start_exposed(Expose { mode, ..Expose::default() }, sources).await
}

pub(crate) async fn start_exposed(expose: Expose, sources: SourceScripts<'_>) -> McpFixture {
    let mut config = config_with_sources(sources.iter().map(|(id, _)| *id));
    config.expose = expose;
    start_configured(config, sources).await
}

pub(crate) async fn start_configured(config: Config, sources: SourceScripts<'_>) -> McpFixture {
    let expose = config.expose.clone();
    let registry = open_scripted(config, RegistryOptions::default(), sources).await;
    let service = McpService::new(registry.clone(), expose);
    let (client, server) = connect_client(&service, |_| {}).await;
    McpFixture { registry, service, client, _server: server }
}

/// Opens an MCP service over process sources.
pub(crate) async fn open_with_processes(sources: Value, mode: ExposeMode) -> (Registry, McpService) {
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
    let service = McpService::new(registry.clone(), Expose { mode, ..Expose::default() });
    (registry, service)
}

/// Starts an HTTP server for an MCP service.
pub(crate) async fn serve_http(address: &str, service: &McpService) -> RunningServer {
    let directory = tempfile::tempdir().unwrap();
    let server_config = server_config(Config::default(), directory.path());
    let listener = bind(address.parse().unwrap()).await.unwrap();
    RunningServer::start(HttpServer::new(listener, service.clone(), server_config).unwrap(), directory)
}

/// Connects another client to the same MCP service or to a bridge.
pub(crate) async fn connect_client(
    service: &(impl Service + Clone),
    configure: impl FnOnce(&mut toolcrib_mcp::ClientOptions),
) -> (McpClient, JoinHandle<()>) {
    connect_client_to(service, ServerOptions::new("toolcrib", "0"), configure).await
}

pub(crate) async fn connect_client_to(
    service: &(impl Service + Clone),
    server_options: ServerOptions,
    configure: impl FnOnce(&mut toolcrib_mcp::ClientOptions),
) -> (McpClient, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(theirs);
    let service = Arc::new(service.clone());
    let server = tokio::spawn(serve_stream(service, reader, writer, server_options, CancellationToken::new()));
    let (reader, writer) = tokio::io::split(ours);
    let mut options = toolcrib_mcp::ClientOptions::new("test", "0");
    configure(&mut options);
    let target = ConnectTarget::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    (McpClient::connect(target, options).await.unwrap(), server)
}

impl McpFixture {
    pub(crate) async fn request(&self, method: &str, params: Value) -> Result<Value, WireError> {
        send_request(&self.client, method, params).await
    }

    /// The names on all pages of the tool list.
    pub(crate) async fn list_tool_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut params = json!({});
        loop {
            let page = self.request("tools/list", params).await.unwrap();
            let tools = page["tools"].as_array().unwrap();
            names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            match page.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return names,
            }
        }
    }

    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": name, "arguments": arguments })).await.unwrap()
    }

    /// Calls a tool and returns the text of its result.
    pub(crate) async fn call_text(&self, name: &str, arguments: Value) -> String {
        result_text(&self.call(name, arguments).await)
    }

    /// Calls a tool and returns the error in its result.
    pub(crate) async fn call_error(&self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        serde_json::from_str::<Value>(&result_text(&result)).unwrap()["error"].clone()
    }
}

pub(crate) async fn send_request(client: &McpClient, method: &str, params: Value) -> Result<Value, WireError> {
    let params: Box<RawValue> = to_exact_raw(&params).unwrap();
    let result = client.request(method, Some(&params), &RequestOptions::new(TEST_TIMEOUT)).await?;
    Ok(parse_exact(result.get()).unwrap())
}

pub(crate) fn result_text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Waits until a client is notified that its tools changed.
pub(crate) async fn wait_for_tools_changed(notices: &mut tokio::sync::broadcast::Receiver<ConnectionEvent>) {
    let tools_changed = async { while !matches!(notices.recv().await.unwrap(), ConnectionEvent::ToolsChanged) {} };
    tokio::time::timeout(TEST_TIMEOUT, tools_changed).await.unwrap();
}

/// A tool with a required argument `text` and an optional one.
pub(crate) fn text_tool(name: &str, description: &str) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": { "text": { "type": "string", "description": "What to say" }, "times": { "type": "integer" } },
            "required": ["text"],
        },
    })
}
