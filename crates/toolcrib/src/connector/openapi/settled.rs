//! What a source says about itself, filled in for one use: templates first, then references, then addresses parsed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use toolcrib_core::source::{Auth, Kind, OpenApi};
use toolcrib_core::{Code, Error, Result, Source};
use url::Url;

use super::territory::Territory;
use crate::secret::resolve_kind;
use crate::templates::filled_openapi;

#[derive(Debug)]
pub(super) struct Settled {
    pub(super) openapi: OpenApi,
    pub(super) given: Given,
    pub(super) document: Place,
    pub(super) base: Option<Url>,
    /// As the configuration has them, for every request.
    pub(super) headers: HeaderMap,
    pub(super) territory: Territory,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::connector) enum Place {
    File(PathBuf),
    Address(Url),
}

/// What there is to present.
#[derive(Debug)]
pub(super) enum Given {
    Nothing,
    Always(Auth),
    /// By the document's names; or why one cannot be had.
    ByScheme(BTreeMap<String, Result<Auth, String>>),
}

impl Settled {
    pub(super) fn of(source: &Source) -> Result<Settled> {
        let Kind::OpenApi(openapi) = &source.kind else {
            return Err(Error::new(Code::Internal, format!("`{}` is not an OpenAPI source", source.id)));
        };
        let mut openapi = filled_openapi(openapi)?;
        let given = given(openapi.auth.take())?;
        let openapi = resolved(openapi)?;
        let document = Place::parse(&openapi.document)?;
        let base = openapi.base_url.as_deref().map(|text| address(text, "base_url")).transpose()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &openapi.headers {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        let territory = Territory::new(&openapi, document.address(), base.as_ref());
        Ok(Settled { openapi, given, document, base, headers, territory })
    }
}

impl Place {
    pub(in crate::connector) fn parse(text: &str) -> Result<Place> {
        let scheme = |scheme: &str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        if scheme("http://") || scheme("https://") {
            return Ok(Place::Address(address(text, "openapi")?));
        }
        if scheme("file:") {
            let path = Url::parse(text).ok().and_then(|url| url.to_file_path().ok());
            return path.map(Place::File).ok_or_else(|| Error::new(Code::ConfigInvalid, "a `file:` address is wrong"));
        }
        Ok(Place::File(PathBuf::from(text)))
    }

    pub(super) fn address(&self) -> Option<&Url> {
        match self {
            Place::File(_) => None,
            Place::Address(url) => Some(url),
        }
    }
}

fn given(auth: Option<Auth>) -> Result<Given> {
    Ok(match auth {
        None => Given::Nothing,
        Some(Auth::Schemes(schemes)) => {
            let each =
                schemes.into_iter().map(|(name, auth)| (name, resolved_auth(auth).map_err(|error| error.message)));
            Given::ByScheme(each.collect())
        }
        Some(auth @ (Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } | Auth::Oauth2 { .. })) => {
            Given::Always(resolved_auth(auth)?)
        }
    })
}

fn resolved_auth(auth: Auth) -> Result<Auth> {
    let alone = OpenApi { auth: Some(auth), ..OpenApi::default() };
    resolved(alone)?.auth.ok_or_else(|| Error::new(Code::Internal, "`auth` was lost"))
}

fn resolved(openapi: OpenApi) -> Result<OpenApi> {
    match resolve_kind(&Kind::OpenApi(openapi))? {
        Kind::OpenApi(openapi) => Ok(openapi),
        Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::Workflow(_) | Kind::Builtin(_) => {
            Err(Error::new(Code::Internal, "a source changed its kind"))
        }
    }
}

/// The text is never repeated: it may hold what a reference stands for.
pub(super) fn address(text: &str, key: &str) -> Result<Url> {
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
