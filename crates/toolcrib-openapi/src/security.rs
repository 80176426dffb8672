//! Reads which credentials an operation requires, from the security schemes and requirements of the document.
//!
//! A requirement is a list of alternatives, each a set of schemes: `[{"a": []}, {"b": [], "c": []}]` means a, or b and
//! c together. Which alternative is used depends on the configured credentials, so the connector chooses it at a call.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use toolcrib_core::execution::{SecurityRequirement, SecurityScheme};
use toolcrib_core::source::KeyLocation;
use toolcrib_core::text::sanitize_truncated;

use super::convert::{SpecVersion, object_members};
use super::document_set::{DocumentSet, NodeRef};

/// Maximum length of a token URL. Every operation keeps a copy.
const MAX_TOKEN_URL_LEN: usize = 2_000;
/// Maximum number of schemes that an operation keeps if the document does not say which of them apply.
const MAX_DECLARED_SCHEMES: usize = 8;

/// Security schemes of a document.
#[derive(Debug)]
pub(super) struct SecuritySchemes<'a> {
    schemes: BTreeMap<&'a str, SecurityScheme>,
    /// Location and name of each API key, header names in lower case. Every parameter is looked up here.
    api_keys: HashSet<(KeyLocation, String)>,
    /// Token URLs by scheme.
    token_urls: BTreeMap<&'a str, &'a str>,
    /// `security` of the document, for operations without their own.
    default_requirements: Option<&'a Value>,
}

/// Credentials that an operation requires.
#[derive(Debug, PartialEq)]
pub(super) struct OperationSecurity {
    /// Alternatives of which one suffices; all requirements of an alternative apply.
    pub(super) alternatives: Vec<Vec<SecurityRequirement>>,
    /// The operation explicitly requires none, with an empty `security`.
    pub(super) public: bool,
    /// Schemes of the document, if neither it nor the operation says which of them apply.
    pub(super) declared_schemes: Vec<SecurityRequirement>,
    /// Token URLs by scheme.
    pub(super) token_urls: BTreeMap<String, String>,
}

impl<'a> SecuritySchemes<'a> {
    /// Reads the schemes of a document.
    pub(super) fn from_document(
        root: NodeRef<'a>,
        documents: &'a DocumentSet,
        version: SpecVersion,
    ) -> SecuritySchemes<'a> {
        // An unresolvable scheme is read as an empty one, which becomes `Other`.
        let null = &Value::Null;
        let (container, key) = match version {
            SpecVersion::Swagger2 => (root.value, "securityDefinitions"),
            SpecVersion::OpenApi3 => (root.value.get("components").unwrap_or(null), "securitySchemes"),
        };
        let mut token_urls = BTreeMap::new();
        let schemes = object_members(container, key).map(|(name, value)| {
            let value = documents.resolve(NodeRef { value, ..root }).map_or(null, |node| node.value);
            token_urls.extend(token_url(value).map(|url| (name.as_str(), url)));
            (name.as_str(), parse_scheme(value))
        });
        let schemes: BTreeMap<&'a str, SecurityScheme> = schemes.collect();
        let api_keys = schemes.values().filter_map(|scheme| match scheme {
            SecurityScheme::ApiKey { name, location } => Some(api_key(*location, name)),
            SecurityScheme::Bearer
            | SecurityScheme::Basic
            | SecurityScheme::Oauth2
            | SecurityScheme::OpenIdConnect
            | SecurityScheme::Other(_) => None,
        });
        let default_requirements = root.value.get("security");
        SecuritySchemes { api_keys: api_keys.collect(), token_urls, schemes, default_requirements }
    }

    /// Returns the requirements of an operation, else those of the document.
    pub(super) fn requirements_of(&self, operation: &Value) -> OperationSecurity {
        let declared = operation.get("security");
        let requirements = declared.or(self.default_requirements).and_then(Value::as_array);
        let alternatives = requirements.into_iter().flatten().filter_map(Value::as_object).map(|alternative| {
            let requirements = alternative.iter().map(|(name, scopes)| SecurityRequirement {
                scheme: name.clone(),
                // Documents refer to schemes that they do not declare.
                kind: self
                    .schemes
                    .get(name.as_str())
                    .cloned()
                    .unwrap_or_else(|| SecurityScheme::Other("undeclared".into())),
                scopes: scopes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            });
            requirements.collect()
        });
        // An empty list overrides the default: no credentials at all.
        // Only a list of the operation itself counts; an empty default says nothing about it.
        let public = declared.and_then(Value::as_array).is_some_and(Vec::is_empty);
        let alternatives: Vec<Vec<SecurityRequirement>> = alternatives.collect();
        let declared_schemes =
            if declared.or(self.default_requirements).is_none() { self.usable_schemes().collect() } else { Vec::new() };
        let used = alternatives.iter().flatten().chain(&declared_schemes);
        let token_url = |requirement: &SecurityRequirement| {
            let url = self.token_urls.get(requirement.scheme.as_str())?;
            Some((requirement.scheme.clone(), (*url).to_owned()))
        };
        let token_urls = used.filter_map(token_url).collect();
        OperationSecurity { alternatives, public, declared_schemes, token_urls }
    }

    /// Returns the schemes that configured credentials take something from: a name, a location or a token URL.
    fn usable_schemes(&self) -> impl Iterator<Item = SecurityRequirement> {
        let is_usable = |name: &str, scheme: &SecurityScheme| {
            matches!(scheme, SecurityScheme::ApiKey { .. }) || self.token_urls.contains_key(name)
        };
        let usable =
            self.schemes.iter().filter(move |(name, scheme)| is_usable(name, scheme)).take(MAX_DECLARED_SCHEMES);
        usable.map(|(name, kind)| SecurityRequirement {
            scheme: (*name).to_owned(),
            kind: kind.clone(),
            scopes: Vec::new(),
        })
    }

    /// Returns whether the document declares any security scheme.
    pub(super) fn has_schemes(&self) -> bool {
        !self.schemes.is_empty()
    }

    /// Returns whether a parameter is an API key of a scheme. Agents never see credentials. Such a parameter is left
    /// out of the arguments; the configured key is sent instead.
    pub(super) fn is_credential(&self, location: &str, name: &str) -> bool {
        KeyLocation::parse(location).is_some_and(|location| self.api_keys.contains(&api_key(location, name)))
    }
}

