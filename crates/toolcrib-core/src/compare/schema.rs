//! Two schemas side by side, node by node. A node is looked at once with each partner, so cycles end and sharing is cheap.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};

use super::alternatives::{
    Alternative, KEYWORDS_PER_NODE, KeywordMap, MAX_ALTERNATIVES, SchemaLayers, alternatives, alternatives_of_any,
    array_keyword,
};
use super::keywords::{self, is_annotation};
use super::notes::{SchemaPath, SchemaRole, ValueChange, describe_types};
use super::{ChangeClass, Findings, WorkBudget};

/// Every level takes about ten frames of the stack, which must do for a thread of 2 MB in a debug build.
const MAX_COMPARE_DEPTH: usize = 48;

/// Tells what differs. What may differ beyond that, in words, is handed back: it counts where nothing worse was found.
pub(super) fn compare_schemas(
    old: &Value,
    new: &Value,
    side: SchemaRole,
    allowance: &mut WorkBudget,
    findings: &mut Findings,
) -> Option<String> {
    let mut walk = SchemaComparer {
        old_root: old,
        new_root: new,
        role: side,
        budget: allowance,
        findings,
        visited_nodes: HashSet::new(),
        visited_alternatives: HashSet::new(),
        equal_values: HashMap::new(),
        reported_too_large: false,
        unclassified: None,
        definitions_differ: None,
    };
    walk.compare_nodes(old, new, &SchemaPath::default(), 0);
    walk.unclassified
}

pub(super) struct SchemaComparer<'a, 'b> {
    pub(super) old_root: &'a Value,
    pub(super) new_root: &'a Value,
    pub(super) role: SchemaRole,
    pub(super) budget: &'b mut WorkBudget,
    pub(super) findings: &'b mut Findings,
    /// Pairs of nodes that were looked at, by their addresses: references lead to the same ones again.
    visited_nodes: HashSet<(*const Value, *const Value)>,
    /// The same for pairs of ways, which a reference may lead to beside words of its own.
    visited_alternatives: HashSet<(*const KeywordMap, *const KeywordMap, Option<&'a str>, Option<&'a str>)>,
    /// Whether two values of fields are the same, by their addresses: each pair is compared once.
    equal_values: HashMap<(*const Value, *const Value), bool>,
    /// Something was left out, and that was said.
    reported_too_large: bool,
    /// The first that differs in a way that is not told apart.
    pub(super) unclassified: Option<String>,
    /// Whether the definitions of both schemas differ, once that was asked.
    pub(super) definitions_differ: Option<bool>,
}

