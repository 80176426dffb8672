//! A client of ours, a surface, and scripted sources in between.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolcrib::core::config::{Config, Expose, Mode};
use toolcrib::testkit::{Scripted, config};
use toolcrib::{Options, Registry};
use toolcrib_mcp::server::{ServerOptions, Service, serve_stream};
use toolcrib_mcp::{Client, Notice, RequestOptions, Target, WireError};
use toolcrib_server::{Serving, Setup, Surface, bind};
use toolcrib_testkit::rig;
use url::Url;

pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) registry: Registry,
    pub(crate) surface: Surface,
    pub(crate) client: Client,
    _server: JoinHandle<()>,
}

/// A surface over these sources, and a client that has connected to it.
pub(crate) async fn stage(mode: Mode, sources: &[(&str, &Arc<Scripted>)]) -> Stage {
    staged(Expose { mode, ..Expose::default() }, sources).await
}

pub(crate) async fn staged(expose: Expose, sources: &[(&str, &Arc<Scripted>)]) -> Stage {
    let mut config = config(sources.iter().map(|(id, _)| *id));
    config.expose = expose;
    configured(config, sources).await
}

pub(crate) async fn configured(config: Config, sources: &[(&str, &Arc<Scripted>)]) -> Stage {
    let options = Options { connect: Some(Scripted::connect(sources.iter().copied())), ..Options::default() };
    let expose = config.expose.clone();
    let registry = Registry::open(config, options).await.unwrap();
    let surface = Surface::new(registry.clone(), expose);
    let (client, server) = connect(&surface, |_| {}).await;
    Stage { registry, surface, client, _server: server }
}

/// A source that is a process of its own: the scripted server with these flags.
pub(crate) fn source(flags: &[&str], settings: Value) -> Value {
    let mut source = json!({ "command": rig::scripted(), "args": flags });
    source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    source
}

/// A surface over such sources.
pub(crate) async fn processes(sources: Value, mode: Mode) -> (Registry, Surface) {
    let config = json!({ "sources": sources }).to_string();
    let config = Config::read(&config, "toolcrib.json", std::path::Path::new(".")).unwrap();
    let registry = Registry::open(config, Options::default()).await.unwrap();
    let surface = Surface::new(registry.clone(), Expose { mode, ..Expose::default() });
    (registry, surface)
}

/// A surface at an address, until dropped.
pub(crate) struct Served {
    pub(crate) url: Url,
    leave: CancellationToken,
    running: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn at(address: &str, surface: &Surface) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let found = toolcrib::config_file::Found::of(toolcrib::core::config::Config::default());
        let setup = Setup { found, data: directory.path().to_owned(), require_token: false, refuse_own_process: false };
        let serving = Serving::new(bind(address.parse().unwrap()).await.unwrap(), surface.clone(), setup).unwrap();
        let url = format!("http://{}/mcp", serving.address()).parse().unwrap();
        let leave = CancellationToken::new();
        let running = tokio::spawn(serving.run(leave.clone().cancelled_owned()));
        Served { url, leave, running }
    }

    /// Takes leave of its clients; where it was.
    pub(crate) async fn end(self) -> String {
        self.leave.cancel();
        self.running.await.unwrap();
        format!("127.0.0.1:{}", self.url.port().unwrap())
    }
}

/// Another client of the same surface, or of what leads to it.
pub(crate) async fn connect(
    service: &(impl Service + Clone),
    how: impl FnOnce(&mut toolcrib_mcp::Options),
) -> (Client, JoinHandle<()>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (reader, writer) = tokio::io::split(theirs);
    let options = ServerOptions::new("toolcrib", "0");
    let service = Arc::new(service.clone());
    let server = tokio::spawn(serve_stream(service, reader, writer, options, CancellationToken::new()));
    let (reader, writer) = tokio::io::split(ours);
    let mut options = toolcrib_mcp::Options::new("test", "0");
    how(&mut options);
    let target = Target::Stream { reader: Box::new(reader), writer: Box::new(writer) };
    (Client::connect(target, options).await.unwrap(), server)
}

impl Stage {
    pub(crate) async fn request(&self, method: &str, params: Value) -> Result<Value, WireError> {
        ask(&self.client, method, params).await
    }

    /// The names that are listed, page by page.
    pub(crate) async fn listed(&self) -> Vec<String> {
        let (mut names, mut params) = (Vec::new(), json!({}));
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

    /// The text of a call's answer.
    pub(crate) async fn said(&self, name: &str, arguments: Value) -> String {
        text(&self.call(name, arguments).await)
    }

    /// The error that a call is refused with.
    pub(crate) async fn refused(&self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments).await;
        assert_eq!(result["isError"], true, "{result}");
        serde_json::from_str::<Value>(&text(&result)).unwrap()["error"].clone()
    }
}

pub(crate) async fn ask(client: &Client, method: &str, params: Value) -> Result<Value, WireError> {
    let params: Box<RawValue> = to_raw_value(&params).unwrap();
    let result = client.request(method, Some(&params), &RequestOptions::new(SOON)).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

pub(crate) fn text(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Waits until a client hears that its tools changed.
pub(crate) async fn told_of_change(notices: &mut tokio::sync::broadcast::Receiver<Notice>) {
    let heard = async { while !matches!(notices.recv().await.unwrap(), Notice::ToolsChanged) {} };
    tokio::time::timeout(SOON, heard).await.unwrap();
}

/// A tool with one required text.
pub(crate) fn tool(name: &str, description: &str) -> Value {
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
