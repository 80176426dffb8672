//! Report of `toolcrib add`: the discovered and the skipped tools, and for an API its servers, missing credentials and
//! the token cost of its tools.
//!
//! ```text
//! shop: 8 tools (41 ms)
//!   shop__add_picture, shop__cancel_order, …
//!   requests go to http://127.0.0.1:7843
//!   auth missing: `staff` (bearer) for 3 tools; `--bearer '${env:NAME}'` gives a token
//!   tokens: 1,204 for its tools in full, 310 for the summary of the catalogue
//!   skipped: `#/paths/~1orders/patch`: the operation is not an object
//! ```

use serde::Serialize;
use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::core::source::{OpenApiSource, SourceKind};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::{ApiRequirements, ApiServer, MissingScheme, SourceView};
use toolcrib::{RefreshOutcome, Registry};

use crate::commands::context::group_digits;
use crate::plural::{join_truncated, pluralize};
use crate::session::CliSession;

// Limits of the text for people; the JSON report has everything.
const MAX_LISTED_NAMES: usize = 8;
const MAX_LISTED_SKIPPED_TOOLS: usize = 10;
const MAX_LISTED_SCHEMES: usize = 5;
const MAX_LISTED_SERVERS: usize = 3;

/// The report as printed with `--json`: the source as in `toolcrib sources`, with more fields for an API.
#[derive(Debug, Serialize)]
pub(super) struct AddReport {
    #[serde(flatten)]
    view: SourceView,
    #[serde(flatten)]
    api: Option<ApiReport>,
    /// Names of the listed tools.
    #[serde(skip)]
    names: Vec<String>,
    /// Configuration keys that filter the operations of the document.
    #[serde(skip)]
    filters: Vec<&'static str>,
}

/// Fields for a source that is an API or a workflow document.
#[derive(Debug, Serialize)]
struct ApiReport {
    #[serde(flatten)]
    needs: ApiRequirements,
    tokens: ApiTokenCosts,
}

/// Number of tokens (o200k_base) in a model's context.
#[derive(Debug, Serialize)]
struct ApiTokenCosts {
    /// All tools of this source with their schemas.
    full: usize,
    /// The summary of all tools of all sources.
    summary: usize,
}

impl AddReport {
    /// Collects the report after discovery.
    pub(super) async fn build(registry: &Registry, view: SourceView) -> AddReport {
        let catalog_view = registry.view(&CliSession::caller());
        // As `toolcrib tools` lists them: hidden tools are neither named nor part of the cost.
        let own_tools = || catalog_view.listed_tools().filter(|tool| *tool.source() == view.id);
        let names: Vec<String> = own_tools().map(|tool| tool.name().to_string()).collect();
        let is_api = matches!(view.kind.as_str(), "openapi" | "workflow") && !names.is_empty();
        let mut api = None;
        // Counting tokens needs the tokenizer, which takes a while to load; skip it for plain MCP servers.
        if is_api {
            registry.statistics().count_tokens().await;
            let full = own_tools().map(|tool| tool.catalog_source.segment.token_count(tool.entry) as usize).sum();
            let tokens = ApiTokenCosts { full, summary: catalog_view.summary(SummaryBudget::default()).tokens };
            api = Some(ApiReport { needs: registry.sources().api_requirements(&view.id), tokens });
        }
        let filters =
            registry.sources().effective(&view.id).map(|source| active_filters(&source.kind)).unwrap_or_default();
        AddReport { view, api, names, filters }
    }

    /// Renders the report for people.
    pub(super) fn render(&self, outcome: &RefreshOutcome) -> String {
        let id = &self.view.id;
        // A failed or disabled source has no tools to report.
        match outcome.status {
            RefreshStatus::Failed => {
                format!("{id}: declared, but its discovery failed; `toolcrib refresh {id}` tries again")
            }
            RefreshStatus::Disabled => format!("{id}: declared, and disabled; `toolcrib enable {id}` enables it"),
            RefreshStatus::Success | RefreshStatus::Unchanged | RefreshStatus::Fresh | _ => {
                let tools = pluralize(self.view.tool_count, "tool");
                let mut lines = vec![format!("{id}: {tools} ({} ms)", outcome.elapsed_ms)];
                // Names first, then the explanation if there are none; an MCP server without tools needs none.
                lines.extend((!self.names.is_empty()).then(|| join_truncated(&self.names, MAX_LISTED_NAMES)));
                lines.extend(self.no_tools_reason());
                lines.extend(self.api.iter().flat_map(ApiReport::render_lines));
                lines.extend(self.skipped_lines());
                lines.join("\n  ")
            }
        }
    }

