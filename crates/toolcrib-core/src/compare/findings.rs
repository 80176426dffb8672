//! What a comparison has found so far: the worst class, and so many notes as a reader will read.

use std::collections::{BTreeMap, HashSet};

use super::{Class, Comparison};

/// Of each class as many as all that are told, so that the worst come first however many others there are.
const MOST_NOTES: usize = 12;

#[derive(Debug, Default)]
pub(super) struct Findings {
    notes: Vec<(Class, String)>,
    told: HashSet<String>,
    by_class: BTreeMap<usize, usize>,
    worst: Option<Class>,
    worst_of_part: Option<Class>,
    count: usize,
}

impl Findings {
    /// A note is only put into words when it may be told.
    pub(super) fn add(&mut self, class: Class, note: impl FnOnce() -> String) {
        let worse = |worst: Option<Class>| worst.is_none_or(|worst| worst.rank() < class.rank());
        if worse(self.worst) {
            self.worst = Some(class);
        }
        if worse(self.worst_of_part) {
            self.worst_of_part = Some(class);
        }
        let kept = self.by_class.entry(class.rank()).or_default();
        if *kept < MOST_NOTES {
            let note = note();
            if !self.told.insert(note.clone()) {
                return;
            }
            *kept += 1;
            self.notes.push((class, note));
        }
        self.count += 1;
    }

    /// From here on the worst is counted anew, by [`Findings::worst_of_part`].
    pub(super) fn begin_part(&mut self) {
        self.worst_of_part = None;
    }

    pub(super) fn worst_of_part(&self) -> Option<Class> {
        self.worst_of_part
    }

    /// The worst first, else in the order of finding.
    pub(super) fn conclude(mut self) -> Comparison {
        let Some(class) = self.worst else {
            return Comparison {
                class: Class::Other,
                notes: vec!["changed in a way that is not told apart".to_owned()],
            };
        };
        self.notes.sort_by_key(|(class, _)| std::cmp::Reverse(class.rank()));
        let mut notes: Vec<String> = self.notes.into_iter().map(|(_, note)| note).collect();
        notes.truncate(MOST_NOTES);
        if self.count > notes.len() {
            notes.push(format!("and {} more changes", self.count - notes.len()));
        }
        Comparison { class, notes }
    }
}
