//! From what the document asks for to a request of this source: its headers, cookies and address, all but credentials.

use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use toolcrib_core::execution::Operation;
use toolcrib_core::openapi::request::{PreparedRequest, is_dot_segment};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::credentials::add_cookies;
use super::resolved_source::{DocumentLocation, ResolvedSource};
use super::send::{OutboundRequest, display_origin};

/// The address that paths begin at.
pub(super) fn base_url(settled: &ResolvedSource, operation: &Operation) -> Result<Url> {
    if let Some(base) = &settled.base_url {
        return Ok(base.clone());
    }
    let wrong = |message: String| Error::new(Code::ConfigInvalid, message);
    if operation.server.is_empty() {
        return Err(wrong("the document names no server; set `base_url` on the source".into()));
    }
    let server = sanitize_truncated(&operation.server, 200);
    if operation.server.contains(['{', '}']) {
        let message = format!("the document's server `{server}` has a variable without a value");
        return Err(wrong(format!("{message}; set it under `variables` of the source, or set `base_url`")));
    }
    let url = match (Url::parse(&operation.server), &settled.document) {
        (Ok(url), _) => Some(url),
        (Err(url::ParseError::RelativeUrlWithoutBase), DocumentLocation::Remote(document)) => {
            document.join(&operation.server).ok()
        }
        (Err(url::ParseError::RelativeUrlWithoutBase), DocumentLocation::File(_)) => {
            let message = format!("the document's server `{server}` is relative to where the document comes from");
            return Err(wrong(format!("{message}, which is a file; set `base_url` on the source")));
        }
        (Err(_), _) => None,
    };
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        wrong(format!("the document's server `{server}` is no http address; set `base_url` on the source"))
    })
}

/// The request without credentials.
pub(super) fn build_request(
    prepared: PreparedRequest,
    operation: &Operation,
    settled: &ResolvedSource,
    base: &Url,
) -> Result<OutboundRequest> {
    let label = operation_label(operation);
    let wrong = |what: &str| Error::new(Code::ToolInvalidInput, format!("`{label}` cannot be sent: {what}"));
    let method = Method::from_bytes(prepared.method.as_bytes()).map_err(|_| wrong("its method is none of HTTP"))?;
    let url = parse_declared_url(&prepared.url, base).map_err(|why| wrong(&why))?;
    let mut headers = HeaderMap::new();
    for (name, value) in &prepared.headers {
        let shown = sanitize_truncated(name, 80);
        let name = HeaderName::try_from(name).map_err(|_| wrong(&format!("`{shown}` is no name for a header")))?;
        let value = HeaderValue::try_from(value)
            .map_err(|_| wrong(&format!("the header `{shown}` has a value that HTTP does not allow")))?;
        headers.append(name, value);
    }
    let body = match prepared.body {
        Some(body) => {
            let kind = HeaderValue::try_from(body.content_type).map_err(|_| wrong("its media type is none"))?;
            headers.insert(CONTENT_TYPE, kind);
            Some(body.bytes.into())
        }
        None => None,
    };
    let cookies: Vec<String> = prepared.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    add_cookies(&mut headers, &cookies).map_err(|_| wrong("a cookie has a value that HTTP does not allow"))?;
    apply_configured_headers(&mut headers, settled)?;
    Ok(OutboundRequest { label, method, url, headers, body })
}

/// A look at another address of the same server.
pub(super) fn build_get(url: Url, settled: &ResolvedSource) -> Result<OutboundRequest> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"))]);
    apply_configured_headers(&mut headers, settled)?;
    let label = sanitize_truncated(&format!("GET {}", url.path()), 200);
    Ok(OutboundRequest { label, method: Method::GET, url, headers, body: None })
}

/// What the configuration says goes over what an agent said.
fn apply_configured_headers(headers: &mut HeaderMap, settled: &ResolvedSource) -> Result<()> {
    for (name, value) in &settled.headers {
        match name == COOKIE {
            true => add_cookies(headers, &[String::from_utf8_lossy(value.as_bytes()).into_owned()])?,
            false => {
                headers.insert(name, value.clone());
            }
        }
    }
    Ok(())
}

pub(super) fn operation_label(operation: &Operation) -> String {
    sanitize_truncated(&format!("{} {}", operation.method, operation.path), 200)
}

/// An address that means what it says and is one of the declared server.
pub(super) fn parse_declared_url(text: &str, base: &Url) -> Result<Url, String> {
    check_plain_url(text)?;
    let url = Url::parse(text).map_err(|_| "its address is none".to_owned())?;
    if url.origin() != base.origin() {
        return Err(format!("it would leave `{}`", display_origin(base)));
    }
    Ok(url)
}

/// The parser would take `..` for a way out, and leave out line breaks, which nobody who encodes values writes.
pub(super) fn check_plain_url(text: &str) -> Result<(), String> {
    if text.chars().any(|character| character.is_control() || character == '\\') {
        return Err("its address has characters that no address has".into());
    }
    let path = text.split(['?', '#']).next().unwrap_or_default();
    if path.split('/').any(is_dot_segment) {
        return Err("its address has `.` or `..` for a part of its path".into());
    }
    Ok(())
}
