//! Which clients may declare sources that reach into this machine or its network: programs, files, values that only this process knows,
//! and private addresses.

use std::convert::Infallible;

use toolcrib::address_policy::is_public_url;
use toolcrib::builtin::MUTATING_TOOLS;
use toolcrib::core::reference::{ReferencePart, split_references};
use toolcrib::core::source::{Auth, SourceKind};
use toolcrib::{Code, Error, Result, Source};

use crate::auth::{Principal, Role};
use crate::state::AppState;

/// Such a source is for who is on this machine and manages it, unless the configuration says otherwise: a token that
/// manages over the network is not a shell here, nor a key to the secrets that lie here, nor a way into the network around.
pub(super) async fn authorize(app: &AppState, principal: &Principal, source: &Source) -> Result<()> {
    if principal.is_local && principal.role == Role::Admin {
        return Ok(());
    }
    let found = app.loaded_config.load_full();
    if let Some(would) = host_access(&source.kind)
        && !found.config.allow_commands
    {
        let message = format!(
            "`{}` would {would} on the server, which requests over HTTP may not; `allow_commands: true` in the \
             configuration permits it, or `toolcrib add` declares it there",
            source.id
        );
        return Err(Error::new(Code::Forbidden, message));
    }
    if found.config.allow_private_sources {
        return Ok(());
    }
    let refused = |what: String| {
        let message = format!(
            "`{}` {what}, which requests over the network may not; `allow_private_sources: true` in the configuration \
             permits it, or `toolcrib add` declares it there",
            source.id
        );
        Err(Error::new(Code::Forbidden, message))
    };
    if allows_private_addresses(&source.kind) {
        return refused("would have `allow_private`".into());
    }
    for (key, address) in source_urls(&source.kind) {
        if !is_public_url(address).await {
            return refused(format!("has a `{key}` that is not, or not only, at public addresses"));
        }
    }
    Ok(())
}

fn allows_private_addresses(kind: &SourceKind) -> bool {
    match kind {
        SourceKind::OpenApi(openapi) => openapi.allow_private,
        SourceKind::Builtin(builtin) => builtin.allow_private,
        SourceKind::Stdio(_) | SourceKind::Http(_) | SourceKind::Sse(_) | SourceKind::Workflow(_) => false,
    }
}

/// Every address that a source names, with its key.
fn source_urls(kind: &SourceKind) -> Vec<(&'static str, &str)> {
    match kind {
        SourceKind::Http(remote) | SourceKind::Sse(remote) => vec![("url", &remote.url)],
        SourceKind::OpenApi(openapi) => {
            let documents = openapi.allow_refs.iter().map(|place| ("allow_refs", place.as_str()));
            let documents = documents.chain([("openapi", openapi.document.as_str())]);
            let mut addresses: Vec<_> = documents.filter(|(_, place)| is_http_url(place)).collect();
            addresses.extend(openapi.base_url.as_deref().map(|base| ("base_url", base)));
            addresses.extend(openapi.auth.iter().flat_map(token_urls).map(|url| ("token_url", url)));
            addresses
        }
        SourceKind::Stdio(_) | SourceKind::Workflow(_) | SourceKind::Builtin(_) => Vec::new(),
    }
}

fn token_urls(auth: &Auth) -> Vec<&str> {
    match auth {
        Auth::Oauth2 { token_url, .. } => vec![token_url],
        Auth::Schemes(schemes) => schemes.values().flat_map(token_urls).collect(),
        Auth::Bearer(_) | Auth::Basic { .. } | Auth::ApiKey { .. } => Vec::new(),
    }
}

/// What a source would do on this machine that is not everybody's to ask for.
fn host_access(kind: &SourceKind) -> Option<&'static str> {
    let does = match kind {
        SourceKind::Stdio(_) => Some("start programs"),
        SourceKind::Builtin(builtin) if builtin.tools.iter().any(|tool| MUTATING_TOOLS.contains(&tool.as_str())) => {
            Some("start programs or change files")
        }
        SourceKind::Builtin(builtin) => (!builtin.roots.is_empty()).then_some("read files"),
        SourceKind::OpenApi(openapi) => {
            let mut places = openapi.allow_refs.iter().chain([&openapi.document]);
            places.any(|place| !is_http_url(place)).then_some("read files")
        }
        SourceKind::Workflow(_) => Some("read files"),
        SourceKind::Http(_) | SourceKind::Sse(_) => None,
    };
    does.or_else(|| has_references(kind).then_some("use variables or files"))
}

