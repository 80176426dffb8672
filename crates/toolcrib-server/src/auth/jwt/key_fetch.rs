//! Fetches the public keys of an issuer: through its metadata, from an address, or from a file. Every request has a
//! deadline and a bound, and no redirect leads to another origin.

use std::io::Read;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use futures_util::FutureExt;
use reqwest::{Client, Url};
use serde_json::Value;
use toolcrib::config::{JwksLocation, is_https_or_loopback};
use toolcrib_mcp::ClientOptions;

use super::issuer_keys::{FetchedKeys, KeyFetcher};
use super::key_set::KeySet;

/// Maximum size of a key set or of the metadata of a provider.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// How long a connection to a provider may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long all requests of a fetch may take together. Clients wait for it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the function that fetches the keys of an issuer.
pub(super) fn create_fetcher(issuer: &str, jwks: &JwksLocation) -> KeyFetcher {
    let issuer = issuer.to_owned();
    let jwks = jwks.clone();
    Box::new(move || {
        let (issuer, jwks) = (issuer.clone(), jwks.clone());
        async move {
            let fetching = fetch_keys(&issuer, &jwks);
            tokio::time::timeout(FETCH_TIMEOUT, fetching).await.unwrap_or_else(|_| Err("timed out".to_owned()))
        }
        .boxed()
    })
}

async fn fetch_keys(issuer: &str, jwks: &JwksLocation) -> Result<FetchedKeys, String> {
    let url = match jwks {
        JwksLocation::Auto => find_jwks_url(issuer).await?,
        JwksLocation::Url(url) => url.clone(),
        JwksLocation::File(path) => {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || read_file(&path)).await;
            let document = reading.map_err(|_| "the file cannot be read".to_owned())??;
            return Ok(FetchedKeys { keys: KeySet::parse(&document)?, max_age: None });
        }
    };
    let document = get_document(url).await?;
    let max_age = read_max_age(&document.headers);
    Ok(FetchedKeys { keys: KeySet::parse(&document.body)?, max_age })
}

/// Reads a key set from a file, up to the bound.
fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let describe = |error: std::io::Error| format!("`{path}` cannot be read: {error}");
    let mut document = Vec::new();
    let file = std::fs::File::open(path).map_err(describe)?;
    file.take(MAX_DOCUMENT_BYTES as u64 + 1).read_to_end(&mut document).map_err(describe)?;
    if document.len() > MAX_DOCUMENT_BYTES { Err(too_large()) } else { Ok(document) }
}

/// Finds the address of the keys in the metadata of the issuer: of OpenID Connect, else of OAuth (RFC 8414).
async fn find_jwks_url(issuer: &str) -> Result<Url, String> {
    let [openid, oauth] = metadata_urls(issuer).ok_or("the issuer is not a valid address")?;
    // Some providers answer an unknown path with a page and status 200.
    let openid_reason = match read_jwks_url(openid, issuer).await {
        Ok(url) => return Ok(url),
        Err(reason) => reason,
    };
    let found = read_jwks_url(oauth, issuer).await;
    found.map_err(|oauth_reason| format!("no OpenID metadata ({openid_reason}), no OAuth metadata ({oauth_reason})"))
}

/// Reads the address of the keys from metadata.
async fn read_jwks_url(metadata: Url, issuer: &str) -> Result<Url, String> {
    let document = get_document(metadata).await?;
    let metadata: Value = serde_json::from_slice(&document.body).map_err(|_| "the metadata is not JSON")?;
    // Another issuer could lead to keys of its own (RFC 8414, section 3.3).
    if metadata.get("issuer").and_then(Value::as_str) != Some(issuer) {
        return Err("the metadata names another `issuer` than the configuration".to_owned());
    }
    let url = metadata.get("jwks_uri").and_then(Value::as_str).ok_or("the metadata has no `jwks_uri`")?;
    let url = Url::parse(url).map_err(|_| "`jwks_uri` in the metadata is not a valid address")?;
    if !is_https_or_loopback(&url) {
        return Err("`jwks_uri` in the metadata is not an https address".to_owned());
    }
    Ok(url)
}

/// Addresses of the metadata. OpenID Connect appends its path to that of the issuer; RFC 8414 inserts it before.
fn metadata_urls(issuer: &str) -> Option<[Url; 2]> {
    let issuer = Url::parse(issuer).ok()?;
    let path = issuer.path().trim_end_matches('/').to_owned();
    let with_path = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    Some([
        with_path(format!("{path}/.well-known/openid-configuration")),
        with_path(format!("/.well-known/oauth-authorization-server{path}")),
    ])
}

/// A response of a provider.
struct Document {
    headers: HeaderMap,
    body: Vec<u8>,
}

async fn get_document(url: Url) -> Result<Document, String> {
    let request = http_client()?.get(url).header(header::ACCEPT, "application/json");
    // Without the address, whose query may hold a key.
    let describe = |error: reqwest::Error| format!("the request failed: {}", root_cause(&error.without_url()));
    let mut response = request.send().await.map_err(describe)?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(describe)? {
        if body.len() + chunk.len() > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Document { headers: std::mem::take(response.headers_mut()), body })
}

/// The client of all issuers. Private addresses are not refused: an issuer is named by the administrator.
fn http_client() -> Result<&'static Client, String> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let client = ClientOptions::http_client(CONNECT_TIMEOUT).map_err(|error| error.to_string())?;
    Ok(CLIENT.get_or_init(|| client))
}

/// Reads `Cache-Control`; zero where the response must not be cached.
fn read_max_age(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    if directives.iter().any(|directive| ["no-store", "no-cache"].iter().any(|no| directive.eq_ignore_ascii_case(no))) {
        return Some(Duration::ZERO);
    }
    let max_age = directives.iter().find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then(|| value.trim_matches('"').parse().ok())?
    });
    max_age.map(Duration::from_secs)
}

fn too_large() -> String {
    format!("the document has more than {} KiB", MAX_DOCUMENT_BYTES / 1024)
}

/// The innermost cause, which names the failure ("Connection refused").
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn metadata_is_after_the_path_for_openid_and_before_it_for_oauth() {
        for (issuer, openid, oauth) in [
            (
                "https://id.example",
                "https://id.example/.well-known/openid-configuration",
                "https://id.example/.well-known/oauth-authorization-server",
            ),
            (
                "https://id.example/realms/acme/",
                "https://id.example/realms/acme/.well-known/openid-configuration",
                "https://id.example/.well-known/oauth-authorization-server/realms/acme",
            ),
        ] {
            assert_eq!(metadata_urls(issuer).unwrap().map(String::from), [openid, oauth]);
        }
    }

    #[test]
    fn max_age_is_read_from_cache_control() {
        for (value, expected) in [
            ("public, max-age=300", Some(300)),
            ("Max-Age=\"5\"", Some(5)),
            ("no-store, max-age=300", Some(0)),
            ("no-cache", Some(0)),
            ("public", None),
            ("max-age=soon", None),
        ] {
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static(value))]);
            assert_eq!(read_max_age(&headers), expected.map(Duration::from_secs), "{value}");
        }
    }
}
