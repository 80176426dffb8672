//! What a comparison has found so far: the worst class, and so many notes as a reader will read.

use std::collections::{BTreeMap, HashSet};

use super::{ChangeClass, ToolComparison};

/// Of each class as many as all that are told, so that the worst come first however many others there are.
const MAX_NOTES: usize = 12;

#[derive(Debug, Default)]
pub(super) struct Findings {
    notes: Vec<(ChangeClass, String)>,
    seen_notes: HashSet<String>,
    notes_per_class: BTreeMap<usize, usize>,
    worst: Option<ChangeClass>,
    worst_in_section: Option<ChangeClass>,
    count: usize,
}

impl Findings {
    /// A note is only put into words when it may be told.
    pub(super) fn add(&mut self, class: ChangeClass, note: impl FnOnce() -> String) {
        let worse = |worst: Option<ChangeClass>| worst.is_none_or(|worst| worst.severity() < class.severity());
        if worse(self.worst) {
            self.worst = Some(class);
        }
        if worse(self.worst_in_section) {
            self.worst_in_section = Some(class);
        }
        let kept = self.notes_per_class.entry(class.severity()).or_default();
        if *kept < MAX_NOTES {
            let note = note();
            if !self.seen_notes.insert(note.clone()) {
                return;
            }
            *kept += 1;
            self.notes.push((class, note));
        }
        self.count += 1;
    }

    /// From here on the worst is counted anew, by [`Findings::worst_of_part`].
    pub(super) fn begin_section(&mut self) {
        self.worst_in_section = None;
    }

    pub(super) fn worst_in_section(&self) -> Option<ChangeClass> {
        self.worst_in_section
    }

    /// The worst first, else in the order of finding.
    pub(super) fn into_comparison(mut self) -> ToolComparison {
        let Some(class) = self.worst else {
            return ToolComparison {
                class: ChangeClass::Other,
                notes: vec!["changed in a way that is not told apart".to_owned()],
            };
        };
        self.notes.sort_by_key(|(class, _)| std::cmp::Reverse(class.severity()));
        let mut notes: Vec<String> = self.notes.into_iter().map(|(_, note)| note).collect();
        notes.truncate(MAX_NOTES);
        if self.count > notes.len() {
            notes.push(format!("and {} more changes", self.count - notes.len()));
        }
        ToolComparison { class, notes }
    }
}
