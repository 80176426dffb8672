//! What a source says about itself, filled in for one use: templates first, then references, then addresses parsed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use toolcrib_core::source::{Auth, OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, Source};
use url::{Host, Url};

use super::send::display_origin;
use super::url_policy::UrlPolicy;
use crate::secret::resolve_kind;
use crate::templates::fill_openapi;

#[derive(Debug)]
pub(super) struct ResolvedSource {
    pub(super) openapi: OpenApiSource,
    pub(super) credentials: SourceCredentials,
    pub(super) document: DocumentLocation,
    pub(super) base_url: Option<Url>,
    /// As the configuration has them, for every request.
    pub(super) headers: HeaderMap,
    pub(super) url_policy: UrlPolicy,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DocumentLocation {
    File(PathBuf),
    Remote(Url),
}

/// What there is to present.
#[derive(Debug)]
pub(super) enum SourceCredentials {
    NotConfigured,
    Always(Auth),
    /// A reference in it cannot be looked up here, which matters to whoever needs it.
    Unresolved(String),
    /// By the document's names; or why one cannot be had.
    ByScheme(BTreeMap<String, Result<Auth, String>>),
}

impl ResolvedSource {
    pub(super) fn resolve(source: &Source) -> Result<ResolvedSource> {
        let SourceKind::OpenApi(openapi) = &source.kind else {
            return Err(Error::new(Code::Internal, format!("`{}` is not an OpenAPI source", source.id)));
        };
        let mut openapi = fill_openapi(openapi)?;
        let given = resolve_credentials(openapi.auth.take());
        let openapi = resolve_references(openapi)?;
        let document = DocumentLocation::parse(&openapi.document)?;
        let base = openapi.base_url.as_deref().map(|text| parse_http_url(text, "base_url")).transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &openapi.headers {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        let territory = UrlPolicy::new(&openapi, document.url(), base.as_ref());
        Ok(ResolvedSource { openapi, credentials: given, document, base_url: base, headers, url_policy: territory })
    }

    /// Whether what lets in may be shown to a server of the document. The user wrote `base_url`, and has the file; a
    /// document from an address moves nothing to another origin where somebody on the way could have written that.
    pub(super) fn check_credentials_allowed(&self, server: &Url) -> Result<()> {
        let Some(document) = self.document.url().filter(|_| self.base_url.is_none()) else { return Ok(()) };
        let safe = |url: &Url| url.scheme() == "https" || is_loopback(url);
        if document.origin() == server.origin() || (safe(document) && safe(server)) {
            return Ok(());
        }
        let server = display_origin(server);
        let document = display_origin(document);
        let message = format!("the document from `{document}` sends requests to `{server}`, and not both are https");
        let remedy = format!("no credentials go there unless `base_url` of the source names `{server}`");
        Err(Error::new(Code::ConfigInvalid, format!("{message}; {remedy}")))
    }

    /// Whether an address with the document's origin is shown what lets in: it is for the API, wherever that is.
    pub(super) fn sends_credentials_to(&self, url: &Url) -> bool {
        self.base_url.as_ref().is_none_or(|base| base.origin() == url.origin())
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl DocumentLocation {
    pub(crate) fn parse(text: &str) -> Result<DocumentLocation> {
        let scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if scheme("http://") || scheme("https://") {
            return Ok(DocumentLocation::Remote(parse_http_url(text, "openapi")?));
        }
        if scheme("file:") {
            let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
            return path
                .map(DocumentLocation::File)
                .ok_or_else(|| Error::new(Code::ConfigInvalid, "a `file:` address is wrong"));
        }
        Ok(DocumentLocation::File(PathBuf::from(text)))
    }

    pub(super) fn url(&self) -> Option<&Url> {
        match self {
            DocumentLocation::File(_) => None,
            DocumentLocation::Remote(url) => Some(url),
        }
    }
}

fn resolve_credentials(auth: Option<Auth>) -> SourceCredentials {
    match auth {
        None => SourceCredentials::NotConfigured,
        Some(Auth::Schemes(schemes)) => {
            let each =
                schemes.into_iter().map(|(name, auth)| (name, resolve_auth(auth).map_err(|error| error.message)));
            SourceCredentials::ByScheme(each.collect())
        }
        Some(auth @ (Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } | Auth::Oauth2 { .. })) => {
            resolve_auth(auth)
                .map_or_else(|error| SourceCredentials::Unresolved(error.message), SourceCredentials::Always)
        }
    }
}

fn resolve_auth(auth: Auth) -> Result<Auth> {
    let alone = OpenApiSource { auth: Some(auth), ..OpenApiSource::default() };
    resolve_references(alone)?.auth.ok_or_else(|| Error::new(Code::Internal, "`auth` was lost"))
}

fn resolve_references(openapi: OpenApiSource) -> Result<OpenApiSource> {
    match resolve_kind(&SourceKind::OpenApi(openapi))? {
        SourceKind::OpenApi(openapi) => Ok(openapi),
        SourceKind::Stdio(_)
        | SourceKind::Http(_)
        | SourceKind::Sse(_)
        | SourceKind::Workflow(_)
        | SourceKind::Builtin(_) => Err(Error::new(Code::Internal, "a source changed its kind")),
    }
}

/// The text is never repeated: it may hold what a reference stands for.
pub(super) fn parse_http_url(text: &str, key: &str) -> Result<Url> {
    let wrong = || Error::new(Code::ConfigInvalid, format!("`{key}` is not a valid http or https address"));
    let url = Url::parse(text).map_err(|_| wrong())?;
    let fits = matches!(url.scheme(), "http" | "https") && url.has_host();
    if fits { Ok(url) } else { Err(wrong()) }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName> {
    HeaderName::try_from(name)
        .map_err(|_| Error::new(Code::ConfigInvalid, format!("`{}` is no name for a header", name.escape_debug())))
}

/// A value of the configuration, which is not to be shown.
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

    #[test]
    fn credentials_go_to_another_origin_only_where_nobody_on_the_way_chose_it() {
        let check = |document: &str, base_url: Option<&str>, server: &str| {
            let openapi = OpenApiSource {
                document: document.into(),
                base_url: base_url.map(str::to_owned),
                ..OpenApiSource::default()
            };
            let id = SourceId::parse("shop").unwrap();
            let source = Source { id, kind: SourceKind::OpenApi(openapi), settings: SourceSettings::default() };
            ResolvedSource::resolve(&source)
                .unwrap()
                .check_credentials_allowed(&Url::parse(server).unwrap())
                .map_err(|error| (error.code, error.message))
        };
        let safe = "https://docs.example/a.json";
        let open = "http://docs.example/a.json";
        for (document, base_url, server, expected) in [
            (safe, None, "https://api.example/", true),
            (safe, None, "http://api.example/", false),
            (safe, None, "http://127.0.0.1:8080/", true),
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
        let told = "the document from `http://docs.example` sends requests to `https://evil.example`, and not both are \
                    https; no credentials go there unless `base_url` of the source names `https://evil.example`";
        assert_eq!(check(open, None, "https://evil.example/x"), Err((Code::ConfigInvalid, told.into())));
    }
}
