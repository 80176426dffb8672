//! Formats numbers, times and states for people.
//!
//! The words for states are fixed here, so that all pages use the same ones. Words that programs read are elsewhere.

use maud::{Markup, html};
use toolcrib::clock::Clock;
use toolcrib::core::Timestamp;
use toolcrib::core::freshness::Freshness;
use toolcrib::registry::{ConnectionState, DiscoveryStage, DiscoveryStatus, SourceView};

/// Colour and shape of a state badge, as a CSS class. The badge always has a label too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Busy,
    /// Good, but stale.
    Aged,
    Quiet,
    Warning,
    Bad,
}

impl Tone {
    /// CSS class of the tone.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Busy => "busy",
            Tone::Aged => "aged",
            Tone::Quiet => "quiet",
            Tone::Warning => "warning",
            Tone::Bad => "bad",
        }
    }
}

/// Renders a state badge.
pub(super) fn state_badge(tone: Tone, label: &str) -> Markup {
    html! { span.state.(tone.as_str()) { (label) } }
}

/// Returns the tone and label of a source's state. Of several that apply, the most important one wins. `stage` is that
/// of a discovery in progress; without one, the status of the source may still say that it is being discovered.
pub(super) fn source_state(source: &SourceView, stage: Option<DiscoveryStage>) -> (Tone, String) {
    let progress = match stage {
        Some(DiscoveryStage::Contacting) => Some("contacting…".to_owned()),
        Some(DiscoveryStage::Recording { tools }) => Some(format!("recording {}…", format_count(tools, "tool"))),
        Some(_) => Some("discovering…".to_owned()),
        None if source.status == DiscoveryStatus::Discovering => Some("discovering…".to_owned()),
        None => None,
    };
    match progress {
        _ if !source.enabled => (Tone::Quiet, "disabled".into()),
        Some(label) => (Tone::Busy, label),
        None if source.connection == ConnectionState::BreakerOpen => (Tone::Bad, "circuit breaker open".into()),
        None if source.last_error.is_some() && source.tool_count > 0 => (Tone::Warning, "failing".into()),
        None if source.last_error.is_some() => (Tone::Bad, "failed".into()),
        None => match source.freshness {
            Freshness::Fresh => (Tone::Good, "ready".into()),
            Freshness::Stale => (Tone::Aged, "stale".into()),
            Freshness::Missing => (Tone::Quiet, "not discovered yet".into()),
        },
    }
}

/// Formats a number with separators, such as `18,204`.
pub(super) fn format_number(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with a noun: `1 tool`, `3 tools`, `2 matches`. Only the two endings that the console's nouns need.
pub(super) fn format_count(number: usize, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", format_number(number as u64))
}

/// Formats a share as `87 %`. Rounding never produces `0 %` or `100 %`, which mean exactly none and exactly all.
pub(super) fn format_percent(part: u64, whole: u64) -> String {
    let share = part.min(whole) as f64 * 100.0 / whole.max(1) as f64;
    match share {
        0.0 => "0 %".into(),
        ..1.0 => "under 1 %".into(),
        99.0..100.0 => format!("{:.1} %", (share * 10.0).floor() / 10.0),
        _ => format!("{share:.0} %"),
    }
}

/// Formats a duration: `412 ms`, `1.2 s`, `3 min`.
pub(super) fn format_millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{:.1} s", millis as f64 / 1_000.0),
        _ => format!("{} min", millis / 60_000),
    }
}

/// Returns the time of the system clock.
pub(super) fn now() -> Timestamp {
    Clock::system().now()
}

/// Renders how long ago a time was; the exact time is in the attributes of the element.
pub(super) fn time_ago(at: Timestamp) -> Markup {
    let exact = at.to_string();
    html! { time datetime=(exact) title=(exact) { (format_age(now().since(at).as_secs())) } }
}

/// Renders how long ago a time was, or `never` for none.
pub(super) fn time_ago_or(at: Option<Timestamp>, never: &str) -> Markup {
    match at {
        Some(at) => time_ago(at),
        None => html! { span.faint { (never) } },
    }
}

/// Rounded down: `59 min ago` is up to an hour.
fn format_age(seconds: u64) -> String {
    match seconds {
        0..10 => "just now".into(),
        10..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..172_800 => "yesterday".into(),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Returns the display name of a kind of source.
pub(super) fn kind_name(kind: &str) -> &str {
    match kind {
        "mcp" => "MCP",
        "openapi" => "OpenAPI",
        "workflow" => "Workflow",
        "builtin" => "Built in",
        other => other,
    }
}

/// Returns the display name of a source's kind, with the transport for MCP.
pub(super) fn source_kind(source: &SourceView) -> String {
    match source.transport.filter(|_| source.kind == "mcp") {
        Some("stdio") => "MCP on stdio".into(),
        Some(transport) => format!("MCP over {}", transport.to_uppercase()),
        None => kind_name(&source.kind).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_shares_and_times_are_formatted() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (18_204, "18,204"), (1_234_567, "1,234,567")] {
            assert_eq!(format_number(number as u64), text);
        }
        assert_eq!((format_count(1, "tool"), format_count(0, "tool")), ("1 tool".into(), "0 tools".into()));
        assert_eq!([1, 2].map(|number| format_count(number, "match")), ["1 match", "2 matches"]);
        let shares = [(0, 7), (1, 1_000), (500, 1_000), (995, 1_000), (99_999, 100_000), (7, 7), (0, 0)];
        assert_eq!(
            shares.map(|(part, whole)| format_percent(part, whole)),
            ["0 %", "under 1 %", "50 %", "99.5 %", "99.9 %", "100 %", "0 %"]
        );
        assert_eq!([412, 1_240, 200_000].map(format_millis), ["412 ms", "1.2 s", "3 min"]);
        assert_eq!(
            [3, 59, 3_599, 90_000, 400_000].map(format_age),
            ["just now", "59 s ago", "59 min ago", "yesterday", "4 days ago"]
        );
    }
}
