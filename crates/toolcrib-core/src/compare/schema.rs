//! Two schemas side by side, node by node. A node is looked at once with each partner, so cycles end and sharing is cheap.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use super::keywords::{self, says_nothing_of_values};
use super::ways::{KEYWORDS_OF_A_NODE, Keywords, Layers, MOST_WAYS, Way, row, ways, ways_of_any};
use super::words::{Became, Place, Side, named};
use super::{Allowance, Class, Findings};

/// Every level takes about ten frames of the stack, which must do for a thread of 2 MB in a debug build.
const DEEPEST: usize = 48;

/// Tells what differs. What may differ beyond that, in words, is handed back: it counts where nothing worse was found.
pub(super) fn compare_schemas(
    old: &Value,
    new: &Value,
    side: Side,
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Option<String> {
    let mut walk = Walk {
        old_root: old,
        new_root: new,
        side,
        allowance,
        findings,
        seen: HashSet::new(),
        seen_ways: HashSet::new(),
        same: HashMap::new(),
        full: false,
        untold: None,
        definitions_differ: None,
    };
    walk.node(old, new, &Place::default(), 0);
    walk.untold
}

pub(super) struct Walk<'a, 'b> {
    pub(super) old_root: &'a Value,
    pub(super) new_root: &'a Value,
    pub(super) side: Side,
    pub(super) allowance: &'b mut Allowance,
    pub(super) findings: &'b mut Findings,
    /// Pairs of nodes that were looked at, by their addresses: references lead to the same ones again.
    seen: HashSet<(*const Value, *const Value)>,
    /// The same for pairs of ways, which a reference may lead to beside words of its own.
    seen_ways: HashSet<(*const Keywords, *const Keywords, Option<&'a str>, Option<&'a str>)>,
    /// Whether two values of fields are the same, by their addresses: each pair is compared once.
    same: HashMap<(*const Value, *const Value), bool>,
    /// Something was left out, and that was said.
    full: bool,
    /// The first that differs in a way that is not told apart.
    pub(super) untold: Option<String>,
    /// Whether the definitions of both schemas differ, once that was asked.
    pub(super) definitions_differ: Option<bool>,
}

impl<'a> Walk<'a, '_> {
    pub(super) fn node(&mut self, old: &'a Value, new: &'a Value, at: &Place, depth: usize) {
        if depth > DEEPEST || !self.allowance.spend(1) {
            return self.too_large(at);
        }
        if !self.seen.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
            return;
        }
        let old_ways = ways(self.old_root, old, self.allowance);
        let new_ways = ways(self.new_root, new, self.allowance);
        if !self.allowance.spend(1) {
            return self.too_large(at);
        }
        let is_cut = |ways: &[Way<'a>]| ways.len() >= MOST_WAYS || ways.iter().any(|way| way.layers.is_cut);
        if is_cut(&old_ways) || is_cut(&new_ways) {
            self.cut(&[old], &[new], at);
        }
        let before = Layers::of(self.old_root, old, self.allowance);
        let after = Layers::of(self.new_root, new, self.allowance);
        if let (Some(before), Some(after)) = (before, after) {
            // Alternatives are compared as if one of them or several were the same.
            let is_other = |keyword, other| before.get(keyword).is_some() && after.get(other).is_some();
            let switched = is_other("anyOf", "oneOf") || is_other("oneOf", "anyOf");
            if before.is_cut || after.is_cut || switched {
                self.cut(&[old], &[new], at);
            }
            self.aside(&before, &after, at);
        }
        self.ways(old_ways, new_ways, at, depth);
    }

    fn too_large(&mut self, at: &Place) {
        if !std::mem::replace(&mut self.full, true) {
            self.tell(Class::Other, at, Became::TooLarge);
        }
    }

    /// Alternatives beside other keywords come back here without passing a node, and may lead to themselves.
    fn ways(&mut self, old: Vec<Way<'a>>, new: Vec<Way<'a>>, at: &Place, depth: usize) {
        if depth > DEEPEST {
            return self.too_large(at);
        }
        match (&old[..], &new[..]) {
            ([], []) => {}
            ([], _) => self.tell(Class::Widened, at, Became::Something),
            (_, []) => self.tell(Class::Breaking, at, Became::Nothing),
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
            (false, true) => return self.tell(self.side.more(), at, Became::AnyType),
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
                    self.tell(self.side.less(), at, Became::NoLonger(lost));
                }
                if !gained_nothing {
                    self.tell(self.side.more(), at, Became::Also(gained));
                }
            }
        }
    }

    /// Where anything was taken before.
    fn narrowed_to(&mut self, ways: &[Way<'a>], at: &Place) {
        let listed: Option<Vec<_>> = ways.iter().map(|way| way.values.as_ref()).collect();
        let what = match listed {
            Some(values) => {
                let all = values.into_iter().flatten().map(|(text, value)| (text.clone(), *value)).collect();
                keywords::some(&all)
            }
            None => named(ways.iter()),
        };
        self.tell(self.side.less(), at, Became::Only(what));
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
            (Some(_), None) => self.tell(self.side.more(), at, Became::AnyType),
            (Some("integer"), Some("number")) | (Some("number"), Some("integer")) if both_listed => {}
            (Some("integer"), Some("number")) => self.tell(self.side.more(), at, Became::Also("number".to_owned())),
            (Some("number"), Some("integer")) => self.tell(self.side.less(), at, Became::NoLonger("number".to_owned())),
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
        self.hidden(&before, &after, at);
        self.stacked(&old.layers, &new.layers, at);
        let (side, findings) = (self.side, &mut *self.findings);
        let (old_says, new_says) = ((&before, old.values.as_ref()), (&after, new.values.as_ref()));
        keywords::compare(side, old_says, new_says, &mut |class, note| {
            findings.add(class, || note.placed(side, at));
        });
        match (old.layers.lost, new.layers.lost) {
            (None, None) => {}
            (Some(before), Some(after)) if before == after => self.lost(before, at),
            (Some(_), _) | (None, Some(_)) => self.tell_of(Class::Other, at, "`$ref` changed"),
        }
        self.fields(&old.layers, &new.layers, at, depth);
        self.items(&old.layers, &new.layers, at, depth);
        self.additional(&old.layers, &new.layers, at, depth);
        for keyword in ["anyOf", "oneOf"] {
            let (before, after) = (rows(&old.layers, keyword), rows(&new.layers, keyword));
            match (before, after) {
                ([], []) => {}
                ([], _) => self.tell_of(self.side.less(), at, &format!("`{keyword}` was added")),
                (_, []) => self.tell_of(self.side.more(), at, &format!("`{keyword}` was dropped")),
                (old, new) => {
                    let before = ways_of_any(self.old_root, old, self.allowance);
                    let after = ways_of_any(self.new_root, new, self.allowance);
                    if before.len() >= MOST_WAYS || after.len() >= MOST_WAYS {
                        self.cut(&old.iter().collect::<Vec<_>>(), &new.iter().collect::<Vec<_>>(), at);
                    }
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
        if !self.allowance.spend((old.size() + new.size()) / KEYWORDS_OF_A_NODE) {
            return self.too_large(at);
        }
        let (mut old, mut new) = (old.merged(says_nothing_of_values), new.merged(says_nothing_of_values));
        self.forget_known(&mut old, &mut new);
        let (side, findings) = (self.side, &mut *self.findings);
        for keyword in ["title", "description"] {
            if old.get(keyword) != new.get(keyword) {
                findings.add(Class::Text, || side.text(at, keyword));
            }
        }
        keywords::compare_aside(&old, &new, &mut |class, note| {
            findings.add(class, || note.placed(side, at));
        });
    }

    pub(super) fn are_same(&mut self, old: &'a Value, new: &'a Value) -> bool {
        *self.same.entry((std::ptr::from_ref(old), std::ptr::from_ref(new))).or_insert_with(|| old == new)
    }

    pub(super) fn tell(&mut self, class: Class, at: &Place, became: Became) {
        let side = self.side;
        self.findings.add(class, || side.predicate(at, &became));
    }

    pub(super) fn tell_of(&mut self, class: Class, at: &Place, what: &str) {
        let side = self.side;
        self.findings.add(class, || side.remark(at, what));
    }
}

pub(super) fn rows<'a>(layers: &Layers<'a>, keyword: &str) -> &'a [Value] {
    layers.maps.iter().map(|keywords| row(keywords, keyword)).find(|row| !row.is_empty()).unwrap_or_default()
}
