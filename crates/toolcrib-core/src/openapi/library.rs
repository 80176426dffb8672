//! A document and those it refers to, each under its address, and the way from a `$ref` to what it names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

use super::convert::escaped;
use super::keys::Keys;
use crate::text::shown_short;

/// The documents that were read, and those that could not be, with the reason.
#[derive(Debug)]
pub struct Library {
    root: Url,
    documents: BTreeMap<String, Result<Value, String>>,
    /// Made when somebody first refers to one.
    anchors: OnceLock<Anchors>,
}

/// Pointers, by the address of a document and the name of an anchor in it.
type Anchors = HashMap<(String, String), String>;

/// A value, and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) value: &'a Value,
    /// The address of its document.
    pub(super) place: &'a str,
}

/// How many references may be followed to find one value, those on the way of its pointers included: with a limit on
/// their nesting alone, two on each way would double the work at every level.
const MOST_HOPS: usize = 32;
/// Longer references lead nowhere. Everything that names a value pays for the length of the way to it.
const MAX_REFERENCE_LEN: usize = 2_000;

impl Library {
    /// A library of one document. Files are addressed by `file://`.
    pub fn new(root: Url, document: Value) -> Library {
        let documents = BTreeMap::from([(root.to_string(), Ok(document))]);
        Library { root, documents, anchors: OnceLock::new() }
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
        find_references(document, Keys::Keywords, &mut |reference| {
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

    pub(super) fn root(&self) -> Option<At<'_>> {
        let (place, document) = self.documents.get_key_value(self.root.as_str())?;
        Some(At { value: document.as_ref().ok()?, place })
    }

    /// What a reference names, through further references where that is one itself.
    pub(super) fn follow<'a>(&'a self, mut at: At<'a>) -> Result<At<'a>, String> {
        let mut hops = MOST_HOPS;
        while let Some(reference) = reference(at.value) {
            hops = hops.checked_sub(1).ok_or("its `$ref`s lead to one another without end")?;
            at = self.target_within(reference, at.place, &mut hops)?.0;
        }
        Ok(at)
    }

    /// What one reference names, and the whole address of that.
    pub(super) fn target<'a>(&'a self, reference: &str, place: &'a str) -> Result<(At<'a>, String), String> {
        let mut hops = MOST_HOPS;
        self.target_within(reference, place, &mut hops)
    }

    fn target_within<'a>(
        &'a self,
        reference: &str,
        place: &'a str,
        hops: &mut usize,
    ) -> Result<(At<'a>, String), String> {
        if reference.len() > MAX_REFERENCE_LEN {
            let begins = shown_short(&reference[..reference.floor_char_boundary(200)], 120);
            return Err(format!("`$ref` to `{begins}`, which is longer than {MAX_REFERENCE_LEN} bytes"));
        }
        let shown = || shown_short(reference, 120);
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
            pointer if pointer.is_empty() || pointer.starts_with('/') => self.pointed(place, pointer, hops),
            anchor => {
                let key = (place.to_owned(), anchor.to_owned());
                self.anchors().get(&key).and_then(|pointer| self.pointed(place, pointer, hops))
            }
        };
        match found {
            Some(at) => Ok((at, format!("{place}#{pointer}"))),
            None => Err(format!("`$ref` to `{}`, which is not there", shown())),
        }
    }

    /// Where a pointer leads, through references on its way.
    fn pointed<'a>(&'a self, place: &'a str, pointer: &str, hops: &mut usize) -> Option<At<'a>> {
        let mut at = At { value: self.documents.get(place)?.as_ref().ok()?, place };
        for token in pointer.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let step = |value: &'a Value| match value {
                Value::Object(fields) => fields.get(&token),
                Value::Array(items) => items.get(token.parse::<usize>().ok()?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            };
            at = match step(at.value) {
                Some(value) => At { value, ..at },
                None => {
                    *hops = hops.checked_sub(1)?;
                    let (target, _) = self.target_within(reference(at.value)?, at.place, hops).ok()?;
                    At { value: step(target.value)?, ..target }
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

pub(super) fn reference(value: &Value) -> Option<&str> {
    value.get("$ref").and_then(Value::as_str)
}

fn find_references(value: &Value, keys: Keys, found: &mut impl FnMut(&str)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    // What looks like a reference in there is somebody's data.
                    (Keys::Data, _, _) => {}
                    (Keys::Keywords | Keys::Names, "$ref", Value::String(reference)) => found(reference),
                    (Keys::Keywords | Keys::Names, _, _) => find_references(value, keys.below(key), found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| find_references(item, keys.each(), found)),
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
                pointer.push_str(&escaped(key));
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

    fn library() -> Library {
        let root = json!({
            "a": { "$ref": "#/b" }, "b": { "$ref": "other.json#/c%20d" }, "loop": { "$ref": "#/loop" },
            "gone": { "$ref": "gone.json#/x" }, "x~y": 1, "far": { "$ref": "https://elsewhere.example/x.json" },
            "named": { "$ref": "#tree" }, "alias": { "$ref": "#/deep" }, "through": { "$ref": "#/alias/t/inner/1" }, "deep": { "t": { "$anchor": "tree", "inner": [1, 2] } }, "properties": { "default": { "$ref": "https://far.example/y.json" } },
        });
        let mut library = Library::new(Url::parse("http://h/api/root.json").unwrap(), root);
        library.add(&Url::parse("http://h/api/other.json").unwrap(), Ok(json!({ "c d": { "end": true } })));
        library.add(&Url::parse("http://h/api/gone.json").unwrap(), Err("404 Not Found".into()));
        library
    }

    #[test]
    fn references_lead_through_documents() {
        let library = library();
        let root = library.root().unwrap();
        let follow = |key: &str| {
            library.follow(At { value: &root.value[key], ..root }).map(|at| (at.value.to_string(), at.place.to_owned()))
        };
        assert_eq!(follow("a").unwrap(), (r#"{"end":true}"#.to_owned(), "http://h/api/other.json".to_owned()));
        assert_eq!(follow("named").unwrap().0, r#"{"$anchor":"tree","inner":[1,2]}"#);
        assert_eq!(follow("through").unwrap().0, "2", "a reference on the way is followed");
        assert_eq!(follow("loop").unwrap_err(), "its `$ref`s lead to one another without end");
        assert_eq!(follow("gone").unwrap_err(), "`$ref` to `gone.json#/x`: 404 Not Found");
        assert_eq!(library.target("#/nowhere", root.place).unwrap_err(), "`$ref` to `#/nowhere`, which is not there");
        assert_eq!(library.target("#/x~0y", root.place).unwrap().0.value, &json!(1));
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
        let library = Library::new(Url::parse("http://h/").unwrap(), root.into());
        let root = library.root().unwrap();
        let follow = |level: usize| library.follow(At { value: &root.value[format!("P{level}")], ..root });
        assert!(follow(0).is_err());
        assert!(follow(LEVELS - 2).is_ok_and(|at| at.value.get("y").is_some()));
    }

    #[test]
    fn long_references_lead_nowhere_and_long_ways_have_no_anchors() {
        let long = "k".repeat(3_000);
        let root = json!({ long.as_str(): { "$anchor": "far" }, "near": { "$anchor": "near" } });
        let library = Library::new(Url::parse("http://h/").unwrap(), root);
        let target = |reference: &str| library.target(reference, "http://h/").map(|(_, address)| address);
        assert!(target(&format!("#/{long}")).unwrap_err().ends_with("which is longer than 2000 bytes"));
        assert_eq!(target("#far").unwrap_err(), "`$ref` to `#far`, which is not there");
        assert_eq!(target("#near").unwrap(), "http://h/#near");
    }

    #[test]
    fn what_is_still_to_be_read_is_known() {
        let library = library();
        let missing: Vec<String> = library.missing().iter().map(Url::to_string).collect();
        assert_eq!(missing, ["https://elsewhere.example/x.json", "https://far.example/y.json"]);
        let from = |address: &str| library.missing_from(&Url::parse(address).unwrap()).len();
        assert_eq!(
            ["root", "other", "gone", "unknown"].map(|name| from(&format!("http://h/api/{name}.json"))),
            [2, 0, 0, 0]
        );
    }
}