fn is_http_url(place: &str) -> bool {
    let scheme = place.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

fn has_references(kind: &SourceKind) -> bool {
    let mut found = false;
    let looked = kind.try_map_texts(|text| {
        found |= split_references(text).iter().any(|piece| matches!(piece, ReferencePart::Reference(_)));
        Ok::<_, Infallible>(String::new())
    });
    drop(looked);
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolcrib::core::config::parse_source;

    use super::*;

    #[test]
    fn every_address_of_a_source_is_known() {
        let oauth2 = json!({ "token_url": "http://c/", "client_id": "i", "client_secret": "s" });
        for (keys, expected) in [
            (json!({ "url": "http://a/" }), vec![("url", "http://a/")]),
            (json!({ "url": "http://a/", "transport": "sse" }), vec![("url", "http://a/")]),
            (
                json!({
                    "openapi": "http://a/x.json", "base_url": "http://b/", "allow_refs": ["http://r/", "./refs"],
                    "auth": { "oauth2": oauth2.clone() },
                }),
                vec![
                    ("allow_refs", "http://r/"),
                    ("openapi", "http://a/x.json"),
                    ("base_url", "http://b/"),
                    ("token_url", "http://c/"),
                ],
            ),
            (
                json!({ "openapi": "./x.json", "auth": { "schemes": { "o": { "oauth2": oauth2 } } } }),
                vec![("token_url", "http://c/")],
            ),
            (json!({ "command": "x" }), vec![]),
            (json!({ "builtin": "all" }), vec![]),
        ] {
            let source = parse_source("a", &keys, std::path::Path::new("/p")).unwrap();
            assert_eq!(source_urls(&source.kind), expected, "{keys}");
        }
        for (keys, expected) in [
            (json!({ "builtin": ["url_fetch"], "allow_private": true }), true),
            (json!({ "openapi": "http://a/x.json", "allow_private": true }), true),
            (json!({ "openapi": "http://a/x.json" }), false),
        ] {
            let source = parse_source("a", &keys, std::path::Path::new("/p")).unwrap();
            assert_eq!(allows_private_addresses(&source.kind), expected, "{keys}");
        }
    }

    #[test]
    fn what_reaches_into_this_machine_is_known() {
        let reaches =
            |keys: &Value| host_access(&parse_source("a", keys, std::path::Path::new("/p")).unwrap().kind).is_some();
        for name in MUTATING_TOOLS {
            assert!(reaches(&json!({ "builtin": ["calculate", name] })), "{name}");
        }
        for keys in [
            json!({ "command": "x" }),
            json!({ "builtin": "all", "roots": ["."] }),
            json!({ "openapi": "./x.yaml" }),
            json!({ "openapi": "http://x/y.yaml", "allow_refs": ["./refs"] }),
            json!({ "workflow": "./x.yaml" }),
            json!({ "url": "http://x", "headers": { "X-Key": "a ${env:HOME}" } }),
            json!({ "url": "http://x", "headers": { "X-Key": "${HOME}" } }),
            json!({ "url": "http://x/${file:/etc/passwd}" }),
            json!({ "url": "http://x", "auth": { "bearer": "${file:/etc/passwd}" } }),
            json!({ "openapi": "http://x/y.yaml", "variables": { "a": "${env:HOME}" } }),
        ] {
            assert!(reaches(&keys), "{keys}");
        }
        for keys in [
            json!({ "url": "http://x", "headers": { "X-Key": "a" } }),
            json!({ "url": "http://x", "transport": "sse" }),
            json!({ "openapi": "https://x/y.yaml", "allow_refs": ["https://y/"] }),
            json!({ "builtin": "all" }),
            json!({ "builtin": ["calculate"] }),
        ] {
            assert!(!reaches(&keys), "{keys}");
        }
    }
}
