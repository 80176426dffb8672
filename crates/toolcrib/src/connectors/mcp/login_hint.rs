//! Explains a 401 of a remote MCP server: whether it wants an OAuth login, where, and with which scopes.
//!
//! The authorization servers are in the metadata of the protected resource (RFC 9728), which the challenge names or
//! which is at a well-known place. Toolcrib has no login of its own; `mcp-remote` is a stdio server that has one.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolcrib_config::show::mask_url;
use toolcrib_connector::address_policy::{NetworkScope, PublicOnlyResolver, check_url};
use toolcrib_core::source::SourceKind;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_mcp::{AuthChallenge, WireError};
use url::Url;

use super::McpConnector;

/// Timeout for the metadata, all places together. The caller waits for its error.
const METADATA_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum size of the metadata in bytes.
const MAX_METADATA_BYTES: usize = 64 * 1024;
/// Maximum number of authorization servers and scopes in a message.
const MAX_AUTHORIZATION_SERVERS: usize = 3;
const MAX_SCOPES: usize = 20;
/// Time for which the metadata is not fetched again, so that calls that fail one after the other send no request each.
const HINT_TTL: Duration = Duration::from_secs(60);

/// The login that a server wants, as far as it is known.
#[derive(Debug, Clone, Default)]
pub(super) struct LoginHint {
    authorization_servers: Vec<String>,
    scopes: Vec<String>,
}

/// Metadata of a protected resource, as far as it is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceMetadata {
    authorization_servers: Vec<String>,
    scopes_supported: Vec<String>,
}

impl McpConnector {
    /// Describes a response that a login would help with, and what to do: the text for people, and details for
    /// programs. `None` for other errors.
    pub(super) async fn explain_login(&self, error: &WireError) -> Option<(String, Value)> {
        let WireError::Unauthorized { status, login_helps: true, challenge } = error else { return None };
        let id = self.source.id.as_str().to_uppercase();
        let token = format!("give it a token: `auth: {{ bearer: \"${{env:NAME}}\" }}` or TOOLCRIB_SOURCE_{id}_TOKEN");
        // As declared: references stay references, and literal secrets are masked.
        let url = match &self.source.kind {
            SourceKind::Http(remote) | SourceKind::Sse(remote) => mask_url(&remote.url),
            SourceKind::Stdio(_) | SourceKind::OpenApi(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => {
                return None;
            }
        };
        if !challenge.is_oauth {
            return Some((format!("{error}; {token}"), json!({})));
        }
        let LoginHint { authorization_servers, scopes } = self.login_hint(challenge).await;
        let quote = |items: &[String]| items.iter().map(|item| format!("`{item}`")).collect::<Vec<_>>().join(", ");
        let place = if authorization_servers.is_empty() {
            String::new()
        } else {
            format!(" at {}", quote(&authorization_servers))
        };
        let with_scopes =
            if scopes.is_empty() { String::new() } else { format!(" with the scopes {}", quote(&scopes)) };
        let command = format!("npx -y mcp-remote {url}");
        let text = format!(
            "the server answered HTTP {status}: it wants an OAuth login{place}{with_scopes}. Toolcrib has no login for \
             MCP servers yet: use `{command}` as the source's command, which opens a browser, or {token}"
        );
        let login = json!({ "authorization_servers": authorization_servers, "scopes": scopes, "command": command });
        Some((text, json!({ "login": login })))
    }

    /// Returns the authorization servers and scopes, from the metadata and the challenge.
    async fn login_hint(&self, challenge: &AuthChallenge) -> LoginHint {
        let remembered = self.login_hint.lock().clone();
        if let Some((_, hint)) = remembered.filter(|(at, _)| at.elapsed() < HINT_TTL) {
            return hint;
        }
        let fetching = self.fetch_metadata(challenge);
        let metadata = tokio::time::timeout(METADATA_TIMEOUT, fetching).await.ok().flatten().unwrap_or_default();
        let redactor = self.references.redactor();
        let clean = |texts: Vec<String>, max: usize| -> Vec<String> {
            let texts = texts.iter().map(|text| sanitize_truncated(&redactor.redact(text), 200).replace('`', "'"));
            texts.filter(|text| !text.is_empty()).take(max).collect()
        };
        let scopes = if challenge.scopes.is_empty() { metadata.scopes_supported } else { challenge.scopes.clone() };
        let servers = metadata.authorization_servers.iter().map(|server| mask_url(server)).collect();
        let hint = LoginHint {
            authorization_servers: clean(servers, MAX_AUTHORIZATION_SERVERS),
            scopes: clean(scopes, MAX_SCOPES),
        };
        *self.login_hint.lock() = Some((Instant::now(), hint.clone()));
        hint
    }

    /// Fetches the metadata from the place that the challenge names, else from the well-known ones. Sends no
    /// credentials.
    async fn fetch_metadata(&self, challenge: &AuthChallenge) -> Option<ResourceMetadata> {
        let references = self.references.read().await;
        let (SourceKind::Http(remote) | SourceKind::Sse(remote)) = references.resolve_kind(&self.source.kind).ok()?
        else {
            return None;
        };
        let server = Url::parse(&remote.url).ok()?;
        let places = match &challenge.resource_metadata {
            Some(place) => vec![server.join(place).ok()?],
            None => well_known_places(&server),
        };
        for place in places {
            if let Some(metadata) = self.fetch_metadata_from(&server, place).await {
                return Some(metadata);
            }
        }
        None
    }

    /// Fetches the metadata from one place. The origin of the server was configured; any other must be public.
    async fn fetch_metadata_from(&self, server: &Url, place: Url) -> Option<ResourceMetadata> {
        let client = if place.origin() == server.origin() {
            self.clients.get(self.source.settings.connect_timeout())?
        } else {
            check_url(&place, NetworkScope::PublicOnly).ok()?;
            let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
            client.dns_resolver(std::sync::Arc::new(PublicOnlyResolver)).build().ok()?
        };
        let request = client.get(place).header("accept", "application/json").timeout(METADATA_TIMEOUT);
        let mut response = request.send().await.ok().filter(|response| response.status().is_success())?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_METADATA_BYTES {
                return None;
            }
        }
        serde_json::from_slice(&body).ok()
    }
}

/// Places of the metadata without a challenge that names one: with the path of the server, then without.
fn well_known_places(server: &Url) -> Vec<Url> {
    let path = server.path().trim_end_matches('/');
    let mut paths = vec![format!("/.well-known/oauth-protected-resource{path}")];
    if !path.is_empty() {
        paths.push("/.well-known/oauth-protected-resource".to_owned());
    }
    paths.iter().filter_map(|path| server.join(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_searched_with_the_path_of_the_server_first() {
        let places = |url: &str| -> Vec<String> {
            well_known_places(&Url::parse(url).unwrap()).iter().map(ToString::to_string).collect()
        };
        let root = "https://a.example/.well-known/oauth-protected-resource";
        assert_eq!(places("https://a.example/mcp?key=s3cret"), [format!("{root}/mcp"), root.to_owned()]);
        assert_eq!(places("https://a.example/"), [root]);
    }
}
