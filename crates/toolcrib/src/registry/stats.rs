//! Numbers: needs met from the cache, ages, calls and errors.

use serde::Serialize;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::tool::{SEPARATOR, ToolName};
use toolcrib_core::{Result, SourceId, Timestamp};

use super::Registry;
use crate::store::{CallCount, ErrorSummary};
use crate::usage::UsageCounts;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    pub tool_count: usize,
    /// A hit is a need met while the source was fresh.
    pub hits: u64,
    pub misses: u64,
    pub hit_ratio: Option<f64>,
    pub calls: u64,
    pub errors: u64,
    pub sources: Vec<SourceStats>,
    pub tools: Vec<ToolStats>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceStats {
    pub id: SourceId,
    pub cache_age_ms: Option<u64>,
    pub expired: bool,
    pub hits: u64,
    pub misses: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolStats {
    pub name: String,
    pub calls: u64,
    pub errors: u64,
    pub last_called: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
}

impl Registry {
    /// Takes in what the store holds of counts. A registry that follows others' writes does so by itself.
    pub async fn load_counts(&self) -> Result<()> {
        self.shared.usage.load(&*self.shared.store).await
    }

    /// What was counted, by this process, and by others on the same store as far as that was read.
    pub fn stats(&self) -> Stats {
        let snapshot = self.shared.snapshot.load_full();
        let UsageCounts { calls, cache_lookups: needs } = self.shared.usage.total();
        let sources: Vec<SourceStats> = snapshot
            .inventory
            .sources()
            .map(|(id, _)| {
                let checked_at = snapshot.statuses.get(id).and_then(|status| status.checked_at);
                let age = checked_at.map(|at| self.shared.options.clock.now().since(at).as_millis() as u64);
                let need = needs.get(id);
                SourceStats {
                    id: id.clone(),
                    cache_age_ms: age,
                    expired: self.shared.freshness(&snapshot, id) != Freshness::Fresh,
                    hits: need.map_or(0, |need| need.hits),
                    misses: need.map_or(0, |need| need.misses),
                }
            })
            .collect();
        let (hits, misses) =
            sources.iter().fold((0, 0), |(hits, misses), source| (hits + source.hits, misses + source.misses));
        let mut tools: Vec<ToolStats> = calls.values().map(|count| self.tool_stats(count)).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Stats {
            tool_count: snapshot.catalog.tools().count(),
            hits,
            misses,
            hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            calls: calls.values().map(|count| count.calls).sum(),
            errors: calls.values().map(|count| count.errors).sum(),
            sources,
            tools,
        }
    }

    fn tool_stats(&self, count: &CallCount) -> ToolStats {
        let catalog = self.catalog();
        let segment = catalog.source(&count.source).map(|part| &part.segment);
        let position = segment.and_then(|segment| segment.position_of_original(&count.tool));
        let entry = segment.zip(position).and_then(|(segment, position)| segment.entries().get(position));
        let gone = || ToolName::from_original(&format!("{}{SEPARATOR}", count.source), &count.tool).to_string();
        let name = entry.map_or_else(gone, |entry| entry.name.to_string());
        ToolStats {
            name,
            calls: count.calls,
            errors: count.errors,
            last_called: count.last_called,
            last_error: count.last_error.clone(),
        }
    }
}
