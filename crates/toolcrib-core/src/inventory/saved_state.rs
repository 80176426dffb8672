//! The folded state as JSON, so that a start need not fold the records before it again.
//!
//! Unlike events, this form is private to one version: it is read only by the version that wrote it, and may change with
//! any other. Tokens and rules are saved as the events that lead to them, sources field by field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::{Actor, Event, Inventory, Origin, Record, SourceState, ToolState};
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::source::SourceId;
use crate::time::Timestamp;

/// Number of the form. Incremented by every change of it, for builds between two releases.
const FORMAT: u32 = 1;

/// An inventory as it is saved.
#[derive(Serialize, Deserialize)]
struct SavedInventory {
    format: u32,
    version: u64,
    unknown_events: u64,
    sources: Vec<SavedSource>,
    /// Events that lead to the tokens and rules, with the times of their records. Times are numbers: as text, those
    /// beyond the calendar would change.
    events: Vec<(i64, Event)>,
}

/// A source, removed or not. Has the fields of [`SourceState`].
#[derive(Serialize, Deserialize)]
struct SavedSource {
    id: SourceId,
    kind: String,
    origin: Origin,
    definition: Fingerprint,
    declared_enabled: Option<bool>,
    enabled_reference: Option<Fingerprint>,
    enabled: bool,
    switched: Option<bool>,
    removed: bool,
    manifest: Option<Fingerprint>,
    features: Option<Fingerprint>,
    /// Name, creation, last change, disabled, deprecated.
    tools: Vec<(String, i64, i64, bool, bool)>,
    last_manifests: BTreeMap<String, Fingerprint>,
    withheld: BTreeSet<String>,
}

impl Inventory {
    /// Returns the state as JSON, for [`Inventory::from_saved_state`] of the same version of this program. Fails if the
    /// JSON would not lead to an equal state.
    pub fn to_saved_state(&self) -> Result<Box<RawValue>> {
        let tokens = self.tokens().map(|token| {
            let event = Event::TokenCreated {
                token: token.id.clone(),
                name: token.name().to_owned(),
                role: token.role(),
                hash: token.hash,
                expires_at: token.expires_at,
                groups: token.groups().to_vec(),
                claims: token.claims().as_map().clone(),
            };
            (token.created_at.0, event)
        });
        let rules = self.rules().iter().map(|(rule, origin)| (0, Event::rule_defined(rule, origin, false)));
        let saved = SavedInventory {
            format: FORMAT,
            version: self.version,
            unknown_events: self.unknown_events,
            sources: self.sources.iter().map(|(id, state)| SavedSource::new(id, state)).collect(),
            events: tokens.chain(rules).collect(),
        };
        let saved = to_raw_value(&saved).context(Code::Internal, "write the inventory as JSON")?;
        if Inventory::from_saved_state(saved.get())? == *self {
            Ok(saved)
        } else {
            Err(Error::new(Code::Internal, "the inventory cannot be saved without loss"))
        }
    }

    /// Returns the state that [`Inventory::to_saved_state`] returned as JSON. Fails for any other JSON.
    pub fn from_saved_state(saved: &str) -> Result<Inventory> {
        let saved: SavedInventory = serde_json::from_str(saved).context(Code::Internal, "read a saved inventory")?;
        if saved.format != FORMAT {
            let message = format!("the inventory was saved in format {}, this version has {FORMAT}", saved.format);
            return Err(Error::new(Code::Internal, message));
        }
        let mut inventory = Inventory::default();
        let actor = Actor::system();
        for (at, event) in saved.events {
            inventory.apply(&Record { seq: saved.version, at: Timestamp(at), actor: actor.clone(), event });
        }
        inventory.sources = saved.sources.into_iter().map(SavedSource::into_state).collect();
        inventory.version = saved.version;
        inventory.unknown_events = saved.unknown_events;
        Ok(inventory)
    }
}

