//! [`Precondition`]: a condition under which a change is made, such as `If-Match` of an HTTP request.

use std::fmt;

use toolcrib_core::Result;
use toolcrib_core::inventory::Inventory;

/// Condition on the inventory under which a change is made. Checked in the write itself, on the state that the change is
/// decided on, so no other change comes in between. It may be checked several times.
#[derive(Clone, Copy)]
pub struct Precondition<'a>(&'a (dyn Fn(&Inventory) -> Result<()> + Send + Sync));

impl<'a> Precondition<'a> {
    /// Holds always.
    pub(crate) const NONE: Precondition<'static> = Precondition(&|_| Ok(()));

    /// Holds if `check` succeeds; its error is that of the change.
    pub fn new(check: &'a (dyn Fn(&Inventory) -> Result<()> + Send + Sync)) -> Precondition<'a> {
        Precondition(check)
    }

    pub(crate) fn check(self, inventory: &Inventory) -> Result<()> {
        (self.0)(inventory)
    }
}

impl fmt::Debug for Precondition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Precondition")
    }
}
