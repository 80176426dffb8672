//! An OpenAPI source resolved for one use: templates are filled first, then references, then URLs and headers are
//! parsed.
//!
//! Resolved for each discovery and each call anew, so that a changed secret file takes effect without a restart.
//! The result contains secrets and lives no longer than its use.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use toolcrib_connector::document::{DocumentLocation, parse_http_url};
use toolcrib_connector::fill_openapi;
use toolcrib_connector::secret::ReferenceValues;
use toolcrib_core::source::{Auth, OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, Source};
use url::{Host, Url};

use super::send::display_origin;
use super::url_policy::UrlPolicy;

/// Configuration of a source with all values filled in. Never stored.
#[derive(Debug)]
pub(super) struct ResolvedSource {
    /// Resolved configuration without `auth`, which is in `credentials`.
    pub(super) openapi: OpenApiSource,
    pub(super) credentials: SourceCredentials,
    pub(super) document: DocumentLocation,
    /// Overrides the servers of the document.
    pub(super) base_url: Option<Url>,
    /// Configured headers, sent with every request.
    pub(super) headers: HeaderMap,
    pub(super) url_policy: UrlPolicy,
}

/// Credentials of a source. References in them are resolved separately, so that a missing one affects only the
/// operations that need it.
#[derive(Debug)]
pub(super) enum SourceCredentials {
    /// The source has no `auth`.
    NotConfigured,
    /// Sent with every operation that is not public.
    Always(Auth),
    /// A reference cannot be resolved; the message is reported by operations that need credentials.
    Unresolved(String),
    /// By the scheme names of the document; the error of an unresolved reference is kept per scheme.
    ByScheme(BTreeMap<String, Result<Auth, String>>),
}

impl ResolvedSource {
    /// Fills templates and references of a source.
    pub(super) fn resolve(source: &Source, references: &ReferenceValues) -> Result<ResolvedSource> {
        let SourceKind::OpenApi(openapi) = &source.kind else {
            return Err(Error::new(Code::Internal, format!("`{}` is not an OpenAPI source", source.id)));
        };
        // Templates first: a resolved value must never be parsed as a template.
        let mut openapi = fill_openapi(openapi)?;
        // Taken out, so that an unresolved credential does not fail the whole source.
        let credentials = resolve_credentials(openapi.auth.take(), references);
        let openapi = resolve_references(openapi, references)?;
        let document = DocumentLocation::parse(&openapi.document)?;
        let base_url = openapi.base_url.as_deref().map(|text| parse_http_url(text, "base_url")).transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &openapi.headers {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        let url_policy = UrlPolicy::new(&openapi, document.url(), base_url.as_ref());
        Ok(ResolvedSource { openapi, credentials, document, base_url, headers, url_policy })
    }

    /// Fails if credentials must not be sent to a server of the document. A `base_url` or a local file is the user's
    /// own choice. A remote document may direct credentials to another origin only if both are protected against
    /// tampering: otherwise an attacker on the network could redirect them.
    pub(super) fn check_credentials_allowed(&self, server: &Url) -> Result<()> {
        check_credentials_allowed(self.document.url(), self.base_url.is_some(), server)
    }

    /// Fails if the client secret must not be sent to a token URL that the document names. A local file is the user's own
    /// choice. A remote document may name an endpoint on its own host or on that of the API, protected against
    /// tampering; any other needs the user's word, because a client secret opens more than one API.
    pub(super) fn check_token_url_allowed(&self, token_url: &Url, server: &Url) -> Result<()> {
        check_token_url_allowed(self.document.url(), self.base_url.is_some(), token_url, server)
    }

    /// Whether a URL with the document's origin gets the credentials. They are for the API, so not if `base_url` names
    /// another origin.
    pub(super) fn sends_credentials_to(&self, url: &Url) -> bool {
        self.base_url.as_ref().is_none_or(|base_url| base_url.origin() == url.origin())
    }
}

/// See [`ResolvedSource::check_credentials_allowed`]. `document` is the URL of the document, if it has one.
pub(super) fn check_credentials_allowed(document: Option<&Url>, has_base_url: bool, server: &Url) -> Result<()> {
    let Some(document) = document.filter(|_| !has_base_url) else { return Ok(()) };
    // Safe means that an attacker on the network can neither change the document nor read the request.
    let is_safe = |url: &Url| url.scheme() == "https" || is_loopback(url);
    if document.origin() == server.origin() || (is_safe(document) && is_safe(server)) {
        return Ok(());
    }
    let server = display_origin(server);
    let document = display_origin(document);
    let message = format!("the document from `{document}` sends requests to `{server}`, and not both are https");
    let hint = format!("no credentials go there unless `base_url` of the source names `{server}`");
    Err(Error::new(Code::ConfigInvalid, format!("{message}; {hint}")))
}

/// See [`ResolvedSource::check_token_url_allowed`]. `document` is the URL of the document, if it has one.
pub(super) fn check_token_url_allowed(
    document: Option<&Url>,
    has_base_url: bool,
    token_url: &Url,
    server: &Url,
) -> Result<()> {
    let Some(document) = document else { return Ok(()) };
    let is_safe = |url: &Url| url.scheme() == "https" || is_loopback(url);
    let is_same_host = token_url.host() == document.host()
        || (token_url.host() == server.host() && (has_base_url || is_safe(document)));
    if token_url.origin() == document.origin() || (is_same_host && is_safe(token_url)) {
        return Ok(());
    }
    let token_url = display_origin(token_url);
    let document = display_origin(document);
    let message = format!("the document from `{document}` names a token URL on `{token_url}`");
    let hint = "no client secret goes there unless `token_url` is set under `oauth2`";
    Err(Error::new(Code::ConfigInvalid, format!("{message}; {hint}")))
}

/// Loopback traffic cannot be tampered with by the network.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Resolves the references of `auth`, per scheme.
fn resolve_credentials(auth: Option<Auth>, references: &ReferenceValues) -> SourceCredentials {
    match auth {
        None => SourceCredentials::NotConfigured,
        Some(Auth::Schemes(schemes)) => {
            let resolve = |auth| resolve_auth(auth, references).map_err(|error| error.message);
            SourceCredentials::ByScheme(schemes.into_iter().map(|(name, auth)| (name, resolve(auth))).collect())
        }
        Some(auth @ (Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } | Auth::Oauth2 { .. })) => {
            resolve_auth(auth, references)
                .map_or_else(|error| SourceCredentials::Unresolved(error.message), SourceCredentials::Always)
        }
    }
}

