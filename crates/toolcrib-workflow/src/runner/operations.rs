//! Finds the tool of an API operation by operation id or by method and path. The index is built once per tool list.
//!
//! The catalogue stores tools as text and parses them on demand. Finding `GET /pets/{id}` among them means to parse all
//! execution specifications, which is done on a blocking thread and kept until the list changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use toolcrib_catalog::{CatalogSource, Segment};
use toolcrib_connector::document::run_blocking;
use toolcrib_core::execution::Operation;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Result, SourceId};
use toolcrib_openapi::sanitize_name;

use super::step::document_error;
use crate::OperationReference;

/// Operation indexes by source.
#[derive(Debug, Default)]
pub(super) struct OperationLookup(Mutex<BTreeMap<SourceId, Arc<OperationIndex>>>);

/// Positions of operations among the entries of a catalogue segment.
#[derive(Debug, Default)]
struct OperationIndex {
    /// Fingerprint of the segment that the index was built from.
    fingerprint: Option<Fingerprint>,
    /// By `operationId`, without surrounding white space.
    by_id: BTreeMap<String, usize>,
    /// By path template, with the method of each operation.
    by_path: BTreeMap<String, BTreeMap<String, usize>>,
}

impl OperationLookup {
    /// Returns the position of the tool and its operation.
    pub(super) async fn find(
        &self,
        source: &Arc<CatalogSource>,
        reference: &OperationReference,
    ) -> Result<Option<(usize, Operation)>> {
        let segment = &source.segment;
        // Most tools are named after their operation id, so try that before building the index.
        if let OperationReference::Id(id) = reference
            && let Some(position) = segment.position_of_original(&sanitize_name(id))
            && let Some(operation) = operation_at(segment, position)?
            && operation.operation_id.as_deref().map(str::trim) == Some(id.trim())
        {
            return Ok(Some((position, operation)));
        }
        // The index is valid as long as the tool list has the same fingerprint.
        let cached = self.0.lock().get(segment.source()).cloned();
        let index = match cached.filter(|index| index.fingerprint == Some(segment.fingerprint())) {
            Some(index) => index,
            None => {
                let segment = segment.clone();
                let index = run_blocking(move || OperationIndex::build(&segment)).await?;
                let index = Arc::new(index);
                self.0.lock().insert(source.segment.source().clone(), index.clone());
                index
            }
        };
        let position = match reference {
            OperationReference::Id(id) => index.by_id.get(id.trim()),
            OperationReference::Path { method, path } => index.find_path(method.as_deref(), path)?,
        };
        let Some(&position) = position else { return Ok(None) };
        Ok(operation_at(segment, position)?.map(|operation| (position, operation)))
    }
}

impl OperationIndex {
    /// Parses the execution specification of every tool in the segment.
    fn build(segment: &Segment) -> Result<OperationIndex> {
        let mut index = OperationIndex { fingerprint: Some(segment.fingerprint()), ..OperationIndex::default() };
        for position in 0..segment.entries().len() {
            let Some(operation) = operation_at(segment, position)? else { continue };
            index.by_path.entry(operation.path).or_default().insert(operation.method, position);
            if let Some(id) = operation.operation_id {
                // An operation id should be unique in its document; if it is not, the first one counts.
                index.by_id.entry(id.trim().to_owned()).or_insert(position);
            }
        }
        Ok(index)
    }

    /// Returns the position of the operation of a path with a method, or of the only one of a path.
    fn find_path(&self, method: Option<&str>, path: &str) -> Result<Option<&usize>> {
        let Some(operations) = self.by_path.get(path) else { return Ok(None) };
        match (method, operations.len()) {
            (Some(method), _) => Ok(operations.get(method)),
            (None, 1) => Ok(operations.values().next()),
            (None, _) => {
                let path = sanitize_truncated(path, 120);
                let methods: Vec<String> =
                    operations.keys().map(|method| format!("`/{}`", method.to_lowercase())).collect();
                let message = format!(
                    "`operationPath` names no method, and `{path}` has several operations; add one of {}",
                    methods.join(", ")
                );
                Err(document_error(message))
            }
        }
    }
}

/// Operation of the tool at a position; `None` for tools that are no API operations.
fn operation_at(segment: &Segment, position: usize) -> Result<Option<Operation>> {
    let Some(entry) = segment.entries().get(position) else { return Ok(None) };
    Ok(segment.tool(entry)?.parse_execution_spec().and_then(|spec| spec.execution.operation().cloned()))
}
