//! Two schemas side by side, node by node. A node is looked at once with each partner, so cycles end and sharing is cheap.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::keywords::{self, types};
use super::{Allowance, Class, Findings};
use crate::text::shown_short;

const DEEPEST: usize = 48;
const MOST_REFERENCES: usize = 16;

/// Whether a schema is about what a tool takes or what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

impl Side {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Side::Input => "input",
            Side::Output => "output",
        }
    }
}

pub(super) fn compare_schemas(
    old: &Value,
    new: &Value,
    side: Side,
    allowance: &mut Allowance,
    findings: &mut Findings,
) {
    let mut walk = Walk { old_root: old, new_root: new, side, allowance, findings, seen: HashSet::new(), full: false };
    walk.node(old, new, &Place::default(), 0);
}

/// Where in the schema: `filter.state`, `labels[]`; nothing at its root.
#[derive(Debug, Clone, Default)]
pub(super) struct Place(String);

impl Place {
    fn field(&self, name: &str) -> Place {
        let dot = if self.0.is_empty() { "" } else { "." };
        Place(shown_short(&format!("{}{dot}{}", self.0, shown_short(name, 60)), 120))
    }

    fn items(&self) -> Place {
        Place(format!("{}[]", self.0))
    }
}

pub(super) struct Walk<'a, 'b> {
    old_root: &'a Value,
    new_root: &'a Value,
    side: Side,
    allowance: &'b mut Allowance,
    findings: &'b mut Findings,
    /// Pairs of nodes that were looked at, by their addresses: references lead to the same ones again.
    seen: HashSet<(*const Value, *const Value)>,
    /// Something was left out, and that was said.
    full: bool,
}

