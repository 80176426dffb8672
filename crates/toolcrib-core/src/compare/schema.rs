//! Two schemas side by side, node by node. A node is looked at once with each partner, so cycles end and sharing is cheap.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::keywords::{self, says_nothing_of_values};
use super::ways::{Keywords, Layers, Way, row, ways, ways_of_any};
use super::{Allowance, Class, Findings};
use crate::text::shown_short;

const DEEPEST: usize = 48;
/// Of the names of types, which come from outside.
const LONGEST_NAMES: usize = 80;

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
    let mut walk = Walk {
        old_root: old,
        new_root: new,
        side,
        allowance,
        findings,
        seen: HashSet::new(),
        seen_ways: HashSet::new(),
        full: false,
    };
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
    /// The same for pairs of ways, which a reference may lead to beside words of its own.
    seen_ways: HashSet<(*const Keywords, *const Keywords, Option<&'a str>, Option<&'a str>)>,
    /// Something was left out, and that was said.
    full: bool,
}

impl<'a> Walk<'a, '_> {
    fn node(&mut self, old: &'a Value, new: &'a Value, at: &Place, depth: usize) {
        if depth > DEEPEST || !self.allowance.spend(1) {
            return self.too_large(at);
        }
        if !self.seen.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
            return;
        }
        let old_ways = ways(self.old_root, old, self.allowance);
        let new_ways = ways(self.new_root, new, self.allowance);
        if let (Some(old), Some(new)) = (Layers::of(self.old_root, old), Layers::of(self.new_root, new)) {
            self.aside(&old, &new, at);
        }
        self.ways(old_ways, new_ways, at, depth);
    }

    fn too_large(&mut self, at: &Place) {
        if !std::mem::replace(&mut self.full, true) {
            self.tell(Class::Other, at, "is too large to be compared in full");
        }
    }

    fn ways(&mut self, old: Vec<Way<'a>>, new: Vec<Way<'a>>, at: &Place, depth: usize) {
        match (&old[..], &new[..]) {
            ([], []) => {}
            ([], _) => self.tell(Class::Widened, at, "takes something now"),
            (_, []) => self.tell(Class::Breaking, at, "takes nothing any more"),
            ([one], [other]) => self.pair(one, other, at, depth),
            _ => self.several(old, new, at, depth),
        }
    }

    /// Ways find each other: those that say the same or are called the same, then those of the same type.
    fn several(&mut self, old: Vec<Way<'a>>, new: Vec<Way<'a>>, at: &Place, depth: usize) {
        let takes_any = |ways: &[Way<'a>]| ways.iter().any(|way| way.kind.is_none() && way.is_free());
        match (takes_any(&old), takes_any(&new)) {
            (true, true) => return,
            (true, false) => return self.narrowed_to(&new, at),
            (false, true) => return self.tell(Class::Widened, at, "takes any type now"),
            (false, false) => {}
        }
        let texts = |ways: &[Way<'a>], allowance: &mut Allowance| -> Vec<String> {
            ways.iter().map(|way| way.text(allowance)).collect()
        };
        let (old_texts, new_texts) = (texts(&old, self.allowance), texts(&new, self.allowance));
        let (mut free_old, mut free_new): (Vec<usize>, Vec<usize>) =
            ((0..old.len()).collect(), (0..new.len()).collect());
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let among_numbers = |way: &Way<'a>| way.is("integer") || way.is("number");
        let rules: [&dyn Fn(usize, usize) -> bool; 5] = [
            &|from, to| old[from].kind == new[to].kind && old_texts[from] == new_texts[to],
            &|from, to| old[from].kind == new[to].kind && old[from].label.is_some() && old[from].label == new[to].label,
            &|from, to| old[from].kind == new[to].kind,
            &|from, to| among_numbers(&old[from]) && among_numbers(&new[to]),
            &|from, to| old[from].kind.is_none() || new[to].kind.is_none(),
        ];
        for rule in rules {
            free_new.retain(|to| match free_old.iter().position(|from| rule(*from, *to)) {
                Some(position) => {
                    pairs.push((free_old.remove(position), *to));
                    false
                }
                None => true,
            });
        }
        for (from, to) in &pairs {
            self.pair(&old[*from], &new[*to], at, depth);
        }
        free_old.retain(|from| !new.iter().any(|way| way.covers(&old[*from])));
        free_new.retain(|to| !old.iter().any(|way| way.covers(&new[*to])));
        let lost = named(free_old.iter().map(|from| &old[*from]));
        let gained = named(free_new.iter().map(|to| &new[*to]));
        match (pairs.is_empty(), free_old.is_empty(), free_new.is_empty()) {
            (_, true, true) => {}
            (true, false, false) => self.tell_of(Class::Breaking, at, &format!("{lost} became {gained}")),
            (_, lost_nothing, gained_nothing) => {
                if !lost_nothing {
                    self.tell(Class::Narrowed, at, &format!("no longer takes {lost}"));
                }
                if !gained_nothing {
                    self.tell(Class::Widened, at, &format!("also takes {gained}"));
                }
            }
        }
    }

    /// Where anything was taken before.
    fn narrowed_to(&mut self, ways: &[Way<'a>], at: &Place) {
        let listed: Option<Vec<_>> = ways.iter().map(|way| way.values.as_ref()).collect();
        let note = match listed {
            Some(values) => {
                let all = values.into_iter().flatten().map(|(text, value)| (text.clone(), *value)).collect();
                format!("takes only {} now", keywords::some(&all))
            }
            None => format!("now takes only {}", named(ways.iter())),
        };
        self.tell(Class::Narrowed, at, &note);
    }

    /// One way before, and what became of it.
    fn pair(&mut self, old: &Way<'a>, new: &Way<'a>, at: &Place, depth: usize) {
        if old.is_alternative && new.is_alternative {
            self.aside(&old.layers, &new.layers, at);
        }
        if let (Some(before), Some(after)) = (old.layers.only(), new.layers.only())
            && !self.seen_ways.insert((before, after, old.kind, new.kind))
        {
            return;
        }
        let both_listed = old.values.is_some() && new.values.is_some();
        match (old.kind, new.kind) {
            (None, None) => {}
            (before, after) if before == after => {}
            (None, Some(_)) if new.values.is_some() => {}
            (None, Some(_)) => self.narrowed_to(std::slice::from_ref(new), at),
            (Some(_), None) => self.tell(Class::Widened, at, "takes any type now"),
            (Some("integer"), Some("number")) | (Some("number"), Some("integer")) if both_listed => {}
            (Some("integer"), Some("number")) => self.tell(Class::Widened, at, "also takes number"),
            (Some("number"), Some("integer")) => self.tell(Class::Narrowed, at, "no longer takes number"),
            (Some(_), Some(_)) => {
                let (before, after) = (named([old]), named([new]));
                return self.tell_of(Class::Breaking, at, &format!("{before} became {after}"));
            }
        }
        self.one(old, new, at, depth);
    }

    fn one(&mut self, old: &Way<'a>, new: &Way<'a>, at: &Place, depth: usize) {
        let size = |way: &Way<'a>| -> usize {
            let layers = way.layers.maps.iter();
            let fields = |layer: &&&Keywords| {
                layer.get("properties").and_then(Value::as_object).map_or(0, Map::len) + row(layer, "required").len()
            };
            layers.map(|layer| layer.len() + fields(&layer)).sum::<usize>() + way.values.as_ref().map_or(0, |v| v.len())
        };
        if !self.allowance.spend(size(old) + size(new)) {
            return self.too_large(at);
        }
        let mut before = old.layers.merged(keywords::is_compared);
        let mut after = new.layers.merged(keywords::is_compared);
        self.forget_known(&mut before, &mut after);
        let (side, findings) = (self.side, &mut *self.findings);
        keywords::compare((&before, old.values.as_ref()), (&after, new.values.as_ref()), &mut |class, note| {
            findings.add(class, || keywords::placed(side, &at.0, &note));
        });
        if old.layers.lost != new.layers.lost {
            self.tell_of(Class::Other, at, "`$ref` changed");
        }
        self.fields(&old.layers, &new.layers, at, depth);
        self.items(&old.layers, &new.layers, at, depth);
        self.additional(&old.layers, &new.layers, at, depth);
        for keyword in ["anyOf", "oneOf"] {
            let (before, after) = (rows(&old.layers, keyword), rows(&new.layers, keyword));
            match (before, after) {
                ([], []) => {}
                ([], _) => self.tell_of(Class::Narrowed, at, &format!("`{keyword}` was added")),
                (_, []) => self.tell_of(Class::Widened, at, &format!("`{keyword}` was dropped")),
                (before, after) => {
                    let before = ways_of_any(self.old_root, before, self.allowance);
                    let after = ways_of_any(self.new_root, after, self.allowance);
                    self.ways(before, after, at, depth + 1);
                }
            }
        }
    }

    /// What was compared before, through another reference, is not compared and told again.
    fn forget_known(&mut self, old: &mut BTreeMap<&'a str, &'a Value>, new: &mut BTreeMap<&'a str, &'a Value>) {
        let both: Vec<&'a str> = old.keys().copied().filter(|name| new.contains_key(name)).collect();
        for name in both {
            if !self.seen.insert((std::ptr::from_ref(old[name]), std::ptr::from_ref(new[name]))) {
                old.remove(name);
                new.remove(name);
            }
        }
    }

    /// Titles, descriptions and what else says nothing of values.
    fn aside(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place) {
        let (mut old, mut new) = (old.merged(says_nothing_of_values), new.merged(says_nothing_of_values));
        self.forget_known(&mut old, &mut new);
        for keyword in ["title", "description"] {
            if old.get(keyword) != new.get(keyword) {
                let of = if at.0.is_empty() { format!("its {} schema", self.side.as_str()) } else { self.called(at) };
                self.findings.add(Class::Text, || format!("the {keyword} of {of} changed"));
            }
        }
        let (side, findings) = (self.side, &mut *self.findings);
        keywords::compare_aside(&old, &new, &mut |class, note| {
            findings.add(class, || keywords::placed(side, &at.0, &note));
        });
    }

    /// The fields of an object: which there are, which must be there, and each of those that stayed.
    fn fields(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
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
            let output = self.output();
            self.findings.add(class, || format!("{output}`{}` became `{}`", from.0, to.0));
        } else {
            for name in lost {
                let class = if input { Class::Breaking } else { Class::Narrowed };
                let output = self.output();
                self.findings.add(class, || format!("{output}lost `{}`", at.field(name).0));
            }
            for name in gained {
                let (class, how) = match (input, must_after.contains(name)) {
                    (true, true) => (Class::Breaking, "a required "),
                    (true, false) => (Class::Widened, "an optional "),
                    (false, _) => (Class::Widened, ""),
                };
                let output = self.output();
                self.findings.add(class, || format!("{output}gained {how}`{}`", at.field(name).0));
            }
        }
        for name in known.intersection(&wanted) {
            let place = at.field(name);
            match (must_before.contains(name), must_after.contains(name)) {
                (false, true) => {
                    let class = if input { Class::Breaking } else { Class::Widened };
                    let called = self.called(&place);
                    self.findings.add(class, || format!("{called} became required"));
                }
                (true, false) => {
                    let class = if input { Class::Widened } else { Class::Narrowed };
                    let called = self.called(&place);
                    self.findings.add(class, || format!("{called} became optional"));
                }
                (true, true) | (false, false) => {}
            }
            if let (Some(old), Some(new)) = (before.get(name), after.get(name)) {
                self.node(old, new, &place, depth + 1);
            }
        }
    }

    /// A schema that takes anything where it is missing.
    fn below(&mut self, old: Option<&'a Value>, new: Option<&'a Value>, at: &Place, depth: usize) {
        match (old, new) {
            (None, None) => {}
            (Some(old), Some(new)) => self.node(old, new, at, depth + 1),
            (None, Some(new)) if takes_anything(new) => {}
            (Some(old), None) if takes_anything(old) => {}
            (None, Some(_)) => self.tell(Class::Narrowed, at, "takes less than anything now"),
            (Some(_), None) => self.tell(Class::Widened, at, "takes anything now"),
        }
    }

    /// First those that stand in a row, each against its counterpart, then all others.
    fn items(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
        let ((before, old_rest), (after, new_rest)) = (items(old), items(new));
        for (old, new) in before.iter().zip(after) {
            self.node(old, new, &at.items(), depth + 1);
        }
        if before.len() != after.len() {
            let class = if before.len() < after.len() { Class::Narrowed } else { Class::Widened };
            self.tell_of(
                class,
                at,
                &format!("{} items are described one by one, {} before", after.len(), before.len()),
            );
        }
        self.below(old_rest, new_rest, &at.items(), depth);
    }

    fn additional(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place, depth: usize) {
        let keyword = "additionalProperties";
        let closed = |layers: &Layers<'a>| layers.maps.iter().any(|map| map.get(keyword) == Some(&Value::Bool(false)));
        match (closed(old), closed(new)) {
            (true, true) => {}
            (false, true) => self.tell(Class::Narrowed, at, "no longer takes unknown fields"),
            (true, false) => self.tell(Class::Widened, at, "also takes unknown fields"),
            (false, false) => self.below(old.get(keyword), new.get(keyword), &at.field("*"), depth),
        }
    }

    /// What reads on after the place, or after the tool's name: `also takes null`.
    fn tell(&mut self, class: Class, at: &Place, what: &str) {
        let side = self.side;
        self.findings.add(class, || match (at.0.is_empty(), side) {
            (true, Side::Input) => what.to_owned(),
            (true, Side::Output) => format!("its output {}", given(what)),
            (false, Side::Input) => format!("`{}` {what}", at.0),
            (false, Side::Output) => format!("its output: `{}` {}", at.0, given(what)),
        });
    }

    /// What has a subject of its own: `string became integer`.
    fn tell_of(&mut self, class: Class, at: &Place, what: &str) {
        let side = self.side;
        let note = || keywords::placed(side, &at.0, &keywords::Note::Remark(what.to_owned()));
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

/// The words for what is taken, of what is given.
fn given(what: &str) -> String {
    let words = [("no longer takes", "is no longer"), ("also takes", "may also be"), ("now takes only", "is now only")];
    let found = words.iter().find_map(|(taken, given)| Some(format!("{given}{}", what.strip_prefix(taken)?)));
    found.unwrap_or_else(|| what.replace("takes", "may be"))
}

/// The types of ways, and what each is called where that is known.
fn named<'a, 'b: 'a>(ways: impl IntoIterator<Item = &'a Way<'b>>) -> String {
    let one = |way: &Way<'b>| match (&way.label, way.kind) {
        (Some(label), Some(kind @ "object")) => format!("{kind} `{}`", shown_short(label, 40)),
        (_, Some(kind)) => shown_short(kind, 40),
        (Some(label), None) => format!("`{}`", shown_short(label, 40)),
        (None, None) => "other values".to_owned(),
    };
    let names: BTreeSet<String> = ways.into_iter().map(one).collect();
    shown_short(&names.into_iter().collect::<Vec<_>>().join(", "), LONGEST_NAMES)
}

/// Those that stand in a row, as this draft of JSON Schema or an older one has it, and what holds for the rest.
fn items<'a>(layers: &Layers<'a>) -> (&'a [Value], Option<&'a Value>) {
    match layers.get("items") {
        Some(Value::Array(in_a_row)) => (in_a_row, layers.get("additionalItems")),
        rest => (rows(layers, "prefixItems"), rest),
    }
}

fn rows<'a>(layers: &Layers<'a>, keyword: &str) -> &'a [Value] {
    layers.maps.iter().map(|keywords| row(keywords, keyword)).find(|row| !row.is_empty()).unwrap_or_default()
}

fn takes_anything(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}

fn fields<'a>(layers: &Layers<'a>) -> BTreeMap<&'a str, &'a Value> {
    let mut fields = BTreeMap::new();
    for properties in layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object)) {
        for (name, schema) in properties {
            fields.entry(name.as_str()).or_insert(schema);
        }
    }
    fields
}

fn required<'a>(layers: &Layers<'a>) -> BTreeSet<&'a str> {
    layers.maps.iter().flat_map(|layer| row(layer, "required")).filter_map(Value::as_str).collect()
}
