//! A document and those it refers to, each under its address, and the way from a `$ref` to what it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use super::convert::escape_pointer_token;
use super::key_kind::KeyKind;
use crate::text::sanitize_truncated;

/// The documents that were read, and those that could not be, with the reason.
#[derive(Debug)]
pub struct DocumentSet {
    root: Url,
    documents: BTreeMap<String, Result<Value, String>>,
    /// Made when somebody first refers to one.
    anchors: OnceLock<Anchors>,
}

/// Pointers, by the address of a document and the name of an anchor in it.
type Anchors = HashMap<(String, String), String>;

/// A value, and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRef<'a> {
    pub(super) value: &'a Value,
    /// The address of its document.
    pub(super) document_url: &'a str,
}

/// How many references may be followed to find one value, those on the way of its pointers included: with a limit on
/// their nesting alone, two on each way would double the work at every level.
const MAX_REFERENCE_HOPS: usize = 32;
/// Longer references lead nowhere. Everything that names a value pays for the length of the way to it.
const MAX_REFERENCE_LEN: usize = 2_000;

impl DocumentSet {
    /// A library of one document. Files are addressed by `file://`.
    pub fn new(root: Url, document: Value) -> DocumentSet {
        let documents = BTreeMap::from([(root.to_string(), Ok(document))]);
        DocumentSet { root, documents, anchors: OnceLock::new() }
    }

    pub fn add(&mut self, address: &Url, document: Result<Value, String>) {
        self.documents.insert(address.to_string(), document);
    }

    /// The documents that are referred to and have not been added yet.
    pub fn missing(&self) -> BTreeSet<Url> {
        self.documents.keys().filter_map(|place| Url::parse(place).ok()).flat_map(|at| self.missing_from(&at)).collect()
    }

    /// Those of them that the document at this address refers to.
    pub fn missing_from(&self, address: &Url) -> BTreeSet<Url> {
        let mut missing = BTreeSet::new();
        let Some(Ok(document)) = self.documents.get(address.as_str()) else { return missing };
        find_references(document, KeyKind::Keywords, &mut |reference| {
            let place = reference.split('#').next().unwrap_or_default();
            if !place.is_empty()
                && let Ok(target) = address.join(place)
                && !self.documents.contains_key(target.as_str())
            {
                missing.insert(target);
            }
        });
        missing
    }

    pub(super) fn root_url(&self) -> &Url {
        &self.root
    }

    pub(super) fn root(&self) -> Option<NodeRef<'_>> {
        let (place, document) = self.documents.get_key_value(self.root.as_str())?;
        Some(NodeRef { value: document.as_ref().ok()?, document_url: place })
    }

    /// What a reference names, through further references where that is one itself.
    pub(super) fn resolve<'a>(&'a self, mut at: NodeRef<'a>) -> Result<NodeRef<'a>, String> {
        let mut hops = MAX_REFERENCE_HOPS;
        while let Some(reference) = reference_target(at.value) {
            hops = hops.checked_sub(1).ok_or("its `$ref`s lead to one another without end")?;
            at = self.resolve_reference_within(reference, at.document_url, &mut hops)?.0;
        }
        Ok(at)
    }

    /// What one reference names, and the whole address of that.
    pub(super) fn resolve_reference<'a>(
        &'a self,
        reference: &str,
        place: &'a str,
    ) -> Result<(NodeRef<'a>, String), String> {
        let mut hops = MAX_REFERENCE_HOPS;
        self.resolve_reference_within(reference, place, &mut hops)
    }

    fn resolve_reference_within<'a>(
        &'a self,
        reference: &str,
        place: &'a str,
        hops: &mut usize,
    ) -> Result<(NodeRef<'a>, String), String> {
        if reference.len() > MAX_REFERENCE_LEN {
            let begins = sanitize_truncated(&reference[..reference.floor_char_boundary(200)], 120);
            return Err(format!("`$ref` to `{begins}`, which is longer than {MAX_REFERENCE_LEN} bytes"));
        }
        let shown = || sanitize_truncated(reference, 120);
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let place = if address.is_empty() {
            place
        } else {
            let target = Url::parse(place).and_then(|base| base.join(address));
            let target = target.map_err(|_| format!("`$ref` to `{}`, which is no address", shown()))?;
            match self.documents.get_key_value(target.as_str()) {
                Some((place, Ok(_))) => place,
                Some((_, Err(reason))) => return Err(format!("`$ref` to `{}`: {reason}", shown())),
                None => return Err(format!("`$ref` to `{}`, which was not read", shown())),
            }
        };
        let pointer = percent_decode_str(fragment).decode_utf8_lossy().into_owned();
        let found = match pointer.as_str() {
            pointer if pointer.is_empty() || pointer.starts_with('/') => self.resolve_pointer(place, pointer, hops),
            anchor => {
                let key = (place.to_owned(), anchor.to_owned());
                self.anchors().get(&key).and_then(|pointer| self.resolve_pointer(place, pointer, hops))
            }
        };
        match found {
            Some(at) => Ok((at, format!("{place}#{pointer}"))),
            None => Err(format!("`$ref` to `{}`, which is not there", shown())),
        }
    }

    /// Where a pointer leads, through references on its way.
    fn resolve_pointer<'a>(&'a self, place: &'a str, pointer: &str, hops: &mut usize) -> Option<NodeRef<'a>> {
        let mut at = NodeRef { value: self.documents.get(place)?.as_ref().ok()?, document_url: place };
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let step = |value: &'a Value| match value {
                Value::Object(fields) => fields.get(&token),
                Value::Array(items) => items.get(token.parse::<usize>().ok()?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            at = match step(at.value) {
                Some(value) => NodeRef { value, ..at },
                None => {
                    *hops = hops.checked_sub(1)?;
                    let (target, _) =
                        self.resolve_reference_within(reference_target(at.value)?, at.document_url, hops).ok()?;
                    NodeRef { value: step(target.value)?, ..target }
                }
            };
        }
        Some(at)
    }

    fn anchors(&self) -> &Anchors {
        self.anchors.get_or_init(|| {
            let mut found = Anchors::new();
            for (place, document) in &self.documents {
                if let Ok(document) = document {
                    find_anchors(document, place, &mut String::new(), &mut found);
                }
            }
            found
        })
    }
}

