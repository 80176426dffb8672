//! What deciding conditions may cost in one run. Conditions come from a document and what they look at from a server, so
//! that neither says how long it takes.

use std::cell::Cell;

use serde_json::Value;

use crate::expression::approximate_size;

/// One step is a node that a query looks at, or a few bytes that are compared. All of them take some tenths of a second:
/// conditions are decided on an async worker.
const MAX_CONDITION_STEPS: usize = 2_000_000;
const COMPARED_BYTES_PER_STEP: usize = 16;
/// A pattern takes up to some microseconds for each byte, see [`super::criterion::pattern`].
const STEPS_PER_MATCHED_BYTE: usize = 4;

#[derive(Debug)]
pub struct ConditionBudget(Cell<usize>);

impl Default for ConditionBudget {
    fn default() -> ConditionBudget {
        ConditionBudget(Cell::new(MAX_CONDITION_STEPS))
    }
}

impl ConditionBudget {
    pub(super) fn spend(&self, steps: usize) -> Result<(), String> {
        let left = self.0.get().checked_sub(steps);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or_else(|| "deciding the conditions takes too many steps".to_owned())
    }

    /// Comparing a value with another; weighing it takes no longer than that.
    pub(super) fn spend_on_comparison(&self, value: &Value) -> Result<(), String> {
        self.spend(1 + approximate_size(value) / COMPARED_BYTES_PER_STEP)
    }

    pub(super) fn spend_on_match(&self, text: &str) -> Result<(), String> {
        self.spend(1 + text.len().saturating_mul(STEPS_PER_MATCHED_BYTE))
    }
}
