//! Metadata of this server as an OAuth protected resource (RFC 9728): which identity providers issue tokens for it. MCP
//! clients find the address of the metadata in the challenge of a 401, and the provider in the metadata.
//!
//! All addresses come from the configuration or from the socket, never from a request: a forged `Host` would send clients
//! to another server with their tokens.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use toolcrib::{Code, Error};

use super::Authenticator;
use crate::rest::error_response;
use crate::state::AppState;

/// Path of the metadata of a resource without a path.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
/// Path of the metadata of the MCP endpoint: that of the resource is appended (RFC 9728, section 3.1).
const MCP_METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp";

/// Path of the metadata of the endpoint of a group. It is the same for groups that do not exist.
const GROUP_METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp/{group}";

/// Public routes of the metadata. All describe the MCP endpoint: clients try several, and the endpoints of groups take the
/// same tokens, so that `resource` is the same.
pub(crate) fn metadata_router() -> Router<AppState> {
    let paths = [METADATA_PATH, MCP_METADATA_PATH, GROUP_METADATA_PATH];
    paths.into_iter().fold(Router::new(), |router, path| router.route(path, get(show_metadata)))
}

/// Returns the address of the MCP endpoint, which is the resource that tokens are for by default.
pub(super) fn resource_url(public_url: &str) -> String {
    format!("{public_url}/mcp")
}

/// Returns the metadata; 404 without identity providers.
async fn show_metadata(State(app): State<AppState>) -> Response {
    let public_url = app.auth.public_url.load();
    let issuers = app.auth.jwt.issuer_names();
    let Some(public_url) = public_url.as_deref().filter(|_| !issuers.is_empty()) else {
        let message = "this server has no identity providers (`identity.issuers`)";
        return error_response(StatusCode::NOT_FOUND, Code::NotFound, message);
    };
    let mut metadata = json!({
        "resource": resource_url(public_url),
        "bearer_methods_supported": ["header"],
        "resource_name": "Toolcrib",
    });
    // Clients get tokens from addresses. An issuer may be any text if its keys are elsewhere.
    let servers: Vec<String> = issuers.into_iter().filter(|issuer| has_http_scheme(issuer)).collect();
    if !servers.is_empty() {
        metadata["authorization_servers"] = servers.into();
    }
    // The same for every client.
    let headers = [(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"))];
    (headers, Json(metadata)).into_response()
}

fn has_http_scheme(issuer: &str) -> bool {
    issuer.starts_with("https://") || issuer.starts_with("http://")
}

impl Authenticator {
    /// Returns the challenge of a 401 (RFC 6750). `invalid_token` is the reason why a token that was sent is not accepted.
    pub(super) fn challenge(&self, invalid_token: Option<&Error>) -> HeaderValue {
        let mut challenge = "Bearer realm=\"toolcrib\"".to_owned();
        if let Some(error) = invalid_token {
            let description: String = error.message.chars().map(to_description_character).collect();
            challenge.push_str(&format!(", error=\"invalid_token\", error_description=\"{description}\""));
        }
        let public_url = self.public_url.load();
        if let Some(public_url) = public_url.as_deref().filter(|_| self.jwt.has_issuers()) {
            challenge.push_str(&format!(", resource_metadata=\"{public_url}{MCP_METADATA_PATH}\""));
        }
        HeaderValue::try_from(challenge).unwrap_or(HeaderValue::from_static("Bearer realm=\"toolcrib\""))
    }
}

/// Replaces what RFC 6750 does not allow in a description.
fn to_description_character(character: char) -> char {
    match character {
        '"' | '\\' => '\'',
        ' '..='~' => character,
        _ => '?',
    }
}
