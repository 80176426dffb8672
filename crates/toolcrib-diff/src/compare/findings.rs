//! Collects the changes that a comparison finds: the worst class, and a bounded number of notes.
//!
//! Notes are written to the journal and read by people, so their number is bounded here and their length where they
//! are rendered. The class is exact, even if its note was dropped.

use std::collections::HashSet;

use super::{ChangeClass, ToolComparison};

/// Maximum number of notes in a result. As many are kept for each class, so that the most severe come first however
/// many milder ones were found before.
const MAX_NOTES: usize = 12;

/// Changes found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// In the order of finding.
    notes: Vec<(ChangeClass, String)>,
    /// The same note may be found again through another reference; it is kept and counted once.
    seen_notes: HashSet<String>,
    worst: Option<ChangeClass>,
    /// Worst class since [`Findings::begin_section`].
    pub(super) worst_in_section: Option<ChangeClass>,
    /// Number of changes, including those whose notes were dropped.
    count: usize,
}

impl Findings {
    /// Adds a change. `note` is only rendered if it may be kept. A note that was added before is not counted again,
    /// unless its class has reached its maximum of notes already.
    pub(super) fn add(&mut self, class: ChangeClass, note: impl FnOnce() -> String) {
        let worse = |worst: Option<ChangeClass>| worst.is_none_or(|worst| worst.severity() < class.severity());
        if worse(self.worst) {
            self.worst = Some(class);
        }
        if worse(self.worst_in_section) {
            self.worst_in_section = Some(class);
        }
        if self.notes.iter().filter(|(kept, _)| *kept == class).count() < MAX_NOTES {
            let note = note();
            if !self.seen_notes.insert(note.clone()) {
                return;
            }
            self.notes.push((class, note));
        }
        self.count += 1;
    }

    /// Resets [`Findings::worst_in_section`].
    pub(super) fn begin_section(&mut self) {
        self.worst_in_section = None;
    }

    /// Returns the result, with the most severe notes first and otherwise in the order of finding.
    pub(super) fn into_comparison(mut self) -> ToolComparison {
        // The caller knows that the tools differ, so finding nothing is not "no change".
        let Some(class) = self.worst else {
            return ToolComparison {
                class: ChangeClass::Other,
                notes: vec!["changed in a way that cannot be classified".to_owned()],
            };
        };
        // The sort is stable, so notes of one class stay in the order of finding.
        self.notes.sort_by_key(|(class, _)| std::cmp::Reverse(class.severity()));
        let mut notes: Vec<String> = self.notes.into_iter().map(|(_, note)| note).collect();
        notes.truncate(MAX_NOTES);
        if self.count > notes.len() {
            let more = self.count - notes.len();
            let noun = if more == 1 { "change" } else { "changes" };
            notes.push(format!("and {more} more {noun}"));
        }
        ToolComparison { class, notes }
    }
}
