//! A document and the documents it refers to, by URL, and the resolution of `$ref` across them.
//!
//! The connector loads documents until [`DocumentSet::missing`] is empty or its limits are reached, and then converts.
//! Resolving never loads anything: a reference to a document that is not in the set is an error of that reference.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use serde_json::Value;
use toolcrib_core::json::{escape_pointer_token, unescape_pointer_token};
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{LocalReference, reference_text};
use url::Url;

use super::key_kind::KeyKind;

/// Documents by URL, with the reason for each that could not be read.
#[derive(Debug)]
pub struct DocumentSet {
    /// URL of the first document. Also the key of the root document in `documents`.
    root: Url,
    /// By URL without fragment.
    documents: BTreeMap<String, Result<Value, String>>,
    /// Built when a reference to an anchor is first resolved.
    anchors: OnceLock<Anchors>,
}

/// JSON pointers by the URL of a document and the name of an anchor in it.
type Anchors = HashMap<(String, String), String>;

/// A value and the document that contains it, against which its references resolve.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRef<'a> {
    pub(super) value: &'a Value,
    /// URL of the document.
    pub(super) document_url: &'a str,
}

/// Maximum number of references to follow for one value, including those on the path of its pointers. A limit on
/// nesting alone would allow two references per pointer to double the work at every level.
const MAX_REFERENCE_HOPS: usize = 32;
/// Maximum length of a reference. Every value that is named by one keeps a copy of its URL.
const MAX_REFERENCE_LEN: usize = 2_000;

impl DocumentSet {
    /// Creates a set with one document. Files have `file://` URLs.
    pub fn new(root: Url, document: Value) -> DocumentSet {
        let documents = BTreeMap::from([(root.to_string(), Ok(document))]);
        DocumentSet { root, documents, anchors: OnceLock::new() }
    }

    /// Adds a document, or the reason why it could not be read.
    pub fn add(&mut self, url: &Url, document: Result<Value, String>) {
        self.documents.insert(url.to_string(), document);
    }

    /// Returns the documents that are referred to and were not added yet. Sorted, so that they are requested in the
    /// same order each time.
    pub fn missing(&self) -> BTreeSet<Url> {
        self.documents
            .keys()
            .filter_map(|document_url| Url::parse(document_url).ok())
            .flat_map(|url| self.missing_from(&url))
            .collect()
    }

    /// Returns the missing documents that the document at `url` refers to.
    pub fn missing_from(&self, url: &Url) -> BTreeSet<Url> {
        let mut missing = BTreeSet::new();
        let Some(Ok(document)) = self.documents.get(url.as_str()) else { return missing };
        find_references(document, KeyKind::Keywords, &mut |reference| {
            let document_url = reference.split('#').next().unwrap_or_default();
            // A reference that is no valid URL is reported when it is resolved.
            if !document_url.is_empty()
                && let Ok(target) = url.join(document_url)
                && !self.documents.contains_key(target.as_str())
            {
                missing.insert(target);
            }
        });
        missing
    }

    /// Returns the URL of the first document.
    pub(super) fn root_url(&self) -> &Url {
        &self.root
    }

