//! Statistics: cache hits, ages of tool lists, calls and errors.
//!
//! Counts cover all processes on the store since it was created; `metrics` counts this process since its start.

use std::collections::HashMap;

use serde::Serialize;
use toolcrib_core::freshness::Freshness;
use toolcrib_core::principal::Principal;
use toolcrib_core::{Result, SourceId, Timestamp};

use super::Registry;
use crate::metrics::MetricsSnapshot;
use crate::state::SourceToolNames;
use crate::store::{CallCount, ErrorSummary, UsageCounts};

/// Statistics of a registry, as `stats` shows them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// Number of tools that the principal may see.
    pub tool_count: usize,
    /// Requests for a source's tools that found the list fresh.
    pub hits: u64,
    /// Requests that found a stale list or none.
    pub misses: u64,
    /// Ratio of hits among all requests; `None` without any.
    pub hit_ratio: Option<f64>,
    /// Number of calls, failed ones included.
    pub calls: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// Cache lookups by source, ordered by id.
    pub sources: Vec<SourceStats>,
    /// Calls by tool.
    pub tools: Vec<ToolStats>,
}

/// Statistics of one source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SourceStats {
    /// The source.
    pub id: SourceId,
    /// Time since the last successful discovery.
    pub cache_age_ms: Option<u64>,
    /// Whether the list is stale or missing.
    pub expired: bool,
    /// Requests that found the list fresh.
    pub hits: u64,
    /// Requests that found a stale list or none.
    pub misses: u64,
}

/// Statistics of one tool that was called.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolStats {
    /// Name that agents use.
    pub name: String,
    /// Number of calls, failed ones included.
    pub calls: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// End of the last call.
    pub last_called: Option<Timestamp>,
    /// Reason of the last failed call.
    pub last_error: Option<ErrorSummary>,
}

/// Counts of calls, cache lookups and tokens; see [`Registry::statistics`].
#[derive(Debug, Clone, Copy)]
pub struct Statistics<'a> {
    pub(super) registry: &'a Registry,
    pub(super) principal: &'a Principal,
}

impl Statistics<'_> {
    /// Reads the counts from the store. A registry that follows writes of other processes does so by itself. A
    /// short-lived command calls it once before [`Statistics::totals`].
    pub async fn load(&self) -> Result<()> {
        self.registry.dispatcher.monitoring.usage.load(&*self.registry.state.store).await
    }
    /// Returns the counts of this process, and of other processes on the same store as of the last read: those of the
    /// sources and tools that the principal may know of, with their sums.
    pub fn totals(&self) -> Stats {
        let visibility = self.registry.visibility(self.principal);
        let snapshot = visibility.snapshot();
        let UsageCounts { mut calls, cache_lookups } = self.registry.dispatcher.monitoring.usage.total();
        calls.retain(|_, count| visibility.shows_tool(&count.source, &count.tool));
        let sources: Vec<SourceStats> = snapshot
            .inventory
            .sources()
            .filter(|(id, _)| visibility.shows_source(id))
            .map(|(id, _)| {
                let checked_at = snapshot.statuses.get(id).and_then(|status| status.checked_at);
                let age = checked_at.map(|at| self.registry.state.now().since(at).as_millis() as u64);
                let lookups = cache_lookups.get(id);
                SourceStats {
                    id: id.clone(),
                    cache_age_ms: age,
                    expired: snapshot.freshness(id, self.registry.state.now()) != Freshness::Fresh,
                    hits: lookups.map_or(0, |lookups| lookups.hits),
                    misses: lookups.map_or(0, |lookups| lookups.misses),
                }
            })
            .collect();
        let (hits, misses) =
            sources.iter().fold((0, 0), |(hits, misses), source| (hits + source.hits, misses + source.misses));
        // Only tools that were called have counts.
        let names: HashMap<&SourceId, SourceToolNames<'_>> =
            calls.values().map(|count| (&count.source, snapshot.tool_names(&count.source))).collect();
        let tool_stats = |count: &CallCount| ToolStats {
            name: names
                .get(&count.source)
                .map_or_else(|| count.tool.clone(), |names| names.name(&count.tool).to_string()),
            calls: count.calls,
            errors: count.errors,
            last_called: count.last_called,
            last_error: (count.last_error.clone())
                .map(|error| visibility.restrict_call_error(&count.source, Some(&count.tool), error)),
        };
        let mut tools: Vec<ToolStats> = calls.values().map(tool_stats).collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        Stats {
            tool_count: visibility.view().tool_count(),
            hits,
            misses,
            hit_ratio: (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64),
            calls: calls.values().map(|count| count.calls).sum(),
            errors: calls.values().map(|count| count.errors).sum(),
            sources,
            tools,
        }
    }
    /// Returns what this process has counted since it opened the registry.
    pub fn metrics(&self) -> MetricsSnapshot {
        let limited_sources = self.registry.connectors.limited_calls();
        MetricsSnapshot { limited_sources, ..self.registry.dispatcher.monitoring.metrics_snapshot() }
    }
    /// Counts the tokens of tools that were not counted when they were recorded, so that
    /// [`View::full_token_count`](toolcrib_catalog::View::full_token_count) only has to add them up. Those are the
    /// built-in tools, because no start waits for the tokenizer, and lists that an older version recorded. Lists with
    /// `tokens` call it first.
    pub async fn count_tokens(&self) {
        self.registry.token_counter.count_tokens().await;
    }
}
