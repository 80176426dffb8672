//! Tools behind the nodes, which are not idempotent: each call names a job, and executing a job twice is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer, ReceivedRequest};

/// Duration of a job, so that calls are in flight when a node is killed.
const JOB_TIME: Duration = Duration::from_millis(50);

/// Tools of both sources.
pub(super) const JOB_TOOLS: [&str; 2] = ["api__run_job", "worker__run_job"];

/// HTTP server that is an API with a POST operation, and an MCP server.
pub(super) struct JobServer {
    server: LoopbackServer,
    /// How often each job was executed.
    executions: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl JobServer {
    pub(super) fn start() -> JobServer {
        let executions = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let executed = executions.clone();
        let server = LoopbackServer::start(move |request| {
            let reply = request.rpc_method();
            match (request.target.as_str(), reply.as_str()) {
                ("/jobs", _) => HttpReply::json(200, json!({ "done": run_job(&executed, &request.json()["job"]) })),
                ("/mcp", "tools/call") => {
                    let job = run_job(&executed, &request.json()["params"]["arguments"]["job"]);
                    request.rpc_result(&json!({ "content": [{ "type": "text", "text": job }] }))
                }
                ("/mcp", "tools/list") => request.rpc_result(&json!({ "tools": [job_tool()] })),
                _ => handshake(request),
            }
        });
        JobServer { server, executions }
    }

    /// Sources for the configuration of the nodes; `document` is the path of [`JobServer::document`].
    pub(super) fn sources(&self, document: &str) -> Value {
        let url = &self.server.url;
        json!({
            "api": { "openapi": document, "base_url": url, "ttl": "24h" },
            "worker": { "url": format!("{url}/mcp"), "ttl": "24h" },
        })
    }

    /// OpenAPI document of the API.
    pub(super) fn document() -> Value {
        let body = json!({ "required": true, "content": { "application/json": { "schema": job_schema() } } });
        let operation = json!({
            "operationId": "run_job",
            "requestBody": body,
            "responses": { "200": { "description": "The job is done" } },
        });
        json!({
            "openapi": "3.1.0",
            "info": { "title": "Jobs", "version": "1" },
            "paths": { "/jobs": { "post": operation } },
        })
    }

    /// Returns how often each job was executed.
    pub(super) fn executions(&self) -> BTreeMap<String, usize> {
        self.executions.lock().clone()
    }
}

/// Arguments of a call of one of the [`JOB_TOOLS`].
pub(super) fn job_arguments(tool: &str, job: &str) -> Value {
    if tool == JOB_TOOLS[0] { json!({ "body": { "job": job } }) } else { json!({ "job": job }) }
}

/// Executes a job and returns it.
fn run_job(executions: &Mutex<BTreeMap<String, usize>>, job: &Value) -> Value {
    let name = job.as_str().unwrap_or_default().to_owned();
    *executions.lock().entry(name).or_default() += 1;
    std::thread::sleep(JOB_TIME);
    job.clone()
}

fn handshake(request: &ReceivedRequest) -> HttpReply {
    request.legacy_handshake("jobs").unwrap_or_else(|| HttpReply::empty(404))
}

fn job_tool() -> Value {
    json!({ "name": "run_job", "inputSchema": job_schema() })
}

fn job_schema() -> Value {
    json!({ "type": "object", "properties": { "job": { "type": "string" } }, "required": ["job"] })
}