    /// Returns the root of the first document.
    pub(super) fn root(&self) -> Option<NodeRef<'_>> {
        let (document_url, document) = self.documents.get_key_value(self.root.as_str())?;
        Some(NodeRef { value: document.as_ref().ok()?, document_url })
    }

    /// Returns the roots of all documents.
    pub(super) fn roots(&self) -> impl Iterator<Item = NodeRef<'_>> {
        let readable = self.documents.iter().filter_map(|(url, document)| Some((url, document.as_ref().ok()?)));
        readable.map(|(document_url, value)| NodeRef { value, document_url })
    }

    /// Follows a chain of references from `node` to a value that is not a reference.
    pub(super) fn resolve<'a>(&'a self, mut node: NodeRef<'a>) -> Result<NodeRef<'a>, String> {
        let mut hops = MAX_REFERENCE_HOPS;
        while let Some(reference) = reference_text(node.value) {
            hops = hops.checked_sub(1).ok_or("its `$ref`s form a cycle or are nested too deep")?;
            node = self.resolve_reference_within(reference, node.document_url, &mut hops)?.0;
        }
        Ok(node)
    }

    /// Resolves one reference. Returns its target and the absolute URL of it.
    pub(super) fn resolve_reference<'a>(
        &'a self,
        reference: &str,
        document_url: &'a str,
    ) -> Result<(NodeRef<'a>, String), String> {
        let mut hops = MAX_REFERENCE_HOPS;
        self.resolve_reference_within(reference, document_url, &mut hops)
    }

    /// Resolves one reference with at most `hops` further ones on its path.
    fn resolve_reference_within<'a>(
        &'a self,
        reference: &str,
        document_url: &'a str,
        hops: &mut usize,
    ) -> Result<(NodeRef<'a>, String), String> {
        if reference.len() > MAX_REFERENCE_LEN {
            let beginning = sanitize_truncated(&reference[..reference.floor_char_boundary(200)], 120);
            return Err(format!("`$ref` to `{beginning}`, which is longer than {MAX_REFERENCE_LEN} bytes"));
        }
        // Only built for an error.
        let displayed = || sanitize_truncated(reference, 120);
        let (url, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        // A reference without a URL stays within its document.
        let document_url = if url.is_empty() {
            document_url
        } else {
            let target = Url::parse(document_url).and_then(|base| base.join(url));
            let target = target.map_err(|_| format!("`$ref` to `{}`, which is not a valid URL", displayed()))?;
            match self.documents.get_key_value(target.as_str()) {
                Some((document_url, Ok(_))) => document_url,
                Some((_, Err(reason))) => return Err(format!("`$ref` to `{}`: {reason}", displayed())),
                None => return Err(format!("`$ref` to `{}`, which was not loaded", displayed())),
            }
        };
        // The fragment is a JSON pointer or the name of an anchor.
        let target = LocalReference::parse_fragment(fragment).and_then(|target| match target {
            LocalReference::Pointer(pointer) => Some((self.resolve_pointer(document_url, &pointer, hops)?, pointer)),
            LocalReference::Anchor(name) => {
                let key = (document_url.to_owned(), name.into_owned());
                let node = self.resolve_pointer(document_url, self.anchors().get(&key)?, hops)?;
                Some((node, Cow::Owned(key.1)))
            }
        });
        match target {
            Some((node, fragment)) => Ok((node, format!("{document_url}#{fragment}"))),
            None => Err(format!("`$ref` to `{}`, which does not exist", displayed())),
        }
    }

    /// Resolves a JSON pointer. Where a token is missing, follows the reference at that place: some documents point
    /// through references.
    fn resolve_pointer<'a>(&'a self, document_url: &'a str, pointer: &str, hops: &mut usize) -> Option<NodeRef<'a>> {
        // From the root of the document, token by token.
        let mut node = NodeRef { value: self.documents.get(document_url)?.as_ref().ok()?, document_url };
        for token in pointer.split('/').skip(1) {
            let token = unescape_pointer_token(token);
            let step = |value: &'a Value| match value {
                Value::Object(fields) => fields.get(&token),
                Value::Array(items) => items.get(token.parse::<usize>().ok()?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            node = match step(node.value) {
                Some(value) => NodeRef { value, ..node },
                None => {
                    *hops = hops.checked_sub(1)?;
                    // The target may be in another document, where the rest of the pointer continues.
                    let (target, _) =
                        self.resolve_reference_within(reference_text(node.value)?, node.document_url, hops).ok()?;
                    NodeRef { value: step(target.value)?, ..target }
                }
            };
        }
        Some(node)
    }

    /// Returns the anchors of all documents.
    fn anchors(&self) -> &Anchors {
        self.anchors.get_or_init(|| {
            let mut anchors = Anchors::new();
            for (document_url, document) in &self.documents {
                if let Ok(document) = document {
                    find_anchors(document, document_url, &mut String::new(), &mut anchors);
                }
            }
            anchors
        })
    }
}

/// Calls `visit` with every reference of a value.
fn find_references(value: &Value, keys: KeyKind, visit: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    // `$ref` within data is not a reference.
                    (KeyKind::Data, _, _) => {}
                    // Among names too: a map of schemas can itself be a reference.
                    (KeyKind::Keywords | KeyKind::Names, "$ref", Value::String(reference)) => visit(reference),
                    (KeyKind::Keywords | KeyKind::Names, _, _) => find_references(value, keys.under_key(key), visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_references(item, keys.in_array(), visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Collects the pointers of schemas with an `$anchor`. Skips schemas below longer pointers than references may have,
/// since every anchor keeps a copy of its pointer.
fn find_anchors(value: &Value, document_url: &str, pointer: &mut String, anchors: &mut Anchors) {
    match value {
        _ if pointer.len() > MAX_REFERENCE_LEN => {}
        Value::Object(fields) => {
            // Of several anchors with one name, the first counts.
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = fields.get(key).and_then(Value::as_str) {
                    anchors.entry((document_url.to_owned(), name.to_owned())).or_insert_with(|| pointer.clone());
                }
            }
            for (key, value) in fields {
                let length = pointer.len();
                pointer.push('/');
                pointer.push_str(&escape_pointer_token(key));
                find_anchors(value, document_url, pointer, anchors);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let length = pointer.len();
                pointer.push_str(&format!("/{index}"));
                find_anchors(value, document_url, pointer, anchors);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document_set() -> DocumentSet {
        let root = json!({
            "a": { "$ref": "#/b" }, "b": { "$ref": "other.json#/c%20d" }, "loop": { "$ref": "#/loop" },
            "gone": { "$ref": "gone.json#/x" }, "x~y": 1, "far": { "$ref": "https://elsewhere.example/x.json" },
            "named": { "$ref": "#tree" }, "alias": { "$ref": "#/deep" }, "through": { "$ref": "#/alias/t/inner/1" }, "deep": { "t": { "$anchor": "tree", "inner": [1, 2] } }, "properties": { "default": { "$ref": "https://far.example/y.json" } },
        });
        let mut documents = DocumentSet::new(Url::parse("http://h/api/root.json").unwrap(), root);
        documents.add(&Url::parse("http://h/api/other.json").unwrap(), Ok(json!({ "c d": { "end": true } })));
        documents.add(&Url::parse("http://h/api/gone.json").unwrap(), Err("404 Not Found".into()));
        documents
    }

    #[test]
    fn references_resolve_across_documents() {
        let documents = document_set();
        let root = documents.root().unwrap();
        let resolve_key = |key: &str| {
            documents
                .resolve(NodeRef { value: &root.value[key], ..root })
                .map(|node| (node.value.to_string(), node.document_url.to_owned()))
        };
        assert_eq!(resolve_key("a").unwrap(), (r#"{"end":true}"#.to_owned(), "http://h/api/other.json".to_owned()));
        assert_eq!(resolve_key("named").unwrap().0, r#"{"$anchor":"tree","inner":[1,2]}"#);
        assert_eq!(resolve_key("through").unwrap().0, "2", "a reference on the way is followed");
        assert_eq!(resolve_key("loop").unwrap_err(), "its `$ref`s form a cycle or are nested too deep");
        assert_eq!(resolve_key("gone").unwrap_err(), "`$ref` to `gone.json#/x`: 404 Not Found");
        assert_eq!(
            documents.resolve_reference("#/nowhere", root.document_url).unwrap_err(),
            "`$ref` to `#/nowhere`, which does not exist"
        );
        assert_eq!(documents.resolve_reference("#/x~0y", root.document_url).unwrap().0.value, &json!(1));
    }

    /// Each pointer leads through two references to pointers of the next level: 30 levels make a billion paths.
    #[test]
    fn references_within_pointers_do_not_multiply() {
        const LEVELS: usize = 30;
        let next = |level: usize| match level {
            LEVELS => json!({ "$ref": "#/V" }),
            _ => json!({ "$ref": format!("#/P{}/x/y", level + 1) }),
        };
        let mut root: serde_json::Map<String, Value> =
            (0..=LEVELS).map(|level| (format!("P{level}"), next(level))).collect();
        let nested = (0..=LEVELS).fold(json!({ "end": true }), |inner, level| json!({ "x": next(level), "y": inner }));
        root.insert("V".into(), nested);
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root.into());
        let root = documents.root().unwrap();
        let resolve_key = |level: usize| documents.resolve(NodeRef { value: &root.value[format!("P{level}")], ..root });
        assert!(resolve_key(0).is_err());
        assert!(resolve_key(LEVELS - 2).is_ok_and(|node| node.value.get("y").is_some()));
    }

    #[test]
    fn long_references_and_deep_anchors_are_ignored() {
        let long = "k".repeat(3_000);
        let root = json!({ long.as_str(): { "$anchor": "far" }, "near": { "$anchor": "near" } });
        let documents = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let target = |reference: &str| documents.resolve_reference(reference, "http://h/").map(|(_, url)| url);
        assert!(target(&format!("#/{long}")).unwrap_err().ends_with("which is longer than 2000 bytes"));
        assert_eq!(target("#far").unwrap_err(), "`$ref` to `#far`, which does not exist");
        assert_eq!(target("#near").unwrap(), "http://h/#near");
    }

    #[test]
    fn missing_documents_are_listed() {
        let documents = document_set();
        let missing: Vec<String> = documents.missing().iter().map(Url::to_string).collect();
        assert_eq!(missing, ["https://elsewhere.example/x.json", "https://far.example/y.json"]);
        let from = |url: &str| documents.missing_from(&Url::parse(url).unwrap()).len();
        assert_eq!(
            ["root", "other", "gone", "unknown"].map(|name| from(&format!("http://h/api/{name}.json"))),
            [2, 0, 0, 0]
        );
    }
}
