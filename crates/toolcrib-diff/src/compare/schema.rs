//! Compares two schemas node by node. Each pair of nodes is visited once, so that cycles end and shared definitions are
//! cheap.
//!
//! A node is split into [`Alternative`]s, which are matched with each other; each matched pair is then compared by
//! type, keywords, fields and items. Differences that this walk does not interpret are left to `unclassified`.
//!
//! The walk reports into [`Findings`] and never fails: at the depth limit or without budget it reports once that the
//! comparison is incomplete, as [`ChangeClass::Other`], and returns.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};
use toolcrib_schema::{
    Alternative, KEYWORDS_PER_NODE, KeywordKind, MAX_ALTERNATIVES, SchemaLayers, WorkBudget, alternatives,
    alternatives_of_any, array_keyword, is_annotation,
};

use super::keywords;
use super::notes::{self, SchemaPath, SchemaRole, ValueChange, describe_types};
use super::{ChangeClass, Comparison, Findings};

/// The keywords of one schema.
type Keywords = Map<String, Value>;

/// Maximum depth of the walk. Every level takes about ten stack frames, which must fit into the 2 MB stack of a thread
/// in a debug build.
const MAX_COMPARE_DEPTH: usize = 48;

/// Adds all differences to `findings`. Returns a note about a difference that could not be classified; it counts unless
/// something worse was found.
pub(super) fn compare_schemas(
    old: &Value,
    new: &Value,
    role: SchemaRole,
    comparison: &mut Comparison<'_>,
) -> Option<String> {
    let mut comparer = SchemaComparer {
        old_root: old,
        new_root: new,
        role,
        budget: comparison.budget,
        findings: &mut comparison.findings,
        visited_nodes: HashSet::new(),
        visited_alternatives: HashSet::new(),
        equal_values: HashMap::new(),
        reported_too_large: false,
        unclassified: None,
        definitions_differ: None,
    };
    comparer.compare_nodes(old, new, &SchemaPath::default());
    comparer.unclassified
}

/// State of one comparison. `'a` is the lifetime of both schemas.
///
/// More than twenty methods: one for each group of keywords, and one budget for all.
pub(super) struct SchemaComparer<'a, 'b> {
    /// The whole schemas, against which references resolve.
    pub(super) old_root: &'a Value,
    pub(super) new_root: &'a Value,
    pub(super) role: SchemaRole,
    pub(super) budget: &'b mut WorkBudget,
    pub(super) findings: &'b mut Findings,
    /// Addresses of the pairs of nodes visited so far. Several references may lead to the same pair.
    visited_nodes: HashSet<(*const Value, *const Value)>,
    /// The same for pairs of alternatives, which are also reached through a reference with sibling keywords.
    visited_alternatives: HashSet<(*const Keywords, *const Keywords, Option<&'a str>, Option<&'a str>)>,
    /// Whether two field schemas are equal, by their addresses: each pair is compared once.
    equal_values: HashMap<(*const Value, *const Value), bool>,
    /// The note about exceeding the budget was added.
    reported_too_large: bool,
    /// Note about the first difference that could not be classified.
    pub(super) unclassified: Option<String>,
    /// Whether the definitions of both schemas differ, computed on first use.
    pub(super) definitions_differ: Option<bool>,
}