impl<'a> Walk<'a, '_> {
    fn node(&mut self, old: &'a Value, new: &'a Value, at: &Place, depth: usize) {
        if depth > DEEPEST || self.allowance.0 == 0 {
            if !std::mem::replace(&mut self.full, true) {
                self.tell(Class::Other, at, "is too large to be compared in full", |place| {
                    format!("`{place}` is too large to be compared in full")
                });
            }
            return;
        }
        self.allowance.0 -= 1;
        if !self.seen.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
            return;
        }
        let (old_target, new_target) = (resolved(self.old_root, old), resolved(self.new_root, new));
        if !std::ptr::eq(old_target, old) || !std::ptr::eq(new_target, new) {
            self.text(members(old), members(new), at);
            if !self.seen.insert((std::ptr::from_ref(old_target), std::ptr::from_ref(new_target))) {
                return;
            }
        }
        match (old_target, new_target) {
            (Value::Bool(false), Value::Bool(false)) => {}
            (Value::Bool(false), _) => {
                self.tell(Class::Widened, at, "takes more", |p| format!("`{p}` takes something now"))
            }
            (_, Value::Bool(false)) => {
                self.tell(Class::Breaking, at, "takes nothing any more", |p| format!("`{p}` takes nothing any more"));
            }
            (old, new) => {
                let (old_ways, new_ways) = (ways(self.old_root, old), ways(self.new_root, new));
                match (&old_ways[..], &new_ways[..]) {
                    ([old], [new]) => self.one(members(old), members(new), at, depth),
                    _ => {
                        self.text(members(old), members(new), at);
                        self.several(&old_ways, &new_ways, at, depth);
                    }
                }
            }
        }
    }

    /// Alternatives find each other: those that are the same, then those of the same type.
    fn several(&mut self, old: &[&'a Value], new: &[&'a Value], at: &Place, depth: usize) {
        let mut free: Vec<&'a Value> = Vec::new();
        let mut left: Vec<&'a Value> = old.to_vec();
        let mut matched = 0;
        for way in new.iter().take(MOST_WAYS) {
            match left.iter().position(|other| std::ptr::eq(*other, *way) || other == way) {
                Some(position) => {
                    let other = left.remove(position);
                    matched += 1;
                    // The same words may refer to what changed.
                    self.node(other, way, at, depth + 1);
                }
                None => free.push(way),
            }
        }
        let mut gained = Vec::new();
        for way in free {
            let target = resolved(self.new_root, way);
            let same_type = |other: &&'a Value| types(resolved(self.old_root, other)) == types(target);
            match left.iter().position(same_type) {
                Some(position) => {
                    let other = left.remove(position);
                    matched += 1;
                    self.node(other, way, at, depth + 1);
                }
                None => gained.push(types(target)),
            }
        }
        let lost: Vec<_> = left.into_iter().map(|way| types(resolved(self.old_root, way))).collect();
        let named = |ways: &[Option<BTreeSet<&str>>]| -> String {
            let names: BTreeSet<&str> = ways
                .iter()
                .flat_map(|types| types.iter().flatten().copied().chain(types.is_none().then_some("other values")))
                .collect();
            names.into_iter().collect::<Vec<_>>().join(", ")
        };
        if matched == 0 && !lost.is_empty() && !gained.is_empty() {
            let (lost, gained) = (named(&lost), named(&gained));
            self.tell(Class::Breaking, at, &format!("{lost} became {gained}"), |p| {
                format!("`{p}`: {lost} became {gained}")
            });
            return;
        }
        if !lost.is_empty() {
            let lost = named(&lost);
            self.tell(Class::Narrowed, at, &format!("no longer takes {lost}"), |p| {
                format!("`{p}` no longer takes {lost}")
            });
        }
        if !gained.is_empty() {
            let gained = named(&gained);
            self.tell(Class::Widened, at, &format!("also takes {gained}"), |p| format!("`{p}` also takes {gained}"));
        }
    }

    fn one(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, at: &Place, depth: usize) {
        self.text(old, new, at);
        let (side, findings) = (self.side, &mut *self.findings);
        keywords::compare(old, new, &mut |class, note| findings.add(class, keywords::placed(side, &at.0, &note)));
        self.fields(old, new, at, depth);
        self.below("items", old, new, &at.items(), depth);
        self.additional(old, new, at, depth);
        for keyword in ["prefixItems", "allOf"] {
            self.rows(keyword, old, new, at, depth);
        }
        for keyword in ["anyOf", "oneOf"] {
            match (row(old, keyword), row(new, keyword)) {
                ([], []) => {}
                ([], _) => self.tell(Class::Narrowed, at, &format!("`{keyword}` was added"), |p| {
                    format!("`{p}`: `{keyword}` was added")
                }),
                (_, []) => self.tell(Class::Widened, at, &format!("`{keyword}` was dropped"), |p| {
                    format!("`{p}`: `{keyword}` was dropped")
                }),
                (before, after) => {
                    let some = |ways: &'a [Value]| ways.iter().take(MOST_WAYS).collect::<Vec<_>>();
                    self.several(&some(before), &some(after), at, depth);
                }
            }
        }
    }

    fn text(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, at: &Place) {
        for keyword in ["title", "description"] {
            if old.get(keyword) != new.get(keyword) {
                let of = if at.0.is_empty() { format!("its {} schema", self.side.as_str()) } else { self.called(at) };
                self.findings.add(Class::Text, format!("the {keyword} of {of} changed"));
            }
        }
    }

    /// The fields of an object: which there are, which must be there, and each of those that stayed.
    fn fields(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, at: &Place, depth: usize) {
        let (before, after) = (fields(old), fields(new));
        let (must_before, must_after) = (required(old), required(new));
        let names = |fields: &BTreeMap<&'a str, &'a Value>, must: &BTreeSet<&'a str>| -> BTreeSet<&'a str> {
            fields.keys().copied().chain(must.iter().copied()).collect()
        };
        let (known, wanted) = (names(&before, &must_before), names(&after, &must_after));
        let lost: Vec<&str> = known.difference(&wanted).copied().collect();
        let gained: Vec<&str> = wanted.difference(&known).copied().collect();
        let input = self.side == Side::Input;
        if let ([from], [to]) = (&lost[..], &gained[..])
            && before.get(from).is_some_and(|old| after.get(to) == Some(old))
            && must_before.contains(from) == must_after.contains(to)
        {
            let class = if input { Class::Breaking } else { Class::Narrowed };
            let (from, to) = (at.field(from), at.field(to));
            self.findings.add(class, format!("{}`{}` became `{}`", self.output(), from.0, to.0));
        } else {
            for name in lost {
                let class = if input { Class::Breaking } else { Class::Narrowed };
                self.findings.add(class, format!("{}lost `{}`", self.output(), at.field(name).0));
            }
            for name in gained {
                let (class, how) = match (input, must_after.contains(name)) {
                    (true, true) => (Class::Breaking, "a required "),
                    (true, false) => (Class::Widened, "an optional "),
                    (false, _) => (Class::Widened, ""),
                };
                self.findings.add(class, format!("{}gained {how}`{}`", self.output(), at.field(name).0));
            }
        }
        for name in known.intersection(&wanted) {
            let place = at.field(name);
            match (must_before.contains(name), must_after.contains(name)) {
                (false, true) => {
                    let class = if input { Class::Breaking } else { Class::Widened };
                    self.findings.add(class, format!("{} became required", self.called(&place)));
                }
                (true, false) => {
                    let class = if input { Class::Widened } else { Class::Narrowed };
                    self.findings.add(class, format!("{} became optional", self.called(&place)));
                }
                (true, true) | (false, false) => {}
            }
            if let (Some(old), Some(new)) = (before.get(name), after.get(name)) {
                self.node(old, new, &place, depth + 1);
            }
        }
    }

    /// A schema below a keyword, which takes anything where it is missing.
    fn below(
        &mut self,
        keyword: &str,
        old: &'a Map<String, Value>,
        new: &'a Map<String, Value>,
        at: &Place,
        depth: usize,
    ) {
        match (old.get(keyword), new.get(keyword)) {
            (None, None) => {}
            (Some(old), Some(new)) => self.node(old, new, at, depth + 1),
            (None, Some(new)) if takes_anything(new) => {}
            (Some(old), None) if takes_anything(old) => {}
            (None, Some(_)) => {
                self.tell(Class::Narrowed, at, "takes less", |p| format!("`{p}` takes less than anything now"))
            }
            (Some(_), None) => self.tell(Class::Widened, at, "takes anything", |p| format!("`{p}` takes anything now")),
        }
    }

    fn additional(&mut self, old: &'a Map<String, Value>, new: &'a Map<String, Value>, at: &Place, depth: usize) {
        let keyword = "additionalProperties";
        let closed = |schema: &Map<String, Value>| schema.get(keyword) == Some(&Value::Bool(false));
        match (closed(old), closed(new)) {
            (true, true) => {}
            (false, true) => self.tell(Class::Narrowed, at, "takes no fields but those it names any more", |p| {
                format!("`{p}` takes no fields but those it names any more")
            }),
            (true, false) => self.tell(Class::Widened, at, "takes fields beyond those it names", |p| {
                format!("`{p}` takes fields beyond those it names")
            }),
            (false, false) => self.below(keyword, old, new, &at.field("*"), depth),
        }
    }

    /// Schemas in a row, each against its counterpart.
    fn rows(
        &mut self,
        keyword: &str,
        old: &'a Map<String, Value>,
        new: &'a Map<String, Value>,
        at: &Place,
        depth: usize,
    ) {
        let (before, after) = (row(old, keyword), row(new, keyword));
        for (old, new) in before.iter().zip(after) {
            self.node(old, new, at, depth + 1);
        }
        if before.len() != after.len() {
            let class = if before.len() < after.len() { Class::Narrowed } else { Class::Widened };
            self.tell(class, at, &format!("its `{keyword}` changed"), |p| format!("`{p}`: its `{keyword}` changed"));
        }
    }

    fn tell(&mut self, class: Class, at: &Place, whole: &str, part: impl Fn(&str) -> String) {
        let note = match (at.0.is_empty(), self.side) {
            (true, Side::Input) => whole.to_owned(),
            (true, Side::Output) => format!("its output {whole}"),
            (false, Side::Input) => part(&at.0),
            (false, Side::Output) => format!("its output: {}", part(&at.0)),
        };
        self.findings.add(class, note);
    }

    fn called(&self, at: &Place) -> String {
        match self.side {
            Side::Input => format!("`{}`", at.0),
            Side::Output => format!("`{}` in its output", at.0),
        }
    }

    fn output(&self) -> &'static str {
        match self.side {
            Side::Input => "",
            Side::Output => "its output ",
        }
    }
}

