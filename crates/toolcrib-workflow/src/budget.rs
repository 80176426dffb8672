//! Limit on the work of evaluating conditions in one workflow execution. Conditions come from an untrusted document,
//! and the values that they test from a server, so neither may determine how long the evaluation takes.
//!
//! The budget belongs to the execution and not to the condition: a document may have a thousand conditions, or repeat
//! one in a loop, and each would be cheap alone.

use std::cell::Cell;

use serde_json::Value;
use toolcrib_openapi::expression::approximate_size;

/// Maximum number of steps. A step is one visited node or a few compared bytes; all of them take a few tenths of a
/// second, which is acceptable on an async worker.
const MAX_CONDITION_STEPS: usize = 2_000_000;
/// Number of bytes that are compared in the time of one step.
const COMPARED_BYTES_PER_STEP: usize = 16;
/// Cost of matching one byte with a pattern, which takes up to a few microseconds; see
/// [`compile_pattern`](super::criterion::compile_pattern).
const STEPS_PER_MATCHED_BYTE: usize = 4;

/// Remaining steps, shared by all conditions of one execution. A [`Cell`], because evaluation borrows the execution
/// that owns the budget.
#[derive(Debug)]
pub struct ConditionBudget(Cell<usize>);

impl Default for ConditionBudget {
    fn default() -> ConditionBudget {
        ConditionBudget(Cell::new(MAX_CONDITION_STEPS))
    }
}

impl ConditionBudget {
    /// Takes steps from the budget; fails, and leaves nothing, if too few are left.
    pub(super) fn spend(&self, steps: usize) -> Result<(), String> {
        let remaining = self.0.get().checked_sub(steps);
        self.0.set(remaining.unwrap_or(0));
        remaining.map(|_| ()).ok_or_else(|| "evaluating the conditions takes too many steps".to_owned())
    }

    /// Charges the budget for comparing a value with another. Estimating its size takes no longer than the comparison.
    pub(super) fn spend_on_comparison(&self, value: &Value) -> Result<(), String> {
        self.spend(1 + approximate_size(value) / COMPARED_BYTES_PER_STEP)
    }

    /// Charges the budget for matching a text with a pattern.
    pub(super) fn spend_on_match(&self, text: &str) -> Result<(), String> {
        self.spend(1 + text.len().saturating_mul(STEPS_PER_MATCHED_BYTE))
    }
}
