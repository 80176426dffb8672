//! Test registry with OpenAPI sources, in its own directory.

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib::config::Config;
use toolcrib::core::{Result, SourceId};
use toolcrib::registry::ToolFilter;
use toolcrib::store::MemoryStore;
use toolcrib::{CallContext, CallOutput, Principal, Refresh, RefreshOutcome, Registry, RegistryOptions};

use super::server::LoopbackServer;

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
        let mut source = json!({ "openapi": "api.json" });
        source.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        OpenApiTestRegistry::open(home, json!({ "shop": source })).await
    }

    pub(crate) async fn refresh_source(&self, source: &str) -> RefreshOutcome {
        let sources = Some(vec![SourceId::parse(source).unwrap()]);
        self.refresh(Refresh { sources, ..Refresh::default() }).await.pop().unwrap()
    }

    pub(crate) async fn tool_names(&self) -> Vec<String> {
        self.tools(ToolFilter::default()).await.unwrap().into_iter().map(|tool| tool.name.to_string()).collect()
    }

    pub(crate) async fn call(&self, name: &str, input: Value) -> Result<CallOutput> {
        self.call_with(name, input, CallContext::default()).await
    }

    pub(crate) async fn call_with(&self, name: &str, input: Value, options: CallContext) -> Result<CallOutput> {
        self.registry.call(name, input).context(options).caller(Principal::local("agent")).await
    }
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
