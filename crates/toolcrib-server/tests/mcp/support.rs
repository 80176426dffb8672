//! Provides an MCP service over scripted sources with a connected client.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::config::{Config, Expose, ExposeMode};
use toolcrib::config_file::LoadedConfig;
use toolcrib::testkit::{ScriptedSource, config_with_sources};
use toolcrib::{Registry, RegistryOptions};
use toolcrib_mcp::server::{ServerOptions, Service, serve_stream};
use toolcrib_mcp::{ConnectTarget, ConnectionEvent, McpClient, RequestOptions, WireError};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};
use toolcrib_testkit::programs;
use url::Url;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A service and one client, connected through a stream in memory.
pub(crate) struct McpFixture {
    pub(crate) registry: Registry,
    pub(crate) service: McpService,
    pub(crate) client: McpClient,
    _server: JoinHandle<()>,
}

/// Starts an MCP service over these sources and connects a client to it.
pub(crate) async fn start(mode: ExposeMode, sources: &[(&str, &Arc<ScriptedSource>)]) -> McpFixture {
    start_exposed(Expose { mode, ..Expose::default() }, sources).await
}

pub(crate) async fn start_exposed(expose: Expose, sources: &[(&str, &Arc<ScriptedSource>)]) -> McpFixture {
    let mut config = config_with_sources(sources.iter().map(|(id, _)| *id));
    config.expose = expose;
    start_configured(config, sources).await
}

pub(crate) async fn start_configured(config: Config, sources: &[(&str, &Arc<ScriptedSource>)]) -> McpFixture {
    let options = RegistryOptions {
        connector_factory: Some(ScriptedSource::connector_factory(sources.iter().copied())),
        ..RegistryOptions::default()
    };
    let expose = config.expose.clone();
    let registry = Registry::open(config, options).await.unwrap();
    let service = McpService::new(registry.clone(), expose);
    let (client, server) = connect_client(&service, |_| {}).await;
    McpFixture { registry, service, client, _server: server }
}

/// The declaration of a source that runs the scripted server as a process with these flags.
pub(crate) fn process_source(flags: &[&str], settings: Value) -> Value {
    let mut source = json!({ "command": programs::scripted_server(), "args": flags });
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    source
}

/// Opens an MCP service over process sources.
pub(crate) async fn open_with_processes(sources: Value, mode: ExposeMode) -> (Registry, McpService) {
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    let registry = Registry::open(config, RegistryOptions::default()).await.unwrap();
    let service = McpService::new(registry.clone(), Expose { mode, ..Expose::default() });
    (registry, service)
}

/// An HTTP server for an MCP service.
pub(crate) struct HttpTestServer {
    pub(crate) url: Url,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl HttpTestServer {
    pub(crate) async fn start(address: &str, service: &McpService) -> HttpTestServer {
        let directory = tempfile::tempdir().unwrap();
        let server_config = ServerConfig {
            loaded_config: LoadedConfig::from_config(Config::default()),
            data_dir: directory.path().to_owned(),
            require_token: false,
            // The client of a test runs in the same process as the server.
            refuse_own_process: false,
        };
        let http_server =
            HttpServer::new(bind(address.parse().unwrap()).await.unwrap(), service.clone(), server_config).unwrap();
        let url = format!("http://{}/mcp", http_server.address()).parse().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(http_server.run(shutdown.clone().cancelled_owned()));
        HttpTestServer { url, shutdown, task }
    }

    /// Shuts the server down and returns its address.
    pub(crate) async fn stop(self) -> String {
        self.shutdown.cancel();
        self.task.await.unwrap();
        format!("127.0.0.1:{}", self.url.port().unwrap())
    }
}

/// Connects another client to the same MCP service or to a bridge.
pub(crate) async fn connect_client(
    service: &(impl Service + Clone),
    configure: impl FnOnce(&mut toolcrib_mcp::ClientOptions),
) -> (McpClient, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(theirs);
    let options = ServerOptions::new("toolcrib", "0");
    let service = Arc::new(service.clone());
    let server = tokio::spawn(serve_stream(service, reader, writer, options, CancellationToken::new()));
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
    let params: Box<RawValue> = to_raw_value(&params).unwrap();
    let result = client.request(method, Some(&params), &RequestOptions::new(TEST_TIMEOUT)).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
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
