//! Selects the credentials of a request and adds them to it. The document declares what an operation requires, `auth`
//! of the source what is available.
//!
//! `security` of an operation is a list of alternatives, each a list of schemes that are all required; an empty
//! alternative means that anonymous access is allowed. Depending on `auth` of the source:
//!
//! ```text
//! no `auth`             nothing is sent; a 401 or 403 then names what the document requires
//! one credential        sent with every operation that is not public, whatever scheme the document names
//! `schemes: {…}`        the first alternative of which every scheme is configured
//! ```
//!
//! An API key without a name or place and an OAuth 2 client without a token URL take them from the document: from the
//! first alternative that they satisfy alone. A named key that the document does not have goes into a header.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use toolcrib_connector::secret::basic_credentials;
use toolcrib_core::execution::{Operation, SecurityRequirement, SecurityScheme};
use toolcrib_core::source::{Auth, KeyLocation};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::request_builder::operation_label;
use super::resolved_source::{ResolvedSource, SourceCredentials, header_name, header_value};
use super::send::strip_login;

/// One credential to send with a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AuthValue {
    /// `Authorization: Bearer …`
    Bearer(String),
    /// `Authorization: Basic …`
    Basic { user: String, password: String },
    /// A header, query parameter or cookie.
    ApiKey { name: String, location: KeyLocation, value: String },
    /// Sent as a bearer token once a token has been fetched.
    Oauth2(OauthGrant),
}

/// OAuth 2 client credentials grant, for which a token is fetched first. Also the key of the token cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OauthGrant {
    pub(super) token_url: String,
    /// The document names the token URL, not the configuration.
    pub(super) is_document_url: bool,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scopes: Vec<String>,
}

/// Credentials chosen for one operation.
#[derive(Debug, Default)]
pub(super) struct SelectedAuth {
    /// All of them are sent.
    pub(super) values: Vec<AuthValue>,
    /// Requirement of the document that `auth` does not satisfy, described for the error message of a 401 or 403.
    pub(super) missing: Option<String>,
}

/// Selects the first alternative of the document's security requirements that can be satisfied. Credentials that are
/// not assigned to a scheme are sent with every operation that is not public.
pub(super) fn select_auth(operation: &Operation, credentials: &SourceCredentials) -> Result<SelectedAuth> {
    match credentials {
        // No `auth`: send the request anyway, and explain a 401 afterwards.
        SourceCredentials::NotConfigured => {
            Ok(SelectedAuth { values: Vec::new(), missing: describe_required(operation) })
        }
        // Public operations get no credentials, even if there are some.
        SourceCredentials::Always(_) | SourceCredentials::Unresolved(_) if operation.public => {
            Ok(SelectedAuth::default())
        }
        SourceCredentials::Unresolved(reason) => Err(Error::new(Code::ConfigInvalid, reason.clone())),
        // Nothing of the document fits, and it allows anonymous requests.
        SourceCredentials::Always(auth)
            if needs_document(auth)
                && operation.security.iter().any(Vec::is_empty)
                && default_value(auth).is_none()
                && document_values(auth, operation).is_empty() =>
        {
            Ok(SelectedAuth::default())
        }
        SourceCredentials::Always(auth) => {
            Ok(SelectedAuth { values: vec![complete_auth(auth, operation)?], missing: None })
        }
        SourceCredentials::ByScheme(schemes) => {
            // An unresolved reference matters only if no alternative can do without it.
            let mut unresolved = None;
            for alternative in &operation.security {
                // All schemes of an alternative must be satisfied together.
                let matched: Option<Vec<_>> = alternative
                    .iter()
                    .map(|requirement| match schemes.get(&requirement.scheme) {
                        Some(Ok(auth)) => Some((requirement, auth)),
                        Some(Err(reason)) => {
                            unresolved.get_or_insert(reason);
                            None
                        }
                        None => None,
                    })
                    .collect();
                if let Some(matched) = matched {
                    let values =
                        matched.into_iter().map(|(requirement, auth)| auth_for_scheme(requirement, auth, operation));
                    return Ok(SelectedAuth { values: values.collect::<Result<_>>()?, missing: None });
                }
            }
            // Nothing matches. An unresolved reference explains that best.
            match unresolved {
                Some(reason) => Err(Error::new(Code::ConfigInvalid, reason.clone())),
                None => Ok(SelectedAuth { values: Vec::new(), missing: describe_required(operation) }),
            }
        }
    }
}

