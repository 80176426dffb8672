//! Compares a configuration with the inventory. Sources that were declared at run time are left alone.
//! The result is a list of commands, which `Inventory::decide` turns into events; most of them change nothing at an
//! ordinary start.

use super::{Command, Declaration, Inventory, Origin};
use crate::source::SourceId;

/// Returns the commands that bring the inventory in line with a configuration: declare all its sources and remove those
/// that it no longer has. `invalid` are the ids of sources with errors, which are kept: a mistake in a file removes
/// nothing.
pub fn reconcile(inventory: &Inventory, declared: Vec<Declaration>, invalid: &[SourceId]) -> Vec<Command> {
    let gone: Vec<Command> = inventory
        .sources()
        .filter(|(_, state)| state.origin == Origin::Config)
        .filter(|(id, _)| !invalid.contains(id) && !declared.iter().any(|declaration| declaration.source == **id))
        .map(|(id, _)| Command::Remove(id.clone()))
        .collect();
    declared.into_iter().map(Command::Declare).chain(gone).collect()
}