/// Returns the identity of an API key. Names of headers are compared without regard to case.
fn api_key(location: KeyLocation, name: &str) -> (KeyLocation, String) {
    (location, if location == KeyLocation::Header { name.to_ascii_lowercase() } else { name.to_owned() })
}

/// Returns the token URL of a scheme. Prefers the client credentials flow (`application` in Swagger 2.0); the other flows
/// have the same token endpoint (RFC 6749, section 3.2), and many documents declare only them.
fn token_url(scheme: &Value) -> Option<&str> {
    let flows = ["clientCredentials", "authorizationCode", "password", "deviceAuthorization"];
    let flows = flows.iter().filter_map(|flow| scheme.get("flows")?.get(flow));
    // Swagger 2.0 has the members of a flow in the scheme itself.
    let urls = flows.chain([scheme]).filter_map(|flow| flow.get("tokenUrl")?.as_str());
    urls.into_iter().find(|url| !url.is_empty() && url.len() <= MAX_TOKEN_URL_LEN)
}

/// Parses a Security Scheme Object. Unsupported ones are kept by name.
fn parse_scheme(value: &Value) -> SecurityScheme {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let other = || SecurityScheme::Other(sanitize_truncated(&format!("{} {}", text("type"), text("scheme")), 60));
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") => SecurityScheme::Bearer,
        // `basic` is the type of Swagger 2.0.
        ("http", "basic") | ("basic", _) => SecurityScheme::Basic,
        ("oauth2", _) => SecurityScheme::Oauth2,
        ("openIdConnect", _) => SecurityScheme::OpenIdConnect,
        ("apiKey", _) => match KeyLocation::parse(text("in")) {
            Some(location) => SecurityScheme::ApiKey { name: text("name").to_owned(), location },
            // An API key in an unknown place cannot be sent.
            None => other(),
        },
        _ => other(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;

    #[test]
    fn an_operation_overrides_the_security_of_its_document() {
        let root = json!({
            "security": [{ "b": [] }, {}],
            "components": { "securitySchemes": {
                "b": { "type": "http", "scheme": "Bearer" },
                "k": { "type": "apiKey", "in": "header", "name": "X-Key" },
                "d": { "type": "http", "scheme": "digest" },
            } },
        });
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let schemes = SecuritySchemes::from_document(documents.root().unwrap(), &documents, SpecVersion::OpenApi3);
        let requirements = |operation: Value| {
            let security = schemes.requirements_of(&operation);
            (serde_json::to_value(security.alternatives).unwrap(), security.public)
        };
        let bearer = json!({ "scheme": "b", "kind": "bearer" });
        assert_eq!(requirements(json!({})), (json!([[bearer], []]), false));
        assert_eq!(requirements(json!({ "security": [] })), (json!([]), true));
        let key =
            json!({ "scheme": "k", "kind": { "api_key": { "name": "X-Key", "place": "header" } }, "scopes": ["r"] });
        assert_eq!(requirements(json!({ "security": [{ "k": ["r"] }] })), (json!([[key]]), false));
        let other = json!({ "scheme": "d", "kind": { "other": "http digest" } });
        assert_eq!(requirements(json!({ "security": [{ "d": [] }] })), (json!([[other]]), false));
        assert_eq!(token_url(&json!({ "flow": "application", "tokenUrl": "/t" })), Some("/t"));
        assert_eq!(token_url(&json!({ "flow": "accessCode", "tokenUrl": "/t" })), Some("/t"));
        let flows = json!({ "flows": { "password": { "tokenUrl": "/p" }, "clientCredentials": { "tokenUrl": "/c" } } });
        assert_eq!(token_url(&flows), Some("/c"));
        assert_eq!(token_url(&json!({ "flows": { "implicit": { "authorizationUrl": "/a" } } })), None);
        assert!(schemes.is_credential("header", "x-key") && !schemes.is_credential("query", "X-Key"));
    }
}
