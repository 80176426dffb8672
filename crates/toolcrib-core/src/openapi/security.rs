//! Which credentials an operation needs, in the document's own words and in ours.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::convert::{SpecVersion, object_members};
use super::document_set::{DocumentSet, NodeRef};
use crate::execution::{SecurityRequirement, SecurityScheme};
use crate::source::KeyLocation;
use crate::text::sanitize_truncated;

#[derive(Debug)]
pub(super) struct SecuritySchemes<'a> {
    schemes: BTreeMap<&'a str, SecurityScheme>,
    /// Place and name of each key, those of headers in small letters: every parameter is looked up here.
    api_keys: HashSet<(&'static str, String)>,
    default_requirements: Option<&'a Value>,
}

/// What an operation says about credentials.
#[derive(Debug, PartialEq)]
pub(super) struct OperationSecurity {
    pub(super) alternatives: Vec<Vec<SecurityRequirement>>,
    /// None are needed, in so many words.
    pub(super) public: bool,
}

impl<'a> SecuritySchemes<'a> {
    pub(super) fn from_document(
        root: NodeRef<'a>,
        library: &'a DocumentSet,
        version: SpecVersion,
    ) -> SecuritySchemes<'a> {
        let nothing = &Value::Null;
        let (holder, key) = match version {
            SpecVersion::Swagger2 => (root.value, "securityDefinitions"),
            SpecVersion::OpenApi3 => (root.value.get("components").unwrap_or(nothing), "securitySchemes"),
        };
        let known = object_members(holder, key).map(|(name, value)| {
            let value = library.resolve(NodeRef { value, ..root }).map_or(nothing, |at| at.value);
            (name.as_str(), parse_scheme(value))
        });
        let known: BTreeMap<&'a str, SecurityScheme> = known.collect();
        let keys = known.values().filter_map(|scheme| match scheme {
            SecurityScheme::ApiKey { name, place: KeyLocation::Header } => Some(("header", name.to_ascii_lowercase())),
            SecurityScheme::ApiKey { name, place: KeyLocation::Query } => Some(("query", name.clone())),
            SecurityScheme::ApiKey { name, place: KeyLocation::Cookie } => Some(("cookie", name.clone())),
            SecurityScheme::Bearer
            | SecurityScheme::Basic
            | SecurityScheme::Oauth2
            | SecurityScheme::OpenIdConnect
            | SecurityScheme::Other(_) => None,
        });
        SecuritySchemes { api_keys: keys.collect(), schemes: known, default_requirements: root.value.get("security") }
    }

    pub(super) fn requirements_of(&self, operation: &Value) -> OperationSecurity {
        let own = operation.get("security");
        let stated = own.or(self.default_requirements).and_then(Value::as_array);
        let alternatives = stated.into_iter().flatten().filter_map(Value::as_object).map(|schemes| {
            let needed = schemes.iter().map(|(name, scopes)| SecurityRequirement {
                scheme: name.clone(),
                kind: self
                    .schemes
                    .get(name.as_str())
                    .cloned()
                    .unwrap_or_else(|| SecurityScheme::Other("undeclared".into())),
                scopes: scopes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            });
            needed.collect()
        });
        let public = own.and_then(Value::as_array).is_some_and(Vec::is_empty);
        OperationSecurity { alternatives: alternatives.collect(), public }
    }

    /// Whether the document says how to be let in.
    pub(super) fn has_schemes(&self) -> bool {
        !self.schemes.is_empty()
    }

    /// Whether a parameter is a credential in disguise: agents never see those.
    pub(super) fn is_credential(&self, place: &str, name: &str) -> bool {
        match place {
            "header" => self.api_keys.contains(&("header", name.to_ascii_lowercase())),
            "query" => self.api_keys.contains(&("query", name.to_owned())),
            "cookie" => self.api_keys.contains(&("cookie", name.to_owned())),
            _ => false,
        }
    }
}

fn parse_scheme(value: &Value) -> SecurityScheme {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let other = || SecurityScheme::Other(sanitize_truncated(&format!("{} {}", text("type"), text("scheme")), 60));
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") => SecurityScheme::Bearer,
        ("http", "basic") | ("basic", _) => SecurityScheme::Basic,
        ("oauth2", _) => SecurityScheme::Oauth2,
        ("openIdConnect", _) => SecurityScheme::OpenIdConnect,
        ("apiKey", _) => {
            let place = match text("in") {
                "header" => KeyLocation::Header,
                "query" => KeyLocation::Query,
                "cookie" => KeyLocation::Cookie,
                _ => return other(),
            };
            SecurityScheme::ApiKey { name: text("name").to_owned(), place }
        }
        _ => other(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use url::Url;

    use super::*;

    #[test]
    fn an_operation_says_more_than_its_document() {
        let root = json!({
            "security": [{ "b": [] }, {}],
            "components": { "securitySchemes": {
                "b": { "type": "http", "scheme": "Bearer" },
                "k": { "type": "apiKey", "in": "header", "name": "X-Key" },
                "d": { "type": "http", "scheme": "digest" },
            } },
        });
        let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let schemes = SecuritySchemes::from_document(library.root().unwrap(), &library, SpecVersion::OpenApi3);
        let shown = |operation: Value| {
            let security = schemes.requirements_of(&operation);
            (serde_json::to_value(security.alternatives).unwrap(), security.public)
        };
        let bearer = json!({ "scheme": "b", "kind": "bearer" });
        assert_eq!(shown(json!({})), (json!([[bearer], []]), false));
        assert_eq!(shown(json!({ "security": [] })), (json!([]), true));
        let key =
            json!({ "scheme": "k", "kind": { "api_key": { "name": "X-Key", "place": "header" } }, "scopes": ["r"] });
        assert_eq!(shown(json!({ "security": [{ "k": ["r"] }] })), (json!([[key]]), false));
        let other = json!({ "scheme": "d", "kind": { "other": "http digest" } });
        assert_eq!(shown(json!({ "security": [{ "d": [] }] })), (json!([[other]]), false));
        assert!(schemes.is_credential("header", "x-key") && !schemes.is_credential("query", "X-Key"));
    }
}
