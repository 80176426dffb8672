//! Snapshot of the inventory: the folded journal up to one record, so that a start need not read the records before it.
//!
//! Only a copy of what the journal says: it may be missing, outdated, damaged or of another version at any time, and is
//! then ignored.

use sha2::{Digest, Sha256};
use toolcrib_core::fingerprint::Fingerprint;

use super::JournalPosition;

/// A snapshot of the inventory as it is stored. A store has at most one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// The last record that the snapshot contains.
    pub position: JournalPosition,
    /// Version of the program that wrote the snapshot. Other versions do not use it.
    pub version: String,
    /// The folded state as JSON.
    pub body: String,
    /// Result of [`compute_checksum`](StoredSnapshot::compute_checksum) when the snapshot was written.
    pub checksum: String,
}

impl StoredSnapshot {
    /// Creates a snapshot with its checksum.
    pub fn new(position: JournalPosition, version: &str, body: String) -> StoredSnapshot {
        let snapshot = StoredSnapshot { position, version: version.to_owned(), body, checksum: String::new() };
        StoredSnapshot { checksum: snapshot.compute_checksum(), ..snapshot }
    }

    /// Computes the checksum over all other fields.
    pub fn compute_checksum(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.position.seq.to_le_bytes());
        for text in [&self.position.checksum, &self.version, &self.body] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        Fingerprint::from_bytes(hash.finalize().into()).to_string()
    }
}
