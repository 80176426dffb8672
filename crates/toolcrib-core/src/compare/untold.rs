//! What the walk does not look at by itself: what is said several times over, what was cut off, and what is referred to
//! where nobody interprets it. Of these it is only known whether they are the same by their meaning.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Class;
use super::keywords::{Holds, holds, says_nothing_of_values};
use super::plain::Plain;
use super::schema::Walk;
use super::ways::Layers;
use super::words::{Became, Place};

/// Looked at in all layers by the walk, or field by field here.
const IN_ALL_LAYERS: [&str; 4] = ["$ref", "allOf", "required", "properties"];

/// What stands under one name, layer by layer.
type Stack<'a> = BTreeMap<&'a str, Vec<&'a Value>>;

impl<'a> Walk<'a, '_> {
    /// Conditions that read the same and refer to what changed.
    pub(super) fn hidden(
        &mut self,
        old: &BTreeMap<&'a str, &'a Value>,
        new: &BTreeMap<&'a str, &'a Value>,
        at: &Place,
    ) {
        for (name, before) in old {
            let refers = || {
                let text = before.to_string();
                text.contains("\"$ref\"") || text.contains("Ref\"")
            };
            if new.get(name) != Some(before) || !(holds(name) == Holds::Reference || refers()) {
                continue;
            }
            let Some((before, after)) = self.plain(holds(name), (&[before], &[before])) else {
                return self.leave_untold(at);
            };
            if before.is_whole && after.is_whole && !before.is_like(&after) {
                self.tell_of(Class::Narrowed, at, &format!("`{name}` changed"));
            } else if !before.is_like(&after) {
                self.leave_untold(at);
            }
        }
    }

    /// Of what is said in several layers, the walk looks at the first.
    pub(super) fn stacked(&mut self, old: &Layers<'a>, new: &Layers<'a>, at: &Place) {
        if old.maps.len() < 2 && new.maps.len() < 2 {
            return;
        }
        for (name, before, after) in several(&keywords(old), &keywords(new)) {
            self.compare_untold(holds(name), (&before, &after), at);
        }
        for (name, before, after) in several(&fields(old), &fields(new)) {
            self.compare_untold(Holds::Schema, (&before, &after), &at.field(name));
        }
    }

    /// Schemas of which not all was looked at.
    pub(super) fn cut(&mut self, old: &[&'a Value], new: &[&'a Value], at: &Place) {
        self.compare_untold(Holds::Schema, (old, new), at);
    }

    /// The same reference on both sides, which is not followed; what it means may stand among the definitions.
    pub(super) fn lost(&mut self, reference: &Value, at: &Place) {
        let is_within = reference.as_str().is_some_and(|reference| reference.starts_with('#'));
        if self.untold.is_some() || !is_within {
            return;
        }
        let differ = |name: &str| self.old_root.get(name) != self.new_root.get(name);
        let differ = || ["$defs", "definitions"].into_iter().any(differ);
        if *self.definitions_differ.get_or_insert_with(differ) {
            self.leave_untold(at);
        }
    }

    fn compare_untold(&mut self, what: Holds, sides: (&[&'a Value], &[&'a Value]), at: &Place) {
        // One is enough to know that there is more.
        if self.untold.is_some() {
            return;
        }
        let is_like = self.plain(what, sides).is_some_and(|(before, after)| before.is_like(&after));
        if !is_like {
            self.leave_untold(at);
        }
    }

    /// Nothing once the allowance is spent: each pair may take as much work as a whole schema.
    fn plain(&mut self, what: Holds, (old, new): (&[&'a Value], &[&'a Value])) -> Option<(Plain, Plain)> {
        if self.allowance.is_spent() {
            return None;
        }
        let before = Plain::within(self.old_root, what, old);
        let after = Plain::within(self.new_root, what, new);
        self.allowance.spend(before.work + after.work);
        Some((before, after))
    }

    fn leave_untold(&mut self, at: &Place) {
        let side = self.side;
        self.untold.get_or_insert_with(|| side.predicate(at, &Became::Untold));
    }
}

/// The names under which one of both has more than one.
fn several<'a>(old: &Stack<'a>, new: &Stack<'a>) -> Vec<(&'a str, Vec<&'a Value>, Vec<&'a Value>)> {
    let names: BTreeSet<&'a str> = old.keys().chain(new.keys()).copied().collect();
    let under = |stack: &Stack<'a>, name: &str| stack.get(name).cloned().unwrap_or_default();
    let both = names.into_iter().map(|name| (name, under(old, name), under(new, name)));
    both.filter(|(_, before, after)| before.len() > 1 || after.len() > 1).collect()
}

fn keywords<'a>(layers: &Layers<'a>) -> Stack<'a> {
    let all = layers.maps.iter().flat_map(|layer| layer.iter());
    stack(all.filter(|(name, _)| !IN_ALL_LAYERS.contains(&name.as_str()) && !says_nothing_of_values(name)))
}

fn fields<'a>(layers: &Layers<'a>) -> Stack<'a> {
    let properties = layers.maps.iter().filter_map(|layer| layer.get("properties").and_then(Value::as_object));
    stack(properties.flatten())
}

fn stack<'a>(all: impl Iterator<Item = (&'a String, &'a Value)>) -> Stack<'a> {
    let mut stack = Stack::new();
    for (name, value) in all {
        stack.entry(name.as_str()).or_default().push(value);
    }
    stack
}