/// Resolves one credential by wrapping it in an otherwise empty configuration.
fn resolve_auth(auth: Auth, references: &ReferenceValues) -> Result<Auth> {
    let openapi = OpenApiSource { auth: Some(auth), ..OpenApiSource::default() };
    let resolved = resolve_references(openapi, references)?;
    resolved.auth.ok_or_else(|| Error::new(Code::Internal, "internal error: `auth` was lost"))
}

/// Resolves all references in the configuration.
fn resolve_references(openapi: OpenApiSource, references: &ReferenceValues) -> Result<OpenApiSource> {
    match references.resolve_kind(&SourceKind::OpenApi(openapi))? {
        SourceKind::OpenApi(openapi) => Ok(openapi),
        SourceKind::Stdio(_)
        | SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => Err(Error::new(Code::Internal, "internal error: a source changed its kind")),
    }
}

/// Validates a configured header name.
pub(super) fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::try_from(name)
        .map_err(|_| Error::new(Code::ConfigInvalid, format!("`{}` is not a valid header name", name.escape_debug())))
}

/// Configured header value, marked as sensitive so that it is not logged.
pub(super) fn header_value(name: &str, value: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::try_from(value).map_err(|_| {
        Error::new(Code::ConfigInvalid, format!("the header `{name}` has a value that HTTP does not allow"))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use toolcrib_core::SourceId;
    use toolcrib_core::source::SourceSettings;

    use super::*;

    fn api(document: &str, base_url: Option<&str>) -> Source {
        let base_url = base_url.map(str::to_owned);
        let openapi = OpenApiSource { document: document.into(), base_url, ..OpenApiSource::default() };
        let id = SourceId::parse("shop").unwrap();
        Source { id, kind: SourceKind::OpenApi(openapi), settings: SourceSettings::default() }
    }

    #[test]
    fn a_client_secret_goes_to_the_host_of_the_document_or_of_the_api_only() {
        let check = |document: &str, base_url: Option<&str>, token_url: &str| {
            let source = api(document, base_url);
            let resolved = ResolvedSource::resolve(&source, &ReferenceValues::default()).unwrap();
            let server = Url::parse(base_url.unwrap_or("https://api.example/v1")).unwrap();
            resolved.check_token_url_allowed(&Url::parse(token_url).unwrap(), &server).is_ok()
        };
        for (document, base_url, token_url, expected) in [
            ("https://docs.example/a.json", None, "https://docs.example/token", true),
            ("https://docs.example/a.json", None, "https://api.example:8443/token", true),
            ("https://docs.example/a.json", None, "http://api.example/token", false),
            ("https://docs.example/a.json", None, "https://id.example/token", false),
            ("https://docs.example/a.json", Some("https://own.example"), "https://api.example/token", false),
            ("http://docs.example/a.json", None, "https://api.example/token", false),
            ("http://docs.example/a.json", Some("https://own.example"), "https://own.example/token", true),
            ("http://docs.example/a.json", None, "http://docs.example/token", true),
            ("/a.json", None, "https://id.example/token", true),
        ] {
            assert_eq!(check(document, base_url, token_url), expected, "{document} {base_url:?} {token_url}");
        }
    }

    #[test]
    fn credentials_go_to_another_origin_only_if_the_document_cannot_be_tampered_with() {
        let check = |document: &str, base_url: Option<&str>, server: &str| {
            ResolvedSource::resolve(&api(document, base_url), &ReferenceValues::default())
                .unwrap()
                .check_credentials_allowed(&Url::parse(server).unwrap())
                .map_err(|error| (error.code, error.message))
        };
        let is_safe = "https://docs.example/a.json";
        let open = "http://docs.example/a.json";
        for (document, base_url, server, expected) in [
            (is_safe, None, "https://api.example/", true),
            (is_safe, None, "http://api.example/", false),
            (is_safe, None, "http://127.0.0.1:8080/", true),
            (open, None, "http://docs.example/v1", true),
            (open, None, "https://docs.example/v1", false),
            (open, None, "https://evil.example/", false),
            (open, Some("http://api.example"), "http://api.example/", true),
            ("http://localhost:1/a.json", None, "https://api.example/", true),
            ("http://[::1]:1/a.json", None, "http://[::1]:2/", true),
            ("/a.json", None, "http://api.example/", true),
        ] {
            assert_eq!(check(document, base_url, server).is_ok(), expected, "{document} {base_url:?} {server}");
        }
        let expected_message = "the document from `http://docs.example` sends requests to `https://evil.example`, and not both are \
                    https; no credentials go there unless `base_url` of the source names `https://evil.example`";
        assert_eq!(check(open, None, "https://evil.example/x"), Err((Code::ConfigInvalid, expected_message.into())));
    }
}
