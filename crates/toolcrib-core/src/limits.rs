//! [`CallLimits`]: how many calls are accepted, of one caller or to one source. Counting calls, queues and refusals are
//! left to the library.

use serde::{Deserialize, Serialize};

/// Limits on calls, configured per caller (`limits` at top level) or for a source. `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallLimits {
    /// Calls that are accepted in one minute; further ones are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<u32>,
    /// Calls in flight at the same time; further ones wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u32>,
}

impl CallLimits {
    /// Maximum value of each limit.
    pub const MAX: u32 = 1_000_000;

    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == CallLimits::default()
    }

    /// Returns the lower one of each limit.
    ///
    /// ```
    /// use toolcrib_core::limits::CallLimits;
    ///
    /// let user = CallLimits { calls_per_minute: Some(60), concurrent_calls: None };
    /// let project = CallLimits { calls_per_minute: Some(600), concurrent_calls: Some(4) };
    /// let both = CallLimits { calls_per_minute: Some(60), concurrent_calls: Some(4) };
    /// assert_eq!(project.restricted_by(user), both);
    /// ```
    #[must_use]
    pub fn restricted_by(self, other: CallLimits) -> CallLimits {
        let lower = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        CallLimits {
            calls_per_minute: lower(self.calls_per_minute, other.calls_per_minute),
            concurrent_calls: lower(self.concurrent_calls, other.concurrent_calls),
        }
    }
}