/// Alternatives beyond these are not looked at.
const MOST_WAYS: usize = 64;

/// The alternatives of a schema that is nothing but alternatives; else the schema itself.
fn ways<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    const BESIDE: [&str; 7] = ["anyOf", "oneOf", "title", "description", "default", "examples", "$defs"];
    let keywords = members(schema);
    let alternatives = match (row(keywords, "anyOf"), row(keywords, "oneOf")) {
        ([], ways) | (ways, []) => ways,
        _ => &[],
    };
    match alternatives {
        _ if !keywords.keys().all(|keyword| BESIDE.contains(&keyword.as_str())) => vec![schema],
        [] => vec![schema],
        [only] => vec![resolved(root, only)],
        several => several.iter().take(MOST_WAYS).collect(),
    }
}

fn row<'a>(schema: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// What a local reference means; the reference itself when it leads nowhere.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    for _ in 0..MOST_REFERENCES {
        let Some(reference) = at.get("$ref").and_then(Value::as_str) else { return at };
        let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else { return at };
        at = target;
    }
    at
}

fn takes_anything(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

/// The keywords of a schema; none for `true`, which says nothing.
fn members(schema: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    schema.as_object().unwrap_or(&NONE)
}

fn fields(schema: &Map<String, Value>) -> BTreeMap<&str, &Value> {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.map(|(name, schema)| (name.as_str(), schema)).collect()
}

fn required(schema: &Map<String, Value>) -> BTreeSet<&str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}
