//! Where the operations of an API are among its tools. Looked for once for each list of tools.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::arazzo::OperationReference;
use toolcrib_core::catalog::{Part, Segment};
use toolcrib_core::execution::Operation;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::openapi::legal;
use toolcrib_core::{Result, SourceId};

use crate::connector::openapi::apart;

#[derive(Debug, Default)]
pub(super) struct Operations(Mutex<BTreeMap<SourceId, Arc<Index>>>);

/// Positions among the entries of a segment.
#[derive(Debug, Default)]
struct Index {
    of: Option<Fingerprint>,
    by_id: BTreeMap<String, usize>,
    by_line: BTreeMap<String, usize>,
}

impl Operations {
    /// The position of the tool and its operation.
    pub(super) async fn find(
        &self,
        part: &Arc<Part>,
        wanted: &OperationReference,
    ) -> Result<Option<(usize, Operation)>> {
        let segment = &part.segment;
        if let OperationReference::Id(id) = wanted
            && let Some(position) = segment.position_of_original(&legal(id))
            && let Some(operation) = operation(segment, position)?
            && operation.operation_id.as_deref().map(str::trim) == Some(id.trim())
        {
            return Ok(Some((position, operation)));
        }
        let known = self.indices().get(segment.source()).cloned();
        let index = match known.filter(|index| index.of == Some(segment.fingerprint())) {
            Some(index) => index,
            None => {
                let segment = segment.clone();
                let index = apart(move || Index::of(&segment)).await?;
                let index = Arc::new(index);
                self.indices().insert(part.segment.source().clone(), index.clone());
                index
            }
        };
        let position = match wanted {
            OperationReference::Id(id) => index.by_id.get(id.trim()),
            OperationReference::Path { method, path } => index.by_line.get(&line(method, path)),
        };
        let Some(&position) = position else { return Ok(None) };
        Ok(operation(segment, position)?.map(|operation| (position, operation)))
    }

    fn indices(&self) -> MutexGuard<'_, BTreeMap<SourceId, Arc<Index>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn of(segment: &Segment) -> Result<Index> {
        let mut index = Index { of: Some(segment.fingerprint()), ..Index::default() };
        for position in 0..segment.entries().len() {
            let Some(operation) = operation(segment, position)? else { continue };
            index.by_line.insert(line(&operation.method, &operation.path), position);
            if let Some(id) = operation.operation_id {
                index.by_id.entry(id.trim().to_owned()).or_insert(position);
            }
        }
        Ok(index)
    }
}

fn operation(segment: &Segment, position: usize) -> Result<Option<Operation>> {
    let Some(entry) = segment.entries().get(position) else { return Ok(None) };
    Ok(segment.tool(entry)?.backing().and_then(|backing| backing.execution.operation().cloned()))
}

fn line(method: &str, path: &str) -> String {
    format!("{method} {path}")
}