impl<'a> SchemaComparer<'a, '_> {
    /// Compares two schemas at the same path.
    pub(super) fn compare_nodes(&mut self, old: &'a Value, new: &'a Value, path: &SchemaPath) {
        if path.depth > MAX_COMPARE_DEPTH || !self.budget.spend(1) {
            return self.report_too_large(path);
        }
        // Values live as long as the comparison, so addresses identify them.
        if !self.visited_nodes.insert((std::ptr::from_ref(old), std::ptr::from_ref(new))) {
            return;
        }
        let old_alternatives = alternatives(self.old_root, old, self.budget);
        let new_alternatives = alternatives(self.new_root, new, self.budget);
        if !self.budget.spend(1) {
            return self.report_too_large(path);
        }
        // Beyond the limits, only the normal forms tell whether anything changed.
        // `MAX_ALTERNATIVES` exactly may be a list that was cut off, so it counts as truncated too.
        let is_truncated = |alternatives: &[Alternative<'a>]| {
            alternatives.len() >= MAX_ALTERNATIVES
                || alternatives.iter().any(|alternative| alternative.layers.is_truncated)
        };
        if is_truncated(&old_alternatives) || is_truncated(&new_alternatives) {
            self.compare_by_normal_form(KeywordKind::Schema, &[old], &[new], path);
        }
        let before = SchemaLayers::collect(self.old_root, old, self.budget);
        let after = SchemaLayers::collect(self.new_root, new, self.budget);
        if let (Some(before), Some(after)) = (before, after) {
            // The alternatives of `anyOf` and `oneOf` are compared alike, so a switch between them is not seen below.
            let has_switched = |old, new| before.get(old).is_some() && after.get(new).is_some();
            let switched = has_switched("anyOf", "oneOf") || has_switched("oneOf", "anyOf");
            if before.is_truncated || after.is_truncated || switched {
                self.compare_by_normal_form(KeywordKind::Schema, &[old], &[new], path);
            }
            self.compare_annotations(&before, &after, path);
        }
        self.compare_alternatives(&old_alternatives, &new_alternatives, path);
    }

    /// Reports once that the comparison is incomplete.
    fn report_too_large(&mut self, path: &SchemaPath) {
        if !std::mem::replace(&mut self.reported_too_large, true) {
            self.report(ChangeClass::Other, path, notes::TOO_LARGE);
        }
    }

    /// Compares two sets of alternatives. `anyOf` beside other keywords recurses here without visiting a node, so the
    /// depth is checked again.
    fn compare_alternatives(&mut self, old: &[Alternative<'a>], new: &[Alternative<'a>], path: &SchemaPath) {
        if path.depth > MAX_COMPARE_DEPTH {
            return self.report_too_large(path);
        }
        match (old, new) {
            // No alternative: a schema that accepts no value, such as `false`.
            ([], []) => {}
            ([], _) => self.report(ChangeClass::Widened, path, notes::ACCEPTS_SOMETHING),
            (_, []) => self.report(ChangeClass::Breaking, path, notes::ACCEPTS_NOTHING),
            ([only_old], [only_new]) => self.compare_pair(only_old, only_new, path),
            _ => self.match_alternatives(old, new, path),
        }
    }

    /// Matches alternatives with each other by the rules below, in order, and compares the matched pairs.
    fn match_alternatives(&mut self, old: &[Alternative<'a>], new: &[Alternative<'a>], path: &SchemaPath) {
        let accepts_any = |alternatives: &[Alternative<'a>]| {
            alternatives.iter().any(|alternative| alternative.type_name.is_none() && alternative.is_unconstrained())
        };
        // An alternative that accepts everything makes the others irrelevant.
        match (accepts_any(old), accepts_any(new)) {
            // Both accept everything, whatever the other alternatives say.
            (true, true) => return,
            (true, false) => return self.report_narrowed_to(new, path),
            (false, true) => return self.report(self.role.widening_class(), path, notes::ANY_TYPE),
            (false, false) => {}
        }
        let texts = |alternatives: &[Alternative<'a>], budget: &mut WorkBudget| -> Vec<String> {
            alternatives.iter().map(|alternative| alternative.to_text(budget)).collect()
        };
        // Built once, because the first rule below compares them pairwise.
        let old_texts = texts(old, self.budget);
        let new_texts = texts(new, self.budget);
        let mut unmatched_old: Vec<usize> = (0..old.len()).collect();
        let mut unmatched_new: Vec<usize> = (0..new.len()).collect();
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        let is_numeric =
            |alternative: &Alternative<'a>| alternative.is_type("integer") || alternative.is_type("number");
        // The same text, the same label, the same type, both numeric, one without a type.
        let rules: [&dyn Fn(usize, usize) -> bool; 5] = [
            &|from, to| old[from].type_name == new[to].type_name && old_texts[from] == new_texts[to],
            &|from, to| {
                old[from].type_name == new[to].type_name
                    && old[from].label.is_some()
                    && old[from].label == new[to].label
            },
            &|from, to| old[from].type_name == new[to].type_name,
            &|from, to| is_numeric(&old[from]) && is_numeric(&new[to]),
            &|from, to| old[from].type_name.is_none() || new[to].type_name.is_none(),
        ];
        // Each rule pairs what the stricter ones before it left over.
        for rule in rules {
            // The first old alternative that fits is taken, so the result depends on the order only within a rule.
            unmatched_new.retain(|to| match unmatched_old.iter().position(|from| rule(*from, *to)) {
                Some(position) => {
                    pairs.push((unmatched_old.remove(position), *to));
                    false
                }
                None => true,
            });
        }
        for (from, to) in &pairs {
            self.compare_pair(&old[*from], &new[*to], path);
        }
        // An unmatched alternative that another one covers is neither a loss nor a gain.
        unmatched_old.retain(|from| !new.iter().any(|alternative| alternative.covers(&old[*from])));
        unmatched_new.retain(|to| !old.iter().any(|alternative| alternative.covers(&new[*to])));
        let removed = describe_types(unmatched_old.iter().map(|from| &old[*from]));
        let added = describe_types(unmatched_new.iter().map(|to| &new[*to]));
        match (pairs.is_empty(), unmatched_old.is_empty(), unmatched_new.is_empty()) {
            (_, true, true) => {}
            // Nothing in common.
            (true, false, false) => {
                self.report_remark(ChangeClass::Breaking, path, &format!("{removed} became {added}"))
            }
            (_, none_removed, none_added) => {
                if !none_removed {
                    self.report_values(self.role.narrowing_class(), path, notes::NO_LONGER, &removed);
                }
                if !none_added {
                    self.report_values(self.role.widening_class(), path, notes::ALSO, &added);
                }
            }
        }
    }

    /// Reports that a schema that accepted anything now accepts only `alternatives`.
    fn report_narrowed_to(&mut self, alternatives: &[Alternative<'a>], path: &SchemaPath) {
        // If all alternatives list values, naming these says more than naming types.
        let value_lists: Option<Vec<_>> = alternatives.iter().map(|alternative| alternative.values.as_ref()).collect();
        let description = match value_lists {
            Some(values) => {
                let all = values.into_iter().flatten().map(|(text, value)| (text.clone(), *value)).collect();
                keywords::list_values(&all)
            }
            None => describe_types(alternatives.iter()),
        };
        self.report_values(self.role.narrowing_class(), path, notes::ONLY, &description);
    }

    /// Compares an old alternative with the new one it was matched with.
    fn compare_pair(&mut self, old: &Alternative<'a>, new: &Alternative<'a>, path: &SchemaPath) {
        // Annotations of the node itself were compared before it was split.
        if old.has_own_schema && new.has_own_schema {
            self.compare_annotations(&old.layers, &new.layers, path);
        }
        // A reference with siblings is a new node each time, but the constraints behind it may have been compared.
        if let (Some(before), Some(after)) =
            (old.layers.only_constraining_layer(), new.layers.only_constraining_layer())
            && !self.visited_alternatives.insert((before, after, old.type_name, new.type_name))
        {
            return;
        }
        let both_enums = old.values.is_some() && new.values.is_some();
        match (old.type_name, new.type_name) {
            (None, None) => {}
            (before, after) if before == after => {}
            // The values imply the type; their comparison reports the change.
            (None, Some(_)) if new.values.is_some() => {}
            (None, Some(_)) => self.report_narrowed_to(std::slice::from_ref(new), path),
            (Some(_), None) => self.report(self.role.widening_class(), path, notes::ANY_TYPE),
            // Listed values are compared one by one, whatever their type is called.
            (Some("integer"), Some("number")) | (Some("number"), Some("integer")) if both_enums => {}
            (Some("integer"), Some("number")) => {
                self.report_values(self.role.widening_class(), path, notes::ALSO, "number")
            }
            (Some("number"), Some("integer")) => {
                self.report_values(self.role.narrowing_class(), path, notes::NO_LONGER, "number")
            }
            (Some(_), Some(_)) => {
                let before = describe_types([old]);
                let after = describe_types([new]);
                return self.report_remark(ChangeClass::Breaking, path, &format!("{before} became {after}"));
            }
        }
        self.compare_constraints(old, new, path);
    }

    /// Compares everything but the type of two matched alternatives.
    fn compare_constraints(&mut self, old: &Alternative<'a>, new: &Alternative<'a>, path: &SchemaPath) {
        // Charge everything that is compared below: keywords, fields, required names and values.
        let size = |alternative: &Alternative<'a>| -> usize {
            let layers = alternative.layers.maps.iter();
            let fields = |layer: &&&Keywords| {
                layer.get("properties").and_then(Value::as_object).map_or(0, Map::len)
                    + array_keyword(layer, "required").len()
            };
            layers.map(|layer| layer.len() + fields(&layer)).sum::<usize>()
                + alternative.values.as_ref().map_or(0, |v| v.len())
        };
        if !self.budget.spend(size(old) + size(new)) {
            return self.report_too_large(path);
        }
        // Keywords of the value itself.
        let mut before = old.layers.merge(keywords::is_compared);
        let mut after = new.layers.merge(keywords::is_compared);
        self.remove_visited(&mut before, &mut after);
        self.compare_referenced_schemas(&before, &after, path);
        self.compare_repeated(&old.layers, &new.layers, path);
        // Values and limits can be ordered, so they are judged exactly; other constraints only by presence.
        self.compare_enums(old.values.as_ref(), new.values.as_ref(), path);
        self.compare_limits(&before, &after, path);
        self.compare_keywords(&before, &after, path);
        // References that cannot be resolved are compared by their text.
        match (old.layers.unresolved_reference, new.layers.unresolved_reference) {
            (None, None) => {}
            (Some(before), Some(after)) if before == after => self.check_unresolved_reference(before, path),
            (Some(_), _) | (None, Some(_)) => self.report_remark(ChangeClass::Other, path, "`$ref` changed"),
        }
        // Parts of the value.
        self.compare_fields(&old.layers, &new.layers, path);
        self.compare_items(&old.layers, &new.layers, path);
        self.compare_additional_properties(&old.layers, &new.layers, path);
        // Alternatives beside other keywords, which are not alternatives of the whole schema.
        for keyword in ["anyOf", "oneOf"] {
            let before = array_keyword_in_layers(&old.layers, keyword);
            let after = array_keyword_in_layers(&new.layers, keyword);
            match (before, after) {
                ([], []) => {}
                ([], _) => self.report_remark(self.role.narrowing_class(), path, &format!("`{keyword}` was added")),
                (_, []) => self.report_remark(self.role.widening_class(), path, &format!("`{keyword}` was dropped")),
                // Several such alternatives are matched like those of a schema.
                (old, new) => {
                    let before = alternatives_of_any(self.old_root, old, self.budget);
                    let after = alternatives_of_any(self.new_root, new, self.budget);
                    if before.len() >= MAX_ALTERNATIVES || after.len() >= MAX_ALTERNATIVES {
                        let old: Vec<&Value> = old.iter().collect();
                        let new: Vec<&Value> = new.iter().collect();
                        self.compare_by_normal_form(KeywordKind::Schema, &old, &new, path);
                    }
                    self.compare_alternatives(&before, &after, &path.alternatives());
                }
            }
        }
    }

    /// Removes keywords whose values were compared before, through another reference, so that they are not reported
    /// again.
    fn remove_visited(&mut self, old: &mut BTreeMap<&'a str, &'a Value>, new: &mut BTreeMap<&'a str, &'a Value>) {
        let both: Vec<&'a str> = old.keys().copied().filter(|name| new.contains_key(name)).collect();
        for name in both {
            if !self.visited_nodes.insert((std::ptr::from_ref(old[name]), std::ptr::from_ref(new[name]))) {
                old.remove(name);
                new.remove(name);
            }
        }
    }

    /// Compares annotations: titles, descriptions, defaults, examples and extensions.
    fn compare_annotations(&mut self, old: &SchemaLayers<'a>, new: &SchemaLayers<'a>, path: &SchemaPath) {
        if !self.budget.spend((old.keyword_count() + new.keyword_count()) / KEYWORDS_PER_NODE) {
            return self.report_too_large(path);
        }
        let mut old = old.merge(is_annotation);
        let mut new = new.merge(is_annotation);
        self.remove_visited(&mut old, &mut new);
        let role = self.role;
        for keyword in ["title", "description"] {
            if old.get(keyword) != new.get(keyword) {
                self.findings.add(ChangeClass::Text, || role.render_text_change(path, keyword));
            }
        }
        self.compare_other_annotations(&old, &new, path);
    }

    /// Returns whether two values are equal, and remembers the answer.
    pub(super) fn are_equal(&mut self, old: &'a Value, new: &'a Value) -> bool {
        *self.equal_values.entry((std::ptr::from_ref(old), std::ptr::from_ref(new))).or_insert_with(|| old == new)
    }

    /// Adds a change that continues the path.
    pub(super) fn report(&mut self, class: ChangeClass, path: &SchemaPath, change: ValueChange) {
        self.report_values(class, path, change, "");
    }

    /// Adds a change that continues the path and lists types or values.
    pub(super) fn report_values(&mut self, class: ChangeClass, path: &SchemaPath, change: ValueChange, values: &str) {
        let role = self.role;
        self.findings.add(class, || role.render_predicate(path, change, values));
    }

    /// Adds a change with a subject of its own.
    pub(super) fn report_remark(&mut self, class: ChangeClass, path: &SchemaPath, description: &str) {
        let role = self.role;
        self.findings.add(class, || role.render_remark(path, description));
    }
}

/// Returns the first non-empty array under `keyword` of all layers.
pub(super) fn array_keyword_in_layers<'a>(layers: &SchemaLayers<'a>, keyword: &str) -> &'a [Value] {
    layers
        .maps
        .iter()
        .map(|keywords| array_keyword(keywords, keyword))
        .find(|values| !values.is_empty())
        .unwrap_or_default()
}
