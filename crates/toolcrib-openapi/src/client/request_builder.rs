//! Builds the HTTP request of an operation for one source: URL, headers, cookies and body, everything but credentials.
//! The mapping from arguments to parameters is in `crate::request`.

use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use toolcrib_connector::document::DocumentLocation;
use toolcrib_core::execution::Operation;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::credentials::add_cookies;
use super::resolved_source::ResolvedSource;
use super::send::{OutboundRequest, display_origin, strip_login};
use crate::request::{PreparedRequest, is_dot_segment};

/// URL that the paths of an operation are appended to: `base_url` of the source, else the server in the document. Fails
/// with `CONFIG_INVALID` and the setting that would help.
pub(super) fn base_url(resolved: &ResolvedSource, operation: &Operation) -> Result<Url> {
    // The configuration always wins: it may point to a test system or a proxy.
    if let Some(base) = &resolved.base_url {
        return Ok(base.clone());
    }
    let invalid = |message: String| Error::new(Code::ConfigInvalid, message);
    if operation.server.is_empty() {
        return Err(invalid("the document names no server; set `base_url` on the source".into()));
    }
    // The core substitutes variables that have a default or are configured; others remain in braces.
    let server = sanitize_truncated(&operation.server, 200);
    if operation.server.contains(['{', '}']) {
        let message = format!("the document's server `{server}` has a variable without a value");
        return Err(invalid(format!("{message}; set it under `variables` of the source, or set `base_url`")));
    }
    // OpenAPI resolves a relative server against the URL of the document, which a file does not have.
    let url = match (Url::parse(&operation.server), &resolved.document) {
        (Ok(url), _) => Some(url),
        (Err(url::ParseError::RelativeUrlWithoutBase), DocumentLocation::Remote(document)) => {
            document.join(&operation.server).ok()
        }
        (Err(url::ParseError::RelativeUrlWithoutBase), DocumentLocation::File(_)) => {
            let message = format!("the document's server `{server}` is relative to where the document comes from");
            return Err(invalid(format!("{message}, which is a file; set `base_url` on the source")));
        }
        (Err(_), _) => None,
    };
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // Relative servers inherit the login of the document's URL, which is for the document alone.
    url.map(strip_login).ok_or_else(|| {
        invalid(format!("the document's server `{server}` is not an http address; set `base_url` on the source"))
    })
}

/// Builds the request without credentials. Configured headers override those from arguments.
pub(super) fn build_request(
    prepared: PreparedRequest,
    operation: &Operation,
    resolved: &ResolvedSource,
    base_url: &Url,
) -> Result<OutboundRequest> {
    let label = operation_label(operation);
    let invalid = |what: &str| Error::new(Code::ToolInvalidInput, format!("`{label}` cannot be sent: {what}"));
    let method =
        Method::from_bytes(prepared.method.as_bytes()).map_err(|_| invalid("its method is not an HTTP method"))?;
    let url = parse_declared_url(&prepared.url, base_url).map_err(|why| invalid(&why))?;
    // Header parameters may repeat, hence `append`.
    let mut headers = HeaderMap::new();
    for (name, value) in &prepared.headers {
        let shown_name = sanitize_truncated(name, 80);
        let name =
            HeaderName::try_from(name).map_err(|_| invalid(&format!("`{shown_name}` is not a valid header name")))?;
        let value = HeaderValue::try_from(value)
            .map_err(|_| invalid(&format!("the header `{shown_name}` has a value that HTTP does not allow")))?;
        headers.append(name, value);
    }
    // The media type is that of the body; a header parameter of that name does not change it.
    let body = match prepared.body {
        Some(body) => {
            let kind = HeaderValue::try_from(body.content_type)
                .map_err(|_| invalid("its media type is not a valid header value"))?;
            headers.insert(CONTENT_TYPE, kind);
            Some(body.bytes.into())
        }
        None => None,
    };
    // Cookies of parameters come first; those of the configuration and of credentials are appended to the same header.
    let cookies: Vec<String> = prepared.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    add_cookies(&mut headers, &cookies).map_err(|_| invalid("a cookie has a value that HTTP does not allow"))?;
    apply_configured_headers(&mut headers, resolved)?;
    Ok(OutboundRequest { label, method, url, headers, body })
}

/// Builds a GET request for another URL of the same server, used for polling.
pub(super) fn build_get(url: Url, resolved: &ResolvedSource) -> Result<OutboundRequest> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"))]);
    apply_configured_headers(&mut headers, resolved)?;
    let label = sanitize_truncated(&format!("GET {}", url.path()), 200);
    Ok(OutboundRequest { label, method: Method::GET, url, headers, body: None })
}

/// Adds the headers of the configuration. They override those that an agent supplied; cookies are combined.
fn apply_configured_headers(headers: &mut HeaderMap, resolved: &ResolvedSource) -> Result<()> {
    for (name, value) in &resolved.headers {
        if name == COOKIE {
            add_cookies(headers, &[String::from_utf8_lossy(value.as_bytes()).into_owned()])?;
        } else {
            headers.insert(name, value.clone());
        }
    }
    Ok(())
}

/// Method and path template of an operation, for messages: `GET /pets/{id}`.
pub(super) fn operation_label(operation: &Operation) -> String {
    sanitize_truncated(&format!("{} {}", operation.method, operation.path), 200)
}

/// Parses a URL that must stay on the declared server: an argument or a response must not choose another, which would
/// get the credentials. The error completes "… cannot be sent: ".
pub(super) fn parse_declared_url(text: &str, base_url: &Url) -> Result<Url, String> {
    check_plain_url(text)?;
    let url = Url::parse(text).map_err(|_| "its URL is invalid".to_owned())?;
    if url.origin() != base_url.origin() {
        return Err(format!("it would leave `{}`", display_origin(base_url)));
    }
    Ok(url)
}

/// Rejects URLs that the parser would silently change: it resolves `..` segments, which could leave the base path, and
/// drops line breaks. Percent-encoded argument values contain neither.
pub(super) fn check_plain_url(text: &str) -> Result<(), String> {
    if text.chars().any(|character| character.is_control() || character == '\\') {
        return Err("its URL contains control characters or backslashes".into());
    }
    let path = text.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(is_dot_segment) {
        return Err("its URL has a `.` or `..` path segment".into());
    }
    Ok(())
}
