//! Where the operations of an API are among its tools. Looked for once for each list of tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::arazzo::OperationReference;
use toolcrib_core::catalog::{CatalogSource, Segment};
use toolcrib_core::execution::Operation;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::openapi::sanitize_name;
use toolcrib_core::{Result, SourceId};

use crate::connector::openapi::run_blocking;

#[derive(Debug, Default)]
pub(super) struct OperationLookup(Mutex<BTreeMap<SourceId, Arc<OperationIndex>>>);

/// Positions among the entries of a segment.
#[derive(Debug, Default)]
struct OperationIndex {
    fingerprint: Option<Fingerprint>,
    by_id: BTreeMap<String, usize>,
    by_path: BTreeMap<String, usize>,
}

impl OperationLookup {
    /// The position of the tool and its operation.
    pub(super) async fn find(
        &self,
        part: &Arc<CatalogSource>,
        wanted: &OperationReference,
    ) -> Result<Option<(usize, Operation)>> {
        let segment = &part.segment;
        if let OperationReference::Id(id) = wanted
            && let Some(position) = segment.position_of_original(&sanitize_name(id))
            && let Some(operation) = operation_at(segment, position)?
            && operation.operation_id.as_deref().map(str::trim) == Some(id.trim())
        {
            return Ok(Some((position, operation)));
        }
        let known = self.lock_indexes().get(segment.source()).cloned();
        let index = match known.filter(|index| index.fingerprint == Some(segment.fingerprint())) {
            Some(index) => index,
            None => {
                let segment = segment.clone();
                let index = run_blocking(move || OperationIndex::build(&segment)).await?;
                let index = Arc::new(index);
                self.lock_indexes().insert(part.segment.source().clone(), index.clone());
                index
            }
        };
        let position = match wanted {
            OperationReference::Id(id) => index.by_id.get(id.trim()),
            OperationReference::Path { method, path } => index.by_path.get(&path_key(method, path)),
        };
        let Some(&position) = position else { return Ok(None) };
        Ok(operation_at(segment, position)?.map(|operation| (position, operation)))
    }

    fn lock_indexes(&self) -> MutexGuard<'_, BTreeMap<SourceId, Arc<OperationIndex>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationIndex {
    fn build(segment: &Segment) -> Result<OperationIndex> {
        let mut index = OperationIndex { fingerprint: Some(segment.fingerprint()), ..OperationIndex::default() };
        for position in 0..segment.entries().len() {
            let Some(operation) = operation_at(segment, position)? else { continue };
            index.by_path.insert(path_key(&operation.method, &operation.path), position);
            if let Some(id) = operation.operation_id {
                index.by_id.entry(id.trim().to_owned()).or_insert(position);
            }
        }
        Ok(index)
    }
}

fn operation_at(segment: &Segment, position: usize) -> Result<Option<Operation>> {
    let Some(entry) = segment.entries().get(position) else { return Ok(None) };
    Ok(segment.tool(entry)?.parse_execution_spec().and_then(|backing| backing.execution.operation().cloned()))
}

fn path_key(method: &str, path: &str) -> String {
    format!("{method} {path}")
}
