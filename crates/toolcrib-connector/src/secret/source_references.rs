//! [`SourceReferences`]: the references of one source, with the redactor for every value they have had.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use toolcrib_core::source::SourceKind;

use super::{ReferenceValues, SecretFiles, file_paths};
use crate::redact::{Redactor, credential_values, secret_values};

/// Maximum number of values of one source. Beyond it all earlier values are forgotten, which only happens with
/// credentials that change constantly.
const MAX_SECRET_VALUES: usize = 10_000;

/// References of one source, shared by its connector and all code that reports its errors. Reads the values when a
/// connection or a request needs them. The redactor keeps values of earlier connections, since their servers may still
/// send them.
#[derive(Debug)]
pub struct SourceReferences {
    /// As declared.
    kind: SourceKind,
    /// Files that the references name.
    paths: BTreeSet<String>,
    files: Arc<SecretFiles>,
    known: Mutex<KnownValues>,
}

/// Secrets seen so far.
#[derive(Debug, Default)]
struct KnownValues {
    /// Whole values and their parts, in plain spelling.
    values: BTreeSet<String>,
    /// Built from `values` on demand.
    redactor: Option<Arc<Redactor>>,
    /// The newest values of the configuration; they are among `values`. `None` before the first use.
    configured: Option<ReferenceValues>,
    /// Whether `configured` was read and not taken by `take_new_values` yet.
    is_new: bool,
}

impl SourceReferences {
    /// References of a configuration. Reads nothing.
    pub fn new(kind: SourceKind, files: Arc<SecretFiles>) -> SourceReferences {
        SourceReferences { paths: file_paths(&kind), kind, files, known: Mutex::default() }
    }

    /// Reads the current values, once for everything that a connection needs, and adds them to the redactor.
    pub async fn read(&self) -> ReferenceValues {
        let values = self.files.read_all(&self.paths).await;
        let is_known = self.known.lock().configured.as_ref() == Some(&values);
        if !is_known {
            self.add(secret_values(&self.kind, &values));
            let mut known = self.known.lock();
            known.configured = Some(values.clone());
            known.is_new = true;
        }
        values
    }

    /// Returns the newest values if they differ from those before and were not returned yet.
    pub fn take_new_values(&self) -> Option<ReferenceValues> {
        let mut known = self.known.lock();
        if !std::mem::take(&mut known.is_new) {
            return None;
        }
        known.configured.clone()
    }

    /// Returns the redactor for all values so far. Building one compiles an automaton, so it is kept until values are
    /// added.
    pub fn redactor(&self) -> Arc<Redactor> {
        let is_configured = self.known.lock().configured.is_some();
        if !is_configured {
            // Before the first connection no text contains what is in a file, so none is read for this.
            let without_files = ReferenceValues::default();
            self.add(secret_values(&self.kind, &without_files));
            self.known.lock().configured.get_or_insert(without_files);
        }
        let mut known = self.known.lock();
        let KnownValues { values, redactor, .. } = &mut *known;
        redactor.get_or_insert_with(|| Arc::new(Redactor::new(values))).clone()
    }

    /// Adds a credential obtained at run time, such as an access token, to the redactor.
    pub fn add_credential(&self, value: &str) {
        let is_known = self.known.lock().values.contains(value);
        if !is_known {
            self.add(credential_values(value));
        }
    }

    /// Returns the reader of files that all sources share.
    pub fn files(&self) -> &SecretFiles {
        &self.files
    }

    /// Adds values and drops the outdated redactor.
    fn add(&self, values: BTreeSet<String>) {
        let mut known = self.known.lock();
        if values.is_subset(&known.values) {
            return;
        }
        // Start over with the configuration.
        if known.values.len() + values.len() > MAX_SECRET_VALUES {
            let configured = known.configured.as_ref().map(|configured| secret_values(&self.kind, configured));
            known.values = configured.unwrap_or_default();
        }
        known.values.extend(values);
        known.redactor = None;
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::source::StdioSource;

    use super::*;

    #[tokio::test]
    async fn a_rotated_file_is_read_again_and_its_earlier_value_stays_redacted() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let text = format!("${{file:{}}}", file.display());
        let kind = SourceKind::Stdio(StdioSource { args: vec![text.clone()], ..StdioSource::default() });
        let references = SourceReferences::new(kind, Arc::default());
        for token in ["first-token", "second-token"] {
            std::fs::write(&file, token).unwrap();
            assert_eq!(references.read().await.resolve(&text).unwrap(), token);
            assert_eq!(references.take_new_values().unwrap().resolve(&text).unwrap(), token);
            references.read().await;
            assert!(references.take_new_values().is_none(), "the value is the same");
        }
        references.add_credential("granted-token");
        let redacted = references.redactor().redact("first-token second-token granted-token").into_owned();
        assert_eq!(redacted, "*** *** ***");
    }
}
