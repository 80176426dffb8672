//! Which credentials an operation needs, in the document's own words and in ours.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::convert::{Version, members};
use super::library::{At, Library};
use crate::execution::{Needed, Scheme};
use crate::source::KeyPlace;
use crate::text::shown_short;

#[derive(Debug)]
pub(super) struct Schemes<'a> {
    known: BTreeMap<&'a str, Scheme>,
    /// Place and name of each key, those of headers in small letters: every parameter is looked up here.
    keys: HashSet<(&'static str, String)>,
    common: Option<&'a Value>,
}

/// What an operation says about credentials.
#[derive(Debug, PartialEq)]
pub(super) struct Security {
    pub(super) alternatives: Vec<Vec<Needed>>,
    /// None are needed, in so many words.
    pub(super) public: bool,
}

impl<'a> Schemes<'a> {
    pub(super) fn of(root: At<'a>, library: &'a Library, version: Version) -> Schemes<'a> {
        let nothing = &Value::Null;
        let (holder, key) = match version {
            Version::Two => (root.value, "securityDefinitions"),
            Version::Three => (root.value.get("components").unwrap_or(nothing), "securitySchemes"),
        };
        let known = members(holder, key).map(|(name, value)| {
            let value = library.follow(At { value, ..root }).map_or(nothing, |at| at.value);
            (name.as_str(), scheme(value))
        });
        let known: BTreeMap<&'a str, Scheme> = known.collect();
        let keys = known.values().filter_map(|scheme| match scheme {
            Scheme::ApiKey { name, place: KeyPlace::Header } => Some(("header", name.to_ascii_lowercase())),
            Scheme::ApiKey { name, place: KeyPlace::Query } => Some(("query", name.clone())),
            Scheme::ApiKey { name, place: KeyPlace::Cookie } => Some(("cookie", name.clone())),
            Scheme::Bearer | Scheme::Basic | Scheme::Oauth2 | Scheme::OpenIdConnect | Scheme::Other(_) => None,
        });
        Schemes { keys: keys.collect(), known, common: root.value.get("security") }
    }

    pub(super) fn needed_by(&self, operation: &Value) -> Security {
        let own = operation.get("security");
        let stated = own.or(self.common).and_then(Value::as_array);
        let alternatives = stated.into_iter().flatten().filter_map(Value::as_object).map(|schemes| {
            let needed = schemes.iter().map(|(name, scopes)| Needed {
                scheme: name.clone(),
                kind: self.known.get(name.as_str()).cloned().unwrap_or_else(|| Scheme::Other("undeclared".into())),
                scopes: scopes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
            });
            needed.collect()
        });
        let public = own.and_then(Value::as_array).is_some_and(Vec::is_empty);
        Security { alternatives: alternatives.collect(), public }
    }

    /// Whether the document says how to be let in.
    pub(super) fn any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Whether a parameter is a credential in disguise: agents never see those.
    pub(super) fn is_credential(&self, place: &str, name: &str) -> bool {
        match place {
            "header" => self.keys.contains(&("header", name.to_ascii_lowercase())),
            "query" => self.keys.contains(&("query", name.to_owned())),
            "cookie" => self.keys.contains(&("cookie", name.to_owned())),
            _ => false,
        }
    }
}

fn scheme(value: &Value) -> Scheme {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let other = || Scheme::Other(shown_short(&format!("{} {}", text("type"), text("scheme")), 60));
    match (text("type"), text("scheme").to_ascii_lowercase().as_str()) {
        ("http", "bearer") => Scheme::Bearer,
        ("http", "basic") | ("basic", _) => Scheme::Basic,
        ("oauth2", _) => Scheme::Oauth2,
        ("openIdConnect", _) => Scheme::OpenIdConnect,
        ("apiKey", _) => {
            let place = match text("in") {
                "header" => KeyPlace::Header,
                "query" => KeyPlace::Query,
                "cookie" => KeyPlace::Cookie,
                _ => return other(),
            };
            Scheme::ApiKey { name: text("name").to_owned(), place }
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
        let library = Library::new(Url::parse("http://h/").unwrap(), root);
        let schemes = Schemes::of(library.root().unwrap(), &library, Version::Three);
        let shown = |operation: Value| {
            let security = schemes.needed_by(&operation);
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