    /// Explains why a document yields no tools: it has none, or the filters of the declaration exclude all. `None` for
    /// a source with tools and for MCP servers.
    fn no_tools_reason(&self) -> Option<String> {
        if self.view.tool_count > 0 {
            return None;
        }
        match (self.view.kind.as_str(), self.filters.as_slice()) {
            ("openapi", []) => Some("the document has no operations that become tools".to_owned()),
            ("openapi", keys) => {
                let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
                Some(format!("the document has no operations that become tools under {}", keys.join(", ")))
            }
            ("workflow", _) => Some("the document has no workflows that become tools".to_owned()),
            _ => None,
        }
    }

    /// One line per skipped tool.
    fn skipped_lines(&self) -> Vec<String> {
        let skipped = &self.view.skipped;
        let line = |name: &str, reason: &str| format!("skipped: `{}`: {reason}", sanitize_truncated(name, 80));
        let mut lines: Vec<String> =
            skipped.iter().take(MAX_LISTED_SKIPPED_TOOLS).map(|tool| line(&tool.name, &tool.reason)).collect();
        if let Some(more) = skipped.len().checked_sub(MAX_LISTED_SKIPPED_TOOLS).filter(|more| *more > 0) {
            lines.push(format!("skipped: {more} more; `toolcrib sources --json` lists all"));
        }
        lines
    }
}

impl ApiReport {
    /// Renders where requests go, which credentials are missing, and the token costs.
    fn render_lines(&self) -> Vec<String> {
        let ApiTokenCosts { full, summary } = self.tokens;
        let mut lines = server_lines(&self.needs.servers);
        lines.extend(missing_auth_line(&self.needs.auth_missing));
        lines.push(format!(
            "tokens: {} for its tools in full, {} for the summary of the catalogue",
            group_digits(full),
            group_digits(summary)
        ));
        lines
    }
}

/// Returns the filter keys that the declaration sets.
fn active_filters(kind: &SourceKind) -> Vec<&'static str> {
    let SourceKind::OpenApi(OpenApiSource { include, exclude, include_tags, .. }) = kind else { return Vec::new() };
    let filters = [("include", include), ("exclude", exclude), ("include_tags", include_tags)];
    filters.into_iter().filter(|(_, values)| !values.is_empty()).map(|(key, _)| key).collect()
}

/// Says where requests go, or that the document names no server.
fn server_lines(servers: &[ApiServer]) -> Vec<String> {
    let display_url = |server: &ApiServer| sanitize_truncated(&server.url, 120);
    match servers {
        [] => Vec::new(),
        [only] if only.url.is_empty() => {
            vec!["requests: the document names no server; `--base-url URL` says where they go".to_owned()]
        }
        [only] => vec![format!("requests go to {}", display_url(only))],
        several => {
            let each = several.iter().map(|server| {
                // An operation whose server is unknown cannot be called until `base_url` is set.
                let url = if server.url.is_empty() { "no known server".to_owned() } else { display_url(server) };
                format!("{url} ({})", pluralize(server.tools, "tool"))
            });
            let each: Vec<String> = each.collect();
            vec![format!(
                "requests go to {}; `--base-url URL` sets one server for all",
                join_truncated(&each, MAX_LISTED_SERVERS)
            )]
        }
    }
}

