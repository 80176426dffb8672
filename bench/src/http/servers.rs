//! Both servers of the HTTP benchmark: Toolcrib with 10,000 tools, and an axum router that returns fixed bytes.

use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::serve::ListenerExt;
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use toolcrib::config::Config;
use toolcrib::config_file::LoadedConfig;
use toolcrib::{Registry, RegistryOptions};
use toolcrib_server::{HttpServer, McpService, ServerConfig, bind};

use crate::Result;
use crate::recorded_tools::{parse_config, renamed_tools, split_into_sources};

/// Number of tools in the catalogue.
pub(crate) const TOOLS: usize = 10_000;
/// Number of tools of each source.
const TOOLS_PER_SOURCE: usize = 200;

/// Toolcrib server that runs as long as its runtime.
pub(crate) struct ToolcribServer {
    pub(crate) address: String,
    /// Removed with the server.
    _data: TempDir,
}

/// Axum server with fixed responses.
pub(crate) struct BareServer {
    pub(crate) address: String,
}

/// Builds a runtime with one worker thread for both servers. The core on which it runs changes the time of a short
/// response fourfold, so both must share it.
pub(crate) fn build_runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}

/// Opens a registry in memory with 10,000 tools. No source is contacted: their commands are never run. `settings` are further
/// keys of the configuration.
pub(crate) async fn open_registry(settings: &Map<String, Value>) -> Result<(Registry, Config)> {
    let lists = split_into_sources(&renamed_tools(TOOLS)?, TOOLS_PER_SOURCE)?;
    let commands: Vec<_> = lists.iter().map(|list| (list.id.to_string(), vec!["true".to_owned()])).collect();
    let config = parse_config(&commands, settings)?;
    let registry = Registry::open(config.clone(), RegistryOptions::default()).await?;
    for list in lists {
        registry.sources().record_tools(&list.id, list.tools).await?;
    }
    Ok((registry, config))
}

impl ToolcribServer {
    /// Serves a registry.
    pub(crate) fn start(runtime: &Runtime, (registry, config): (Registry, Config)) -> Result<ToolcribServer> {
        let data = tempfile::tempdir()?;
        let serving = runtime.block_on(async {
            let surface = McpService::new(registry, config.expose.clone());
            let found = LoadedConfig::from_config(config);
            let setup = ServerConfig {
                loaded_config: found,
                data_dir: data.path().to_owned(),
                require_token: false,
                refuse_own_process: false,
            };
            HttpServer::new(bind(([127, 0, 0, 1], 0).into()).await?, surface, setup)
        })?;
        let address = serving.address().to_string();
        runtime.spawn(serving.run(std::future::pending()));
        Ok(ToolcribServer { address, _data: data })
    }
}

impl BareServer {
    /// Serves each body at its path, and `304 Not Modified` at `/unchanged`.
    pub(crate) fn start(runtime: &Runtime, answers: &[(&'static str, &[u8])]) -> Result<BareServer> {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?.to_string();
        let listener = listener.tap_io(|stream| {
            // Without it the connection is only slower, so an error is ignored.
            let _ = stream.set_nodelay(true);
        });
        let not_modified = get(|| async { StatusCode::NOT_MODIFIED });
        let router = answers.iter().fold(Router::new().route("/unchanged", not_modified), |router, (path, body)| {
            let body = Bytes::copy_from_slice(body);
            router.route(path, get(move || async move { ([(header::CONTENT_TYPE, "application/json")], body.clone()) }))
        });
        runtime.spawn(async { axum::serve(listener, router).await });
        Ok(BareServer { address })
    }
}