/// Credentials for fetching the document itself, which has no security requirement.
pub(super) fn document_auth(credentials: &SourceCredentials) -> Result<Vec<AuthValue>> {
    match credentials {
        // What the document has to complete is not known yet.
        SourceCredentials::Always(auth) if needs_document(auth) => Ok(default_value(auth).into_iter().collect()),
        SourceCredentials::Always(auth) => Ok(vec![auth_value(auth)?]),
        SourceCredentials::Unresolved(reason) => Err(Error::new(Code::ConfigInvalid, reason.clone())),
        SourceCredentials::NotConfigured | SourceCredentials::ByScheme(_) => Ok(Vec::new()),
    }
}

/// Credential for a declared scheme. For an API key the document has name and location, and `auth` the value.
fn auth_for_scheme(requirement: &SecurityRequirement, auth: &Auth, operation: &Operation) -> Result<AuthValue> {
    match (&requirement.kind, auth) {
        (SecurityScheme::ApiKey { name, location }, Auth::ApiKey { value, .. } | Auth::Bearer(value)) => {
            Ok(AuthValue::ApiKey { name: name.clone(), location: *location, value: value.clone() })
        }
        (_, Auth::Oauth2 { token_url, .. }) if token_url.is_empty() => {
            let declared = operation.token_urls.get(&requirement.scheme);
            let url = declared.ok_or_else(|| no_token_url(&format!("`{}`", display_name(&requirement.scheme))))?;
            auth_value(auth).map(|value| value.with_token_url(url))
        }
        // Bearer, Basic and OAuth 2 are sent the same way whatever the document calls them.
        _ => auth_value(auth),
    }
}

/// Returns whether the configuration leaves a part of the credential to the document.
fn needs_document(auth: &Auth) -> bool {
    match auth {
        Auth::ApiKey { name, location, .. } => name.is_empty() || location.is_none(),
        Auth::Oauth2 { token_url, .. } => token_url.is_empty(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::Schemes(_) => false,
    }
}

/// Returns the credential to send if the document does not complete it: a named key in a header.
fn default_value(auth: &Auth) -> Option<AuthValue> {
    let is_default = matches!(auth, Auth::ApiKey { name, location: None, .. } if !name.is_empty());
    is_default.then(|| auth_value(auth).ok()).flatten()
}

/// Credential as configured, completed by the document. Fails if the document has nothing to complete it with, or
/// several things of which none suffices alone.
fn complete_auth(auth: &Auth, operation: &Operation) -> Result<AuthValue> {
    if !needs_document(auth) {
        return auth_value(auth);
    }
    // The first alternative that needs nothing else.
    let alone = operation.security.iter().find_map(|alternative| {
        let completes = |requirement: &SecurityRequirement| complete_value(auth, requirement, operation);
        let values: Vec<AuthValue> = alternative.iter().map(completes).collect::<Option<_>>()?;
        let (first, others) = values.split_first()?;
        others.iter().all(|value| value == first).then(|| first.clone())
    });
    if let Some(value) = alone {
        return Ok(value);
    }
    let mut values = document_values(auth, operation).into_iter();
    if let Some(default) = default_value(auth) {
        return Ok(values.next().map_or(default, |(_, value)| value));
    }
    let label = format!("`{}`", operation_label(operation));
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(value),
        (None, _) if matches!(auth, Auth::Oauth2 { .. }) => Err(no_token_url(&label)),
        (None, _) => {
            let message = format!("the document names no API key for {label}; set `name` and `in` under `api_key`");
            Err(Error::new(Code::ConfigInvalid, message))
        }
        (Some((first, _)), Some((second, _))) => {
            let [first, second] = [first, second].map(display_name);
            let message = format!("the document names several security schemes for {label}: `{first}`, `{second}`");
            // Without requirements, any of the schemes may be the right one.
            let names = if operation.security.is_empty() {
                format!("{first}: …")
            } else {
                format!("{first}: …, {second}: …")
            };
            let hint = format!("set the credentials of each that is needed: `auth: {{ schemes: {{ {names} }} }}`");
            Err(Error::new(Code::ConfigInvalid, format!("{message}; {hint}")))
        }
    }
}