/// Names the security schemes without credentials, and how to set them.
fn missing_auth_line(schemes: &[MissingScheme]) -> Option<String> {
    let each: Vec<String> = schemes
        .iter()
        .map(|missing| {
            let scheme = sanitize_truncated(&missing.scheme, 60);
            let kind = sanitize_truncated(&missing.kind, 40);
            format!("`{scheme}` ({kind}) for {}", pluralize(missing.tools, "tool"))
        })
        .collect();
    // A bearer token can be given on the command line; other schemes need a configuration file.
    let remedy = match schemes {
        [] => return None,
        [only] if matches!(only.kind.as_str(), "bearer" | "oauth2" | "openid_connect") => {
            "`--bearer '${env:NAME}'` gives a token"
        }
        _ => "`auth: { schemes: { NAME: … } }` in a configuration gives them",
    };
    Some(format!("auth missing: {}; {remedy}", join_truncated(&each, MAX_LISTED_SCHEMES)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::value::{RawValue, to_raw_value};
    use serde_json::{Value, json};
    use toolcrib::config::Config;
    use toolcrib::{RegistryOptions, SourceId};

    use super::*;

    fn tool_definition(name: &str, server: &str, security: Value) -> Box<RawValue> {
        let execution =
            json!({ "mode": "sync_http", "method": "GET", "server": server, "path": "/x", "security": security });
        let backing = json!({ "execution": execution });
        let tool = json!({ "name": name, "inputSchema": { "type": "object" }, "x-toolcrib-backing": backing });
        to_raw_value(&tool).unwrap()
    }

    /// Returns the report on an API with these tools, without its first line, and as JSON.
    async fn check(keys: &str, tools: Vec<Box<RawValue>>) -> (String, Value) {
        let text = format!("sources: {{ shop: {{ openapi: shop.yaml{keys} }} }}");
        let config = Config::read(&text, "toolcrib.yaml", Path::new("/p")).unwrap();
        let options = RegistryOptions { environment: Vec::new(), ..RegistryOptions::default() };
        let registry = Registry::open(config, options).await.unwrap();
        let id = SourceId::parse("shop").unwrap();
        let outcome = registry.sources().record_tools(&id, tools).await.unwrap();
        let report = AddReport::build(&registry, registry.sources().get(&id).unwrap()).await;
        registry.close().await;
        let text = report.render(&outcome);
        (
            text.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned()),
            serde_json::to_value(&report).unwrap(),
        )
    }

    #[tokio::test]
    async fn an_api_report_names_servers_missing_credentials_and_token_costs() {
        let token = json!([[{ "scheme": "token", "kind": "bearer" }]]);
        let key = json!([[{ "scheme": "key", "kind": { "api_key": { "name": "k", "place": "query" } } }]]);
        let tools = || {
            vec![
                tool_definition("a", "http://one.example", json!([])),
                tool_definition("b", "http://one.example", token.clone()),
                tool_definition("c", "http://two.example", json!([])),
            ]
        };
        let (text, report) = check("", tools()).await;
        let tokens = &report["tokens"];
        assert_eq!(
            text,
            format!(
                "  shop__a, shop__b, shop__c\n  \
                 requests go to http://one.example (2 tools), http://two.example (1 tool); \
                 `--base-url URL` sets one server for all\n  \
                 auth missing: `token` (bearer) for 1 tool; `--bearer '${{env:NAME}}'` gives a token\n  \
                 tokens: {} for its tools in full, {} for the summary of the catalogue",
                tokens["full"], tokens["summary"]
            )
        );
        assert!(tokens["full"].as_u64() > Some(0) && tokens["summary"].as_u64() > Some(0), "{tokens}");
        assert_eq!((&report["id"], &report["tool_count"]), (&json!("shop"), &json!(3)));
        assert_eq!(report["auth_missing"], json!([{ "scheme": "token", "kind": "bearer", "tools": 1 }]));
        let servers = json!([{ "url": "http://one.example", "tools": 2 }, { "url": "http://two.example", "tools": 1 }]);
        assert_eq!(report["servers"], servers);

        let (text, report) = check(", base_url: 'https://x.example/', auth: { bearer: t }", tools()).await;
        assert!(text.contains("\n  requests go to https://x.example\n  tokens: "), "{text}");
        assert_eq!(report["auth_missing"], json!([]));
        let (text, _) = check("", vec![tool_definition("a", "", token), tool_definition("b", "", key)]).await;
        assert!(text.contains("requests: the document names no server; `--base-url URL` says where they go"), "{text}");
        let both = "auth missing: `key` (api_key) for 1 tool, `token` (bearer) for 1 tool; `auth: { schemes:";
        assert!(text.contains(both), "{text}");
    }

    #[tokio::test]
    async fn reports_a_document_without_tools() {
        let (text, _) = check("", Vec::new()).await;
        assert_eq!(text, "  the document has no operations that become tools");
        let (text, _) = check(", include: [x_*], include_tags: [a]", Vec::new()).await;
        assert_eq!(text, "  the document has no operations that become tools under `include`, `include_tags`");
    }

    #[tokio::test]
    async fn lists_ten_skipped_tools_and_counts_the_rest() {
        let bad = |number: usize| to_raw_value(&json!({ "name": format!("t{number:02}"), "inputSchema": 5 })).unwrap();
        let (text, report) = check("", (0..12).map(bad).collect()).await;
        assert_eq!(text.lines().count(), 12, "{text}");
        assert!(text.ends_with("  skipped: 2 more; `toolcrib sources --json` lists all"), "{text}");
        assert_eq!(report["set_aside"].as_array().map(Vec::len), Some(12));
        let (text, _) = check("", (0..10).map(bad).collect()).await;
        assert!(text.lines().count() == 11 && !text.contains("more"), "{text}");
    }
}
