//! What a comparison has found so far: the worst class, and so many notes as a reader will read.

use super::{Class, Comparison};

const MOST_NOTES: usize = 12;
/// Kept while looking, so that the worst come first.
const MOST_KEPT: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Findings {
    notes: Vec<(Class, String)>,
    worst: Option<Class>,
    count: usize,
}

impl Findings {
    pub(super) fn add(&mut self, class: Class, note: String) {
        self.count += 1;
        if self.worst.is_none_or(|worst| worst.rank() < class.rank()) {
            self.worst = Some(class);
        }
        if self.notes.len() < MOST_KEPT {
            self.notes.push((class, note));
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The worst first, else in the order of finding.
    pub(super) fn conclude(mut self) -> Comparison {
        let Some(class) = self.worst else {
            return Comparison { class: Class::Other, notes: vec!["is written otherwise".to_owned()] };
        };
        self.notes.sort_by_key(|(class, _)| std::cmp::Reverse(class.rank()));
        let mut notes: Vec<String> = self.notes.into_iter().map(|(_, note)| note).collect();
        notes.dedup();
        notes.truncate(MOST_NOTES);
        if self.count > MOST_NOTES && notes.len() == MOST_NOTES {
            notes.push(format!("and {} more changes", self.count - MOST_NOTES));
        }
        Comparison { class, notes }
    }
}