/// Returns the distinct credentials that the schemes of an operation complete, with the scheme of each.
fn document_values<'o>(auth: &Auth, operation: &'o Operation) -> Vec<(&'o str, AuthValue)> {
    let requirements = operation.security.iter().flatten().chain(&operation.declared_schemes);
    let mut values: Vec<(&str, AuthValue)> = Vec::new();
    for requirement in requirements {
        let value = complete_value(auth, requirement, operation);
        let value = value.filter(|value| !values.iter().any(|(_, known)| known == value));
        values.extend(value.map(|value| (requirement.scheme.as_str(), value)));
    }
    values
}

/// Completes a credential with what a scheme of the document declares. Returns `None` for a scheme of another kind.
fn complete_value(auth: &Auth, requirement: &SecurityRequirement, operation: &Operation) -> Option<AuthValue> {
    match (auth, &requirement.kind) {
        (Auth::ApiKey { name: configured, location: place, value }, SecurityScheme::ApiKey { name, location }) => {
            // Names of headers have no case; other names that differ only in case mean the same key, too.
            let is_meant = (configured.is_empty() || configured.eq_ignore_ascii_case(name))
                && place.is_none_or(|place| place == *location);
            let key = || AuthValue::ApiKey { name: name.clone(), location: *location, value: value.clone() };
            is_meant.then(key)
        }
        (Auth::Oauth2 { .. }, _) => {
            let url = operation.token_urls.get(&requirement.scheme)?;
            Some(auth_value(auth).ok()?.with_token_url(url))
        }
        _ => None,
    }
}

impl AuthValue {
    /// Sets the token URL of the document.
    fn with_token_url(self, url: &str) -> AuthValue {
        match self {
            AuthValue::Oauth2(grant) => {
                AuthValue::Oauth2(OauthGrant { token_url: url.to_owned(), is_document_url: true, ..grant })
            }
            AuthValue::Bearer(_) | AuthValue::Basic { .. } | AuthValue::ApiKey { .. } => self,
        }
    }
}

/// Error for a scheme or operation without a token URL.
fn no_token_url(subject: &str) -> Error {
    let message = format!("the document names no token URL for {subject}");
    Error::new(Code::ConfigInvalid, format!("{message}; set `token_url` under `oauth2`"))
}

/// Name of a scheme in messages.
fn display_name(scheme: &str) -> String {
    sanitize_truncated(scheme, 80)
}

/// Makes token URLs of the document absolute, and fails if the client secret must not be sent there.
pub(super) fn resolve_token_urls(auth: &mut SelectedAuth, resolved: &ResolvedSource, server: &Url) -> Result<()> {
    for value in &mut auth.values {
        let AuthValue::Oauth2(grant) = value else { continue };
        if !grant.is_document_url {
            continue;
        }
        let url = absolute_token_url(&grant.token_url, server);
        let url =
            url.ok_or_else(|| Error::new(Code::ConfigInvalid, "the token URL of the document is not a valid URL"))?;
        resolved.check_token_url_allowed(&url, server)?;
        grant.token_url = url.into();
    }
    Ok(())
}

/// Returns the token URL of a document, which may be relative to the server of the API, without a login in it.
pub(super) fn absolute_token_url(token_url: &str, server: &Url) -> Option<Url> {
    let mut base = server.clone();
    base.set_path(&format!("{}/", server.path().trim_end_matches('/')));
    base.join(token_url).ok().map(strip_login)
}

