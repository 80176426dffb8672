//! Which credentials a request gets, and where they stand in it. The document says what an operation wants, the
//! source's `auth` what there is.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use toolcrib_core::execution::{Operation, SecurityRequirement, SecurityScheme};
use toolcrib_core::source::{Auth, KeyLocation};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::resolved_source::{SourceCredentials, header_name, header_value};
use crate::secret::basic_credentials;

/// One thing to present.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum AuthValue {
    Bearer(String),
    Basic { user: String, password: String },
    ApiKey { name: String, place: KeyLocation, value: String },
    Oauth2(OauthGrant),
}

/// How a token is had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OauthGrant {
    pub(super) token_url: String,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scopes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct SelectedAuth {
    pub(super) values: Vec<AuthValue>,
    /// What the document wants and nobody gave, in words.
    pub(super) missing: Option<String>,
}

/// The first alternative of the document that can be satisfied; without names for schemes, what there is.
pub(super) fn select_auth(operation: &Operation, given: &SourceCredentials) -> Result<SelectedAuth> {
    match given {
        SourceCredentials::NotConfigured => {
            Ok(SelectedAuth { values: Vec::new(), missing: describe_required(operation) })
        }
        SourceCredentials::Always(_) | SourceCredentials::Unresolved(_) if operation.public => {
            Ok(SelectedAuth::default())
        }
        SourceCredentials::Unresolved(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
        SourceCredentials::Always(auth) => {
            let needed = operation.security.iter().flatten().find_map(|needed| match &needed.kind {
                SecurityScheme::ApiKey { name, place } => Some((name, *place)),
                SecurityScheme::Bearer
                | SecurityScheme::Basic
                | SecurityScheme::Oauth2
                | SecurityScheme::OpenIdConnect
                | SecurityScheme::Other(_) => None,
            });
            Ok(SelectedAuth { values: vec![auth_value(auth, needed)?], missing: None })
        }
        SourceCredentials::ByScheme(schemes) => {
            let mut unresolved = None;
            for alternative in &operation.security {
                let found: Option<Vec<_>> = alternative
                    .iter()
                    .map(|needed| match schemes.get(&needed.scheme) {
                        Some(Ok(auth)) => Some((needed, auth)),
                        Some(Err(why)) => {
                            unresolved.get_or_insert(why);
                            None
                        }
                        None => None,
                    })
                    .collect();
                if let Some(found) = found {
                    let proofs = found.into_iter().map(|(needed, auth)| auth_for_scheme(needed, auth));
                    return Ok(SelectedAuth { values: proofs.collect::<Result<_>>()?, missing: None });
                }
            }
            match unresolved {
                Some(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
                None => Ok(SelectedAuth { values: Vec::new(), missing: describe_required(operation) }),
            }
        }
    }
}

/// What is presented with a request that is in no document: the one for the document itself.
pub(super) fn document_auth(given: &SourceCredentials) -> Result<Vec<AuthValue>> {
    match given {
        SourceCredentials::Always(auth) => Ok(vec![auth_value(auth, None)?]),
        SourceCredentials::Unresolved(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
        SourceCredentials::NotConfigured | SourceCredentials::ByScheme(_) => Ok(Vec::new()),
    }
}

/// For a scheme with a key, the document has its name and place, and the value is what was given, a bearer or a key.
fn auth_for_scheme(needed: &SecurityRequirement, auth: &Auth) -> Result<AuthValue> {
    match (&needed.kind, auth) {
        (SecurityScheme::ApiKey { name, place }, Auth::ApiKey { value, .. } | Auth::Bearer(value)) => {
            Ok(AuthValue::ApiKey { name: name.clone(), place: *place, value: value.clone() })
        }
        _ => auth_value(auth, None),
    }
}

/// As the auth itself says; a key without a name has the document's.
fn auth_value(auth: &Auth, key: Option<(&String, KeyLocation)>) -> Result<AuthValue> {
    Ok(match auth {
        Auth::Bearer(token) => AuthValue::Bearer(token.clone()),
        Auth::Basic { user, password } => AuthValue::Basic { user: user.clone(), password: password.clone() },
        Auth::ApiKey { name, place, value } => {
            let (name, place) = match (name.is_empty(), key) {
                (false, _) => (name, *place),
                (true, Some(key)) => key,
                (true, None) => return Err(Error::new(Code::ConfigInvalid, "`api_key` of `auth` has no `name`")),
            };
            AuthValue::ApiKey { name: name.clone(), place, value: value.clone() }
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => AuthValue::Oauth2(OauthGrant {
            token_url: token_url.clone(),
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes: scopes.clone(),
        }),
        Auth::Schemes(_) => return Err(Error::new(Code::ConfigInvalid, "`schemes` of `auth` stand inside each other")),
    })
}

/// What the first alternative that asks for anything wants; nothing where nobody need say who they are.
fn describe_required(operation: &Operation) -> Option<String> {
    if operation.public || operation.security.iter().any(Vec::is_empty) {
        return None;
    }
    let schemes = operation.security.first()?.iter().map(|needed| {
        let kind = match &needed.kind {
            SecurityScheme::Bearer => "a bearer token".to_owned(),
            SecurityScheme::Basic => "a user and a password".to_owned(),
            SecurityScheme::ApiKey { name, place } => {
                let place = match place {
                    KeyLocation::Header => "header",
                    KeyLocation::Query => "query",
                    KeyLocation::Cookie => "cookie",
                };
                format!("a key in the {place} `{}`", sanitize_truncated(name, 80))
            }
            SecurityScheme::Oauth2 => "OAuth 2".to_owned(),
            SecurityScheme::OpenIdConnect => "OpenID Connect".to_owned(),
            SecurityScheme::Other(kind) => sanitize_truncated(kind, 80),
        };
        format!("`{}` ({kind})", sanitize_truncated(&needed.scheme, 80))
    });
    Some(schemes.collect::<Vec<_>>().join(" and "))
}

/// Lays credentials into a request. `tokens` are those of the OAuth 2 proofs, in their order.
pub(super) fn apply_auth(
    proofs: &[AuthValue],
    tokens: &[String],
    url: &mut Url,
    headers: &mut HeaderMap,
) -> Result<()> {
    let mut tokens = tokens.iter();
    for proof in proofs {
        match proof {
            AuthValue::Bearer(token) => set_bearer(headers, token)?,
            AuthValue::Oauth2(_) => {
                let token = tokens.next().ok_or_else(|| Error::new(Code::Internal, "a token is missing"))?;
                set_bearer(headers, token)?;
            }
            AuthValue::Basic { user, password } => {
                let value = format!("Basic {}", basic_credentials(user, password));
                headers.insert(AUTHORIZATION, header_value("authorization", &value)?);
            }
            AuthValue::ApiKey { name, place, value } => set_api_key(name, *place, value, url, headers)?,
        }
    }
    Ok(())
}

fn set_bearer(headers: &mut HeaderMap, token: &str) -> Result<()> {
    headers.insert(AUTHORIZATION, header_value("authorization", &format!("Bearer {token}"))?);
    Ok(())
}

fn set_api_key(name: &str, place: KeyLocation, value: &str, url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
    let wrong = |what: &str| {
        let name = sanitize_truncated(name, 80);
        Error::new(Code::ConfigInvalid, format!("the key `{name}` of `auth` has a {what} that HTTP does not allow"))
    };
    if value.chars().any(char::is_control) {
        return Err(wrong("value"));
    }
    match place {
        KeyLocation::Header => {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        KeyLocation::Query => {
            // An agent may have chosen a name inside of an object: whoever configures a key means that one.
            let is_key = |pair: &&str| url::form_urlencoded::parse(pair.as_bytes()).any(|(known, _)| known == name);
            let others: Vec<&str> =
                url.query().into_iter().flat_map(|query| query.split('&')).filter(|pair| !is_key(pair)).collect();
            let others = others.join("&");
            url.set_query(Some(&others).filter(|query| !query.is_empty()).map(String::as_str));
            url.query_pairs_mut().append_pair(name, value);
        }
        KeyLocation::Cookie => {
            let apart = |text: &str| text.contains([';', ',', ' ', '"', '\\']);
            if apart(value) {
                return Err(wrong("value"));
            }
            if name.is_empty() || apart(name) || name.contains('=') || name.chars().any(char::is_control) {
                return Err(wrong("name"));
            }
            add_cookies(headers, &[format!("{name}={value}")])?;
        }
    }
    Ok(())
}

/// All cookies of a request stand in one header.
pub(super) fn add_cookies(headers: &mut HeaderMap, cookies: &[String]) -> Result<()> {
    if cookies.is_empty() {
        return Ok(());
    }
    let known = headers.get(COOKIE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let all: Vec<&str> = known.iter().map(String::as_str).chain(cookies.iter().map(String::as_str)).collect();
    headers.insert(COOKIE, header_value("cookie", &all.join("; "))?);
    Ok(())
}

#[cfg(test)]
mod tests;