pub(super) fn reference_target(value: &Value) -> Option<&str> {
    value.get("$ref").and_then(Value::as_str)
}

fn find_references(value: &Value, keys: KeyKind, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    // What looks like a reference in there is somebody's data.
                    (KeyKind::Data, _, _) => {}
                    (KeyKind::Keywords | KeyKind::Names, "$ref", Value::String(reference)) => found(reference),
                    (KeyKind::Keywords | KeyKind::Names, _, _) => find_references(value, keys.under_key(key), found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_references(item, keys.in_array(), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Where the schemas stand that call themselves by an `$anchor`, by their documents and names. What stands below a longer
/// way than references may have is left out: each anchor keeps its whole pointer.
fn find_anchors(value: &Value, place: &str, pointer: &mut String, found: &mut Anchors) {
    match value {
        _ if pointer.len() > MAX_REFERENCE_LEN => {}
        Value::Object(fields) => {
            for key in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = fields.get(key).and_then(Value::as_str) {
                    found.entry((place.to_owned(), name.to_owned())).or_insert_with(|| pointer.clone());
                }
            }
            for (key, value) in fields {
                let length = pointer.len();
                pointer.push('/');
                pointer.push_str(&escape_pointer_token(key));
                find_anchors(value, place, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let length = pointer.len();
                pointer.push_str(&format!("/{index}"));
                find_anchors(value, place, pointer, found);
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
        let mut library = DocumentSet::new(Url::parse("http://h/api/root.json").unwrap(), root);
        library.add(&Url::parse("http://h/api/other.json").unwrap(), Ok(json!({ "c d": { "end": true } })));
        library.add(&Url::parse("http://h/api/gone.json").unwrap(), Err("404 Not Found".into()));
        library
    }

    #[test]
    fn references_lead_through_documents() {
        let library = document_set();
        let root = library.root().unwrap();
        let follow = |key: &str| {
            library
                .resolve(NodeRef { value: &root.value[key], ..root })
                .map(|at| (at.value.to_string(), at.document_url.to_owned()))
        };
        assert_eq!(follow("a").unwrap(), (r#"{"end":true}"#.to_owned(), "http://h/api/other.json".to_owned()));
        assert_eq!(follow("named").unwrap().0, r#"{"$anchor":"tree","inner":[1,2]}"#);
        assert_eq!(follow("through").unwrap().0, "2", "a reference on the way is followed");
        assert_eq!(follow("loop").unwrap_err(), "its `$ref`s lead to one another without end");
        assert_eq!(follow("gone").unwrap_err(), "`$ref` to `gone.json#/x`: 404 Not Found");
        assert_eq!(
            library.resolve_reference("#/nowhere", root.document_url).unwrap_err(),
            "`$ref` to `#/nowhere`, which is not there"
        );
        assert_eq!(library.resolve_reference("#/x~0y", root.document_url).unwrap().0.value, &json!(1));
    }

    /// Each pointer leads through two references to pointers of the next level: of 30 levels, a billion ways.
    #[test]
    fn references_on_the_way_of_pointers_do_not_multiply() {
        const LEVELS: usize = 30;
        let next = |level: usize| match level {
            LEVELS => json!({ "$ref": "#/V" }),
            _ => json!({ "$ref": format!("#/P{}/x/y", level + 1) }),
        };
        let mut root: serde_json::Map<String, Value> =
            (0..=LEVELS).map(|level| (format!("P{level}"), next(level))).collect();
        let nested = (0..=LEVELS).fold(json!({ "end": true }), |inner, level| json!({ "x": next(level), "y": inner }));
        root.insert("V".into(), nested);
        let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root.into());
        let root = library.root().unwrap();
        let follow = |level: usize| library.resolve(NodeRef { value: &root.value[format!("P{level}")], ..root });
        assert!(follow(0).is_err());
        assert!(follow(LEVELS - 2).is_ok_and(|at| at.value.get("y").is_some()));
    }

    #[test]
    fn long_references_lead_nowhere_and_long_ways_have_no_anchors() {
        let long = "k".repeat(3_000);
        let root = json!({ long.as_str(): { "$anchor": "far" }, "near": { "$anchor": "near" } });
        let library = DocumentSet::new(Url::parse("http://h/").unwrap(), root);
        let target = |reference: &str| library.resolve_reference(reference, "http://h/").map(|(_, address)| address);
        assert!(target(&format!("#/{long}")).unwrap_err().ends_with("which is longer than 2000 bytes"));
        assert_eq!(target("#far").unwrap_err(), "`$ref` to `#far`, which is not there");
        assert_eq!(target("#near").unwrap(), "http://h/#near");
    }

    #[test]
    fn what_is_still_to_be_read_is_known() {
        let library = document_set();
        let missing: Vec<String> = library.missing().iter().map(Url::to_string).collect();
        assert_eq!(missing, ["https://elsewhere.example/x.json", "https://far.example/y.json"]);
        let from = |address: &str| library.missing_from(&Url::parse(address).unwrap()).len();
        assert_eq!(
            ["root", "other", "gone", "unknown"].map(|name| from(&format!("http://h/api/{name}.json"))),
            [2, 0, 0, 0]
        );
    }
}
