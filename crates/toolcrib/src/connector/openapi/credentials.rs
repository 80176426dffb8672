//! Which credentials a request gets, and where they stand in it. The document says what an operation wants, the
//! source's `auth` what there is.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use toolcrib_core::execution::{Needed, Operation, Scheme};
use toolcrib_core::source::{Auth, KeyPlace};
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result};
use url::Url;

use super::settled::{Given, header_name, header_value};
use crate::secret::basic;

/// One thing to present.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Proof {
    Bearer(String),
    Basic { user: String, password: String },
    Key { name: String, place: KeyPlace, value: String },
    Oauth2(Grant),
}

/// How a token is had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Grant {
    pub(super) token_url: String,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scopes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) proofs: Vec<Proof>,
    /// What the document wants and nobody gave, in words.
    pub(super) missing: Option<String>,
}

/// The first alternative of the document that can be satisfied; without names for schemes, what there is.
pub(super) fn choose(operation: &Operation, given: &Given) -> Result<Chosen> {
    match given {
        Given::Nothing => Ok(Chosen { proofs: Vec::new(), missing: wanted(operation) }),
        Given::Always(_) | Given::Unresolved(_) if operation.public => Ok(Chosen::default()),
        Given::Unresolved(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
        Given::Always(auth) => {
            let needed = operation.security.iter().flatten().find_map(|needed| match &needed.kind {
                Scheme::ApiKey { name, place } => Some((name, *place)),
                Scheme::Bearer | Scheme::Basic | Scheme::Oauth2 | Scheme::OpenIdConnect | Scheme::Other(_) => None,
            });
            Ok(Chosen { proofs: vec![proof(auth, needed)?], missing: None })
        }
        Given::ByScheme(schemes) => {
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
                    let proofs = found.into_iter().map(|(needed, auth)| satisfying(needed, auth));
                    return Ok(Chosen { proofs: proofs.collect::<Result<_>>()?, missing: None });
                }
            }
            match unresolved {
                Some(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
                None => Ok(Chosen { proofs: Vec::new(), missing: wanted(operation) }),
            }
        }
    }
}

/// What is presented with a request that is in no document: the one for the document itself.
pub(super) fn always(given: &Given) -> Result<Vec<Proof>> {
    match given {
        Given::Always(auth) => Ok(vec![proof(auth, None)?]),
        Given::Unresolved(why) => Err(Error::new(Code::ConfigInvalid, why.clone())),
        Given::Nothing | Given::ByScheme(_) => Ok(Vec::new()),
    }
}

/// For a scheme with a key, the document has its name and place, and the value is what was given, a bearer or a key.
fn satisfying(needed: &Needed, auth: &Auth) -> Result<Proof> {
    match (&needed.kind, auth) {
        (Scheme::ApiKey { name, place }, Auth::ApiKey { value, .. } | Auth::Bearer(value)) => {
            Ok(Proof::Key { name: name.clone(), place: *place, value: value.clone() })
        }
        _ => proof(auth, None),
    }
}

/// As the auth itself says; a key without a name has the document's.
fn proof(auth: &Auth, key: Option<(&String, KeyPlace)>) -> Result<Proof> {
    Ok(match auth {
        Auth::Bearer(token) => Proof::Bearer(token.clone()),
        Auth::Basic { user, password } => Proof::Basic { user: user.clone(), password: password.clone() },
        Auth::ApiKey { name, place, value } => {
            let (name, place) = match (name.is_empty(), key) {
                (false, _) => (name, *place),
                (true, Some(key)) => key,
                (true, None) => return Err(Error::new(Code::ConfigInvalid, "`api_key` of `auth` has no `name`")),
            };
            Proof::Key { name: name.clone(), place, value: value.clone() }
        }
        Auth::Oauth2 { token_url, client_id, client_secret, scopes } => Proof::Oauth2(Grant {
            token_url: token_url.clone(),
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes: scopes.clone(),
        }),
        Auth::Schemes(_) => return Err(Error::new(Code::ConfigInvalid, "`schemes` of `auth` stand inside each other")),
    })
}

/// What the first alternative that asks for anything wants; nothing where nobody need say who they are.
fn wanted(operation: &Operation) -> Option<String> {
    if operation.public || operation.security.iter().any(Vec::is_empty) {
        return None;
    }
    let schemes = operation.security.first()?.iter().map(|needed| {
        let kind = match &needed.kind {
            Scheme::Bearer => "a bearer token".to_owned(),
            Scheme::Basic => "a user and a password".to_owned(),
            Scheme::ApiKey { name, place } => {
                let place = match place {
                    KeyPlace::Header => "header",
                    KeyPlace::Query => "query",
                    KeyPlace::Cookie => "cookie",
                };
                format!("a key in the {place} `{}`", shown_short(name, 80))
            }
            Scheme::Oauth2 => "OAuth 2".to_owned(),
            Scheme::OpenIdConnect => "OpenID Connect".to_owned(),
            Scheme::Other(kind) => shown_short(kind, 80),
        };
        format!("`{}` ({kind})", shown_short(&needed.scheme, 80))
    });
    Some(schemes.collect::<Vec<_>>().join(" and "))
}

/// Lays credentials into a request. `tokens` are those of the OAuth 2 proofs, in their order.
pub(super) fn present(proofs: &[Proof], tokens: &[String], url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
    let mut tokens = tokens.iter();
    for proof in proofs {
        match proof {
            Proof::Bearer(token) => bearer(headers, token)?,
            Proof::Oauth2(_) => {
                let token = tokens.next().ok_or_else(|| Error::new(Code::Internal, "a token is missing"))?;
                bearer(headers, token)?;
            }
            Proof::Basic { user, password } => {
                let value = format!("Basic {}", basic(user, password));
                headers.insert(AUTHORIZATION, header_value("authorization", &value)?);
            }
            Proof::Key { name, place, value } => key(name, *place, value, url, headers)?,
        }
    }
    Ok(())
}

fn bearer(headers: &mut HeaderMap, token: &str) -> Result<()> {
    headers.insert(AUTHORIZATION, header_value("authorization", &format!("Bearer {token}"))?);
    Ok(())
}

fn key(name: &str, place: KeyPlace, value: &str, url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
    let wrong = |what: &str| {
        let name = shown_short(name, 80);
        Error::new(Code::ConfigInvalid, format!("the key `{name}` of `auth` has a {what} that HTTP does not allow"))
    };
    if value.chars().any(char::is_control) {
        return Err(wrong("value"));
    }
    match place {
        KeyPlace::Header => {
            headers.insert(header_name(name)?, header_value(name, value)?);
        }
        KeyPlace::Query => {
            // An agent may have chosen a name inside of an object: whoever configures a key means that one.
            let is_key = |pair: &&str| url::form_urlencoded::parse(pair.as_bytes()).any(|(known, _)| known == name);
            let others: Vec<&str> =
                url.query().into_iter().flat_map(|query| query.split('&')).filter(|pair| !is_key(pair)).collect();
            let others = others.join("&");
            url.set_query(Some(&others).filter(|query| !query.is_empty()).map(String::as_str));
            url.query_pairs_mut().append_pair(name, value);
        }
        KeyPlace::Cookie => {
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