/// Credential as configured.
fn auth_value(auth: &Auth) -> Result<AuthValue> {
    Ok(match auth {
        Auth::Bearer(token) => AuthValue::Bearer(token.clone()),
        Auth::Basic { user, password } => AuthValue::Basic { user: user.clone(), password: password.clone() },
        Auth::ApiKey { name, .. } if name.is_empty() => {
            return Err(Error::new(
                Code::ConfigInvalid,
                "`api_key` of `auth` has no `name`, and its scheme is no API key",
            ));
        }
        Auth::ApiKey { name, location, value } => {
            let location = location.unwrap_or(KeyLocation::Header);
            AuthValue::ApiKey { name: name.clone(), location, value: value.clone() }
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => AuthValue::Oauth2(OauthGrant {
            token_url: token_url.clone(),
            is_document_url: false,
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes: scopes.clone(),
        }),
        Auth::Schemes(_) => return Err(Error::new(Code::ConfigInvalid, "`schemes` of `auth` must not be nested")),
    })
}

/// Describes the first alternative of the security requirements; `None` if the operation allows anonymous access.
fn describe_required(operation: &Operation) -> Option<String> {
    if operation.public || operation.security.iter().any(Vec::is_empty) {
        return None;
    }
    let schemes = operation.security.first()?.iter().map(|requirement| {
        let kind = match &requirement.kind {
            SecurityScheme::Bearer => "a bearer token".to_owned(),
            SecurityScheme::Basic => "a user and a password".to_owned(),
            SecurityScheme::ApiKey { name, location } => {
                let location = match location {
                    KeyLocation::Header => "header",
                    KeyLocation::Query => "query",
                    KeyLocation::Cookie => "cookie",
                };
                format!("a key in the {location} `{}`", sanitize_truncated(name, 80))
            }
            SecurityScheme::Oauth2 => "OAuth 2".to_owned(),
            SecurityScheme::OpenIdConnect => "OpenID Connect".to_owned(),
            SecurityScheme::Other(kind) => sanitize_truncated(kind, 80),
        };
        format!("`{}` ({kind})", sanitize_truncated(&requirement.scheme, 80))
    });
    Some(schemes.collect::<Vec<_>>().join(" and "))
}

/// Adds credentials to a request. `tokens` belong to the OAuth 2 values, in their order.
pub(super) fn apply_auth(
    values: &[AuthValue],
    tokens: &[String],
    url: &mut Url,
    headers: &mut HeaderMap,
) -> Result<()> {
    let mut tokens = tokens.iter();
    for value in values {
        match value {
            AuthValue::Bearer(token) => set_bearer(headers, token)?,
            AuthValue::Oauth2(_) => {
                let token = tokens.next().ok_or_else(|| Error::new(Code::Internal, "a token is missing"))?;
                set_bearer(headers, token)?;
            }
            AuthValue::Basic { user, password } => {
                let value = format!("Basic {}", basic_credentials(user, password));
                headers.insert(AUTHORIZATION, header_value("authorization", &value)?);
            }
            AuthValue::ApiKey { name, location, value } => set_api_key(name, *location, value, url, headers)?,
        }
    }
    Ok(())
}

/// Sets the `Authorization` header.
fn set_bearer(headers: &mut HeaderMap, token: &str) -> Result<()> {
    headers.insert(AUTHORIZATION, header_value("authorization", &format!("Bearer {token}"))?);
    Ok(())
}

/// Adds an API key where the document or the configuration wants it. Errors never contain the value.
fn set_api_key(name: &str, location: KeyLocation, value: &str, url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
    let invalid = |what: &str| {
        let name = sanitize_truncated(name, 80);
        Error::new(Code::ConfigInvalid, format!("the key `{name}` of `auth` has a {what} that HTTP does not allow"))
    };
    // Control characters are a mistake in any location; a query would encode them and send them on.
    if value.chars().any(char::is_control) {
        return Err(invalid("value"));
    }
    match location {
        KeyLocation::Header => {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        KeyLocation::Query => {
            // An argument may have produced a query parameter of the same name: the configured key replaces it.
            let is_key = |pair: &&str| url::form_urlencoded::parse(pair.as_bytes()).any(|(key, _)| key == name);
            let others: Vec<&str> =
                url.query().into_iter().flat_map(|query| query.split('&')).filter(|pair| !is_key(pair)).collect();
            let others = others.join("&");
            url.set_query(Some(&others).filter(|query| !query.is_empty()).map(String::as_str));
            url.query_pairs_mut().append_pair(name, value);
        }
        KeyLocation::Cookie => {
            // Characters that RFC 6265 excludes: they would end the cookie or start another one.
            let has_separator = |text: &str| text.contains([';', ',', ' ', '"', '\\']);
            if has_separator(value) {
                return Err(invalid("value"));
            }
            if name.is_empty() || has_separator(name) || name.contains('=') || name.chars().any(char::is_control) {
                return Err(invalid("name"));
            }
            add_cookies(headers, &[format!("{name}={value}")])?;
        }
    }
    Ok(())
}

/// Appends cookies to the one `Cookie` header of a request.
pub(super) fn add_cookies(headers: &mut HeaderMap, cookies: &[String]) -> Result<()> {
    if cookies.is_empty() {
        return Ok(());
    }
    // RFC 6265 allows one `Cookie` header only, so cookies of parameters, configuration and credentials are joined.
    let existing = headers.get(COOKIE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let all: Vec<&str> = existing.iter().map(String::as_str).chain(cookies.iter().map(String::as_str)).collect();
    headers.insert(COOKIE, header_value("cookie", &all.join("; "))?);
    Ok(())
}

#[cfg(test)]
mod tests;
