//! What a configuration, read again, wishes for. Only sources that came from a configuration are touched.

use super::{Command, Declaration, Inventory, Origin};
use crate::source::SourceId;

/// `declared` are the valid sources of the configuration, `invalid` the ids of those it states wrongly:
/// a mistake in a file removes nothing.
pub fn reconcile(inventory: &Inventory, declared: Vec<Declaration>, invalid: &[SourceId]) -> Vec<Command> {
    let gone: Vec<Command> = inventory
        .sources()
        .filter(|(_, state)| state.origin == Origin::Config)
        .filter(|(id, _)| !invalid.contains(id) && !declared.iter().any(|declaration| declaration.source == **id))
        .map(|(id, _)| Command::Remove(id.clone()))
        .collect();
    declared.into_iter().map(Command::Declare).chain(gone).collect()
}
