//! Test registry with OpenAPI sources, in its own directory.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::config::Config;
use toolcrib::core::Result;
use toolcrib::store::MemoryStore;
use toolcrib::{CallContext, CallOutput, RefreshOutcome, Registry, RegistryOptions};
use toolcrib_testkit::http_server::LoopbackServer;
use toolcrib_testkit::observe::wait_until;
use toolcrib_testkit::programs::with_settings;

use crate::support::{self, skip_time};

pub(crate) struct OpenApiTestRegistry {
    pub(crate) registry: Registry,
    pub(crate) home: TempDir,
}

impl std::ops::Deref for OpenApiTestRegistry {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl OpenApiTestRegistry {
    /// Opens a registry; paths of documents are relative to `home`.
    pub(crate) async fn open(home: TempDir, sources: Value) -> OpenApiTestRegistry {
        let options = RegistryOptions {
            store: Some(std::sync::Arc::new(MemoryStore::new())),
            environment: Vec::new(),
            ..RegistryOptions::default()
        };
        let text = json!({ "sources": sources }).to_string();
        let config = Config::read(&text, "toolcrib.json", home.path()).unwrap();
        OpenApiTestRegistry { registry: Registry::open(config, options).await.unwrap(), home }
    }

    /// Opens a registry with one source `shop`, whose document is a file.
    pub(crate) async fn open_shop(document: &Value, settings: Value) -> OpenApiTestRegistry {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("api.json"), document.to_string()).unwrap();
        let source = with_settings(json!({ "openapi": "api.json" }), settings);
        OpenApiTestRegistry::open(home, json!({ "shop": source })).await
    }

    pub(crate) async fn refresh_source(&self, source: &str) -> RefreshOutcome {
        support::refresh(self, source).await
    }

    pub(crate) async fn tool_names(&self) -> Vec<String> {
        support::list_tools(self).await
    }

    pub(crate) async fn call(&self, name: &str, input: Value) -> Result<CallOutput> {
        self.call_with(name, input, CallContext::default()).await
    }

    pub(crate) async fn call_with(&self, name: &str, input: Value, options: CallContext) -> Result<CallOutput> {
        self.registry.call(name, input).context(options).caller(support::agent()).await
    }
}

/// Makes a call with a timeout of 40 s, which passes at once when the server has received this many requests.
pub(crate) async fn run_past_deadline<T>(server: &LoopbackServer, requests: usize, call: impl Future<Output = T>) -> T {
    let timeout = async {
        wait_until("the request is received", || server.requests().len() == requests).await;
        skip_time(Duration::from_secs(40)).await;
    };
    tokio::join!(call, timeout).0
}

/// Document of a small API with one GET and one POST operation.
pub(crate) fn pets_document(server: &LoopbackServer) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Pets", "version": "1" },
        "servers": [{ "url": format!("{}/v1", server.url) }],
        "paths": {
            "/pets/{id}": {
                "get": {
                    "operationId": "getPet",
                    "parameters": [
                        { "name": "id", "in": "path", "required": true, "schema": { "type": "string" } },
                        { "name": "full", "in": "query", "schema": { "type": "boolean" } },
                    ],
                    "responses": { "200": { "description": "it" } },
                },
            },
            "/pets": {
                "post": {
                    "operationId": "makePet",
                    "requestBody": { "required": true, "content": { "application/json": { "schema": {
                        "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } },
                    } } } },
                    "responses": { "201": { "description": "made" } },
                },
            },
        },
    })
}
