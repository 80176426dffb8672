//! Number of calls per minute, for the last hour, by tool: who reads them may not know of every tool.
//!
//! Only minutes with calls are stored; the gaps are filled in when the hour is read.

use std::collections::{HashMap, VecDeque};

use toolcrib::SourceId;
use toolcrib::core::Timestamp;

/// Milliseconds per minute, the unit of [`Timestamp`] being a millisecond.
const MINUTE_MS: i64 = 60_000;
/// Maximum number of minutes that are stored.
const MINUTES_PER_HOUR: usize = 60;
/// Maximum number of tools whose calls are counted in a minute; agents can call any number of unknown names.
const MAX_TOOLS_PER_MINUTE: usize = 1_000;

/// Counts of the minutes with at least one call, oldest first, by the number of the minute since 1970.
#[derive(Debug, Default)]
pub(crate) struct CallsPerMinute(VecDeque<(i64, HashMap<CalledTool, MinuteCounts>)>);

/// Name of a called tool, and its source; without one for an unknown tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CalledTool {
    pub(crate) source: Option<SourceId>,
    pub(crate) name: String,
}

/// Calls of one tool in the last hour, minute by minute.
#[derive(Debug)]
pub(crate) struct ToolCalls {
    pub(crate) tool: CalledTool,
    pub(crate) minutes: Vec<MinuteCounts>,
}

/// Calls of one minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MinuteCounts {
    pub(crate) calls: u64,
    pub(crate) errors: u64,
}

impl CallsPerMinute {
    /// Counts calls of a tool.
    pub(super) fn record_calls(&mut self, tool: CalledTool, at: Timestamp, counts: MinuteCounts) {
        let minute_number = at.0.div_euclid(MINUTE_MS);
        if self.0.back().is_none_or(|(last, _)| *last < minute_number) {
            self.0.push_back((minute_number, HashMap::new()));
            if self.0.len() > MINUTES_PER_HOUR {
                self.0.pop_front();
            }
        }
        // Notices of concurrent calls may arrive out of order; a late one counts for the newest minute.
        let Some((_, tools)) = self.0.back_mut() else { return };
        if tools.len() >= MAX_TOOLS_PER_MINUTE && !tools.contains_key(&tool) {
            return;
        }
        tools.entry(tool).or_default().add(counts);
    }

    /// Returns the calls of each tool in sixty minutes, the last of which contains `now`. Minutes without a call have zero
    /// counts. After the clock was set back, counts of the future are left out.
    pub(super) fn last_hour(&self, now: Timestamp) -> Vec<ToolCalls> {
        let current = now.0.div_euclid(MINUTE_MS);
        let mut by_tool: HashMap<&CalledTool, Vec<MinuteCounts>> = HashMap::new();
        for (minute_number, tools) in &self.0 {
            let age = usize::try_from(current - minute_number).ok().filter(|age| *age < MINUTES_PER_HOUR);
            let Some(age) = age else { continue };
            for (tool, counts) in tools {
                let hour = by_tool.entry(tool).or_insert_with(empty_hour);
                hour[MINUTES_PER_HOUR - 1 - age] = *counts;
            }
        }
        by_tool.into_iter().map(|(tool, minutes)| ToolCalls { tool: tool.clone(), minutes }).collect()
    }
}

/// Sixty minutes without a call.
fn empty_hour() -> Vec<MinuteCounts> {
    vec![MinuteCounts::default(); MINUTES_PER_HOUR]
}

/// Adds up the calls of tools minute by minute.
pub(super) fn add_up(tools: impl Iterator<Item = ToolCalls>) -> Vec<MinuteCounts> {
    let mut hour = empty_hour();
    for tool in tools {
        hour.iter_mut().zip(&tool.minutes).for_each(|(sum, counts)| sum.add(*counts));
    }
    hour
}

impl MinuteCounts {
    fn add(&mut self, other: MinuteCounts) {
        self.calls += other.calls;
        self.errors += other.errors;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hour_has_sixty_minutes_and_drops_older_ones() {
        let mut minutes = CallsPerMinute::default();
        let at = |minute: i64| Timestamp(minute * MINUTE_MS + 5);
        let tool = |name: &str| CalledTool { source: None, name: name.to_owned() };
        for minute in 0..100 {
            minutes.record_calls(tool("a"), at(minute), MinuteCounts { calls: 1, errors: 0 });
        }
        minutes.record_calls(tool("b"), at(99), MinuteCounts { calls: 1, errors: 0 });
        let hour = add_up(minutes.last_hour(at(101)).into_iter());
        assert_eq!(hour.len(), MINUTES_PER_HOUR);
        assert_eq!(hour[MINUTES_PER_HOUR - 3], MinuteCounts { calls: 2, errors: 0 });
        assert_eq!(hour[MINUTES_PER_HOUR - 1], MinuteCounts::default());
        assert_eq!(hour.iter().map(|minute| minute.calls).sum::<u64>(), 59);
        let only_b = minutes.last_hour(at(101)).into_iter().filter(|calls| calls.tool.name == "b");
        assert_eq!(add_up(only_b).iter().map(|minute| minute.calls).sum::<u64>(), 1);
    }
}