impl SavedSource {
    fn new(id: &SourceId, state: &SourceState) -> SavedSource {
        let SourceState {
            kind,
            origin,
            definition,
            declared_enabled,
            enabled_reference,
            enabled,
            switched,
            removed,
            manifest,
            features,
            tools,
            last_manifests,
            withheld,
        } = state.clone();
        let saved_tool = |(name, tool): (String, ToolState)| {
            let ToolState { created_at, updated_at, disabled, deprecated } = tool;
            (name, created_at.0, updated_at.0, disabled, deprecated)
        };
        SavedSource {
            id: id.clone(),
            kind,
            origin,
            definition,
            declared_enabled,
            enabled_reference,
            enabled,
            switched,
            removed,
            manifest,
            features,
            tools: tools.into_iter().map(saved_tool).collect(),
            last_manifests,
            withheld,
        }
    }

    fn into_state(self) -> (SourceId, Arc<SourceState>) {
        let SavedSource {
            id,
            kind,
            origin,
            definition,
            declared_enabled,
            enabled_reference,
            enabled,
            switched,
            removed,
            manifest,
            features,
            tools,
            last_manifests,
            withheld,
        } = self;
        let tool = |(name, created_at, updated_at, disabled, deprecated)| {
            let (created_at, updated_at) = (Timestamp(created_at), Timestamp(updated_at));
            (name, ToolState { created_at, updated_at, disabled, deprecated })
        };
        let state = SourceState {
            kind,
            origin,
            definition,
            declared_enabled,
            enabled_reference,
            enabled,
            switched,
            removed,
            manifest,
            features,
            tools: tools.into_iter().map(tool).collect(),
            last_manifests,
            withheld,
        };
        (id, Arc::new(state))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every event of the journal's history, for one of three sources, tokens, tools, groups.
    fn events() -> impl Strategy<Value = Event> {
        let golden: Vec<&str> = include_str!("golden_events.jsonl").lines().collect();
        (prop::sample::select(golden), 0..3_u8).prop_map(|(line, number)| {
            let line = ["git", "push", "support", "3f9c01d2a4b7"].iter().fold(line.to_owned(), |line, name| {
                let other =
                    if *name == "3f9c01d2a4b7" { format!("3f9c01d2a4b{number}") } else { format!("{name}{number}") };
                line.replace(&format!("\"{name}\""), &format!("\"{other}\""))
            });
            serde_json::from_str(&line).unwrap()
        })
    }

    fn apply_all(inventory: &mut Inventory, events: &[Event]) {
        for event in events {
            let seq = inventory.version + 1;
            // Beyond the calendar, which has an end as text.
            let at = Timestamp(i64::MIN + seq.cast_signed() * 1_000_003);
            inventory.apply(&Record { seq, at, actor: Actor::new("test"), event: event.clone() });
        }
    }

    proptest! {
        #[test]
        fn a_saved_state_and_the_rest_equal_a_full_replay(
            events in prop::collection::vec(events(), 0..60), split in 0..60_usize
        ) {
            let split = split.min(events.len());
            let mut replay = Inventory::default();
            apply_all(&mut replay, &events);
            let mut begun = Inventory::default();
            apply_all(&mut begun, &events[..split]);
            let mut resumed = Inventory::from_saved_state(begun.to_saved_state().unwrap().get()).unwrap();
            prop_assert_eq!(&resumed, &begun);
            apply_all(&mut resumed, &events[split..]);
            prop_assert_eq!(resumed, replay);
        }
    }

    #[test]
    fn another_format_is_refused() {
        let saved = Inventory::default().to_saved_state().unwrap();
        assert_eq!(Inventory::from_saved_state(saved.get()).unwrap(), Inventory::default());
        let other_format = saved.get().replace(r#""format":1"#, r#""format":99"#);
        for text in [&other_format, "null", "{", ""] {
            Inventory::from_saved_state(text).unwrap_err();
        }
    }
}