impl<'a> SchemaComparer<'a, '_> {
    pub(super) fn compare_nodes(&mut self, old: &'a Value, new: &'a Value, at: &SchemaPath, depth: usize) {
        if depth > MAX_COMPARE_DEPTH || !self.budget.spend(1) {
            return self.report_too_large(at);
        }
        if !self.visited_nodes.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
            return;
        }
        let old_ways = alternatives(self.old_root, old, self.budget);
        let new_ways = alternatives(self.new_root, new, self.budget);
        if !self.budget.spend(1) {
            return self.report_too_large(at);
        }
        let is_cut =
            |ways: &[Alternative<'a>]| ways.len() >= MAX_ALTERNATIVES || ways.iter().any(|way| way.layers.is_truncated);
        if is_cut(&old_ways) || is_cut(&new_ways) {
            self.compare_truncated(&[old], &[new], at);
        }
        let before = SchemaLayers::collect(self.old_root, old, self.budget);
        let after = SchemaLayers::collect(self.new_root, new, self.budget);
        if let (Some(before), Some(after)) = (before, after) {
            // Alternatives are compared as if one of them or several were the same.
            let is_other = |keyword, other| before.get(keyword).is_some() && after.get(other).is_some();
            let switched = is_other("anyOf", "oneOf") || is_other("oneOf", "anyOf");
            if before.is_truncated || after.is_truncated || switched {
                self.compare_truncated(&[old], &[new], at);
            }
            self.compare_annotations(&before, &after, at);
        }
        self.compare_alternatives(old_ways, new_ways, at, depth);
    }

    fn report_too_large(&mut self, at: &SchemaPath) {
        if !std::mem::replace(&mut self.reported_too_large, true) {
            self.report(ChangeClass::Other, at, ValueChange::TooLarge);
        }
    }

    /// Alternatives beside other keywords come back here without passing a node, and may lead to themselves.
    fn compare_alternatives(
        &mut self,
        old: Vec<Alternative<'a>>,
        new: Vec<Alternative<'a>>,
        at: &SchemaPath,
        depth: usize,
    ) {
        if depth > MAX_COMPARE_DEPTH {
            return self.report_too_large(at);
        }
        match (&old[..], &new[..]) {
            ([], []) => {}
            ([], _) => self.report(ChangeClass::Widened, at, ValueChange::AcceptsSomething),
            (_, []) => self.report(ChangeClass::Breaking, at, ValueChange::AcceptsNothing),
            ([one], [other]) => self.compare_pair(one, other, at, depth),
            _ => self.match_alternatives(old, new, at, depth),
        }
    }

    /// Ways find each other: those that say the same or are called the same, then those of the same type.
    fn match_alternatives(
        &mut self,
        old: Vec<Alternative<'a>>,
        new: Vec<Alternative<'a>>,
        at: &SchemaPath,
        depth: usize,
    ) {
        let takes_any =
            |ways: &[Alternative<'a>]| ways.iter().any(|way| way.type_name.is_none() && way.is_unconstrained());
        match (takes_any(&old), takes_any(&new)) {
            (true, true) => return,
            (true, false) => return self.report_narrowed_to(&new, at),
            (false, true) => return self.report(self.role.widening_class(), at, ValueChange::AnyType),
            (false, false) => {}
        }
        let texts = |ways: &[Alternative<'a>], allowance: &mut WorkBudget| -> Vec<String> {
            ways.iter().map(|way| way.to_text(allowance)).collect()
        };
        let (old_texts, new_texts) = (texts(&old, self.budget), texts(&new, self.budget));
        let (mut free_old, mut free_new): (Vec<usize>, Vec<usize>) =
            ((0..old.len()).collect(), (0..new.len()).collect());
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let among_numbers = |way: &Alternative<'a>| way.is_type("integer") || way.is_type("number");
        let rules: [&dyn Fn(usize, usize) -> bool; 5] = [
            &|from, to| old[from].type_name == new[to].type_name && old_texts[from] == new_texts[to],
            &|from, to| {
                old[from].type_name == new[to].type_name
                    && old[from].label.is_some()
                    && old[from].label == new[to].label
            },
            &|from, to| old[from].type_name == new[to].type_name,
            &|from, to| among_numbers(&old[from]) && among_numbers(&new[to]),
            &|from, to| old[from].type_name.is_none() || new[to].type_name.is_none(),
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
            self.compare_pair(&old[*from], &new[*to], at, depth);
        }
        free_old.retain(|from| !new.iter().any(|way| way.covers(&old[*from])));
        free_new.retain(|to| !old.iter().any(|way| way.covers(&new[*to])));
        let lost = describe_types(free_old.iter().map(|from| &old[*from]));
        let gained = describe_types(free_new.iter().map(|to| &new[*to]));
        match (pairs.is_empty(), free_old.is_empty(), free_new.is_empty()) {
            (_, true, true) => {}
            (true, false, false) => self.report_remark(ChangeClass::Breaking, at, &format!("{lost} became {gained}")),
            (_, lost_nothing, gained_nothing) => {
                if !lost_nothing {
                    self.report(self.role.narrowing_class(), at, ValueChange::NoLonger(lost));
                }
                if !gained_nothing {
                    self.report(self.role.widening_class(), at, ValueChange::Also(gained));
                }
            }
        }
    }

    /// Where anything was taken before.
    fn report_narrowed_to(&mut self, ways: &[Alternative<'a>], at: &SchemaPath) {
        let listed: Option<Vec<_>> = ways.iter().map(|way| way.values.as_ref()).collect();
        let what = match listed {
            Some(values) => {
                let all = values.into_iter().flatten().map(|(text, value)| (text.clone(), *value)).collect();
                keywords::list_values(&all)
            }
            None => describe_types(ways.iter()),
        };
        self.report(self.role.narrowing_class(), at, ValueChange::Only(what));
    }

    /// One way before, and what became of it.
    fn compare_pair(&mut self, old: &Alternative<'a>, new: &Alternative<'a>, at: &SchemaPath, depth: usize) {
        if old.has_own_schema && new.has_own_schema {
            self.compare_annotations(&old.layers, &new.layers, at);
        }
        if let (Some(before), Some(after)) =
            (old.layers.only_constraining_layer(), new.layers.only_constraining_layer())
            && !self.visited_alternatives.insert((before, after, old.type_name, new.type_name))
        {
            return;
        }
        let both_listed = old.values.is_some() && new.values.is_some();
        match (old.type_name, new.type_name) {
            (None, None) => {}
            (before, after) if before == after => {}
            (None, Some(_)) if new.values.is_some() => {}
            (None, Some(_)) => self.report_narrowed_to(std::slice::from_ref(new), at),
            (Some(_), None) => self.report(self.role.widening_class(), at, ValueChange::AnyType),
            (Some("integer"), Some("number")) | (Some("number"), Some("integer")) if both_listed => {}
            (Some("integer"), Some("number")) => {
                self.report(self.role.widening_class(), at, ValueChange::Also("number".to_owned()))
            }
            (Some("number"), Some("integer")) => {
                self.report(self.role.narrowing_class(), at, ValueChange::NoLonger("number".to_owned()))
            }
            (Some(_), Some(_)) => {
                let (before, after) = (describe_types([old]), describe_types([new]));
                return self.report_remark(ChangeClass::Breaking, at, &format!("{before} became {after}"));
            }
        }
        self.compare_constraints(old, new, at, depth);
    }

    fn compare_constraints(&mut self, old: &Alternative<'a>, new: &Alternative<'a>, at: &SchemaPath, depth: usize) {
        let size = |way: &Alternative<'a>| -> usize {
            let layers = way.layers.maps.iter();
            let fields = |layer: &&&KeywordMap| {
                layer.get("properties").and_then(Value::as_object).map_or(0, Map::len)
                    + array_keyword(layer, "required").len()
            };
            layers.map(|layer| layer.len() + fields(&layer)).sum::<usize>() + way.values.as_ref().map_or(0, |v| v.len())
        };
        if !self.budget.spend(size(old) + size(new)) {
            return self.report_too_large(at);
        }
        let mut before = old.layers.merge(keywords::is_compared);
        let mut after = new.layers.merge(keywords::is_compared);
        self.remove_visited(&mut before, &mut after);
        self.compare_referenced_schemas(&before, &after, at);
        self.compare_repeated(&old.layers, &new.layers, at);
        let (side, findings) = (self.role, &mut *self.findings);
        let (old_says, new_says) = ((&before, old.values.as_ref()), (&after, new.values.as_ref()));
        keywords::compare_keywords(side, old_says, new_says, &mut |class, note| {
            findings.add(class, || note.render(side, at));
        });
        match (old.layers.unresolved_reference, new.layers.unresolved_reference) {
            (None, None) => {}
            (Some(before), Some(after)) if before == after => self.check_unresolved_reference(before, at),
            (Some(_), _) | (None, Some(_)) => self.report_remark(ChangeClass::Other, at, "`$ref` changed"),
        }
        self.compare_fields(&old.layers, &new.layers, at, depth);
        self.compare_items(&old.layers, &new.layers, at, depth);
        self.compare_additional_properties(&old.layers, &new.layers, at, depth);
        for keyword in ["anyOf", "oneOf"] {
            let (before, after) =
                (array_keyword_in_layers(&old.layers, keyword), array_keyword_in_layers(&new.layers, keyword));
            match (before, after) {
                ([], []) => {}
                ([], _) => self.report_remark(self.role.narrowing_class(), at, &format!("`{keyword}` was added")),
                (_, []) => self.report_remark(self.role.widening_class(), at, &format!("`{keyword}` was dropped")),
                (old, new) => {
                    let before = alternatives_of_any(self.old_root, old, self.budget);
                    let after = alternatives_of_any(self.new_root, new, self.budget);
                    if before.len() >= MAX_ALTERNATIVES || after.len() >= MAX_ALTERNATIVES {
                        self.compare_truncated(&old.iter().collect::<Vec<_>>(), &new.iter().collect::<Vec<_>>(), at);
                    }
                    self.compare_alternatives(before, after, at, depth + 1);
                }
            }
        }
    }

    /// What was compared before, through another reference, is not compared and told again.
    fn remove_visited(&mut self, old: &mut BTreeMap<&'a str, &'a Value>, new: &mut BTreeMap<&'a str, &'a Value>) {
        let both: Vec<&'a str> = old.keys().copied().filter(|name| new.contains_key(name)).collect();
        for name in both {
            if !self.visited_nodes.insert((std::ptr::from_ref(old[name]), std::ptr::from_ref(new[name]))) {
                old.remove(name);
                new.remove(name);
            }
        }
    }

    /// Titles, descriptions and what else says nothing of values.
    fn compare_annotations(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, at: &SchemaPath) {
        if !self.budget.spend((old.keyword_count() + new.keyword_count()) / KEYWORDS_PER_NODE) {
            return self.report_too_large(at);
        }
        let (mut old, mut new) = (old.merge(is_annotation), new.merge(is_annotation));
        self.remove_visited(&mut old, &mut new);
        let (side, findings) = (self.role, &mut *self.findings);
        for keyword in ["title", "description"] {
            if old.get(keyword) != new.get(keyword) {
                findings.add(ChangeClass::Text, || side.render_text_change(at, keyword));
            }
        }
        keywords::compare_annotations(&old, &new, &mut |class, note| {
            findings.add(class, || note.render(side, at));
        });
    }

    pub(super) fn are_equal(&mut self, old: &'a Value, new: &'a Value) -> bool {
        *self.equal_values.entry((std::ptr::from_ref(old), std::ptr::from_ref(new))).or_insert_with(|| old == new)
    }

    pub(super) fn report(&mut self, class: ChangeClass, at: &SchemaPath, became: ValueChange) {
        let side = self.role;
        self.findings.add(class, || side.render_predicate(at, &became));
    }

    pub(super) fn report_remark(&mut self, class: ChangeClass, at: &SchemaPath, what: &str) {
        let side = self.role;
        self.findings.add(class, || side.render_remark(at, what));
    }
}

pub(super) fn array_keyword_in_layers<'a>(layers: &SchemaLayers<'a>, keyword: &str) -> &'a [Value] {
    layers.maps.iter().map(|keywords| array_keyword(keywords, keyword)).find(|row| !row.is_empty()).unwrap_or_default()
}
