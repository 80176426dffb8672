//! Small SVG charts with text alternatives for screen readers.
//!
//! They are static: the content security policy allows no inline style, so all sizes are attributes.

use maud::{Markup, html};

use super::text::{format_count, format_millis, format_number};
use crate::activity::{DiscoveryRun, MinuteCounts};

/// Height of the calls chart, in units of its view box.
const CHART_HEIGHT: u64 = 64;
/// Width of one minute in the same units, including a gap of 2.
const COLUMN_WIDTH: usize = 10;

/// Renders the calls per minute as columns; the failed ones are at the bottom of a column.
pub(super) fn render_calls_chart(hour: &[MinuteCounts]) -> Markup {
    let max = hour.iter().map(|minute| minute.calls).max().unwrap_or_default();
    let calls: u64 = hour.iter().map(|minute| minute.calls).sum();
    let errors: u64 = hour.iter().map(|minute| minute.errors).sum();
    let description =
        format!("{} in the last hour, {} failed", format_count(calls as usize, "call"), format_number(errors));
    // At least 3 units, so that a single call is visible beside a column of a thousand.
    let height = |count: u64| if count == 0 { 0 } else { (count * CHART_HEIGHT / max.max(4)).max(3) };
    html! {
        figure.chart {
            @if calls > 0 {
                p.legend aria-hidden="true" {
                    span.key-done { (format_number(calls - errors)) " done" }
                    span.key-failed { (format_number(errors)) " failed" }
                }
            }
            svg viewBox=(format!("0 0 {} {}", hour.len() * COLUMN_WIDTH, CHART_HEIGHT + 1)) preserveAspectRatio="none"
                role="img" aria-label=(description) {
                // Stripes, so that failures are not marked by colour alone.
                defs { pattern id="stripes" width="10" height="4" patternUnits="userSpaceOnUse" {
                    rect.bad width="10" height="2.5" {}
                } }
                @for (index, minute) in hour.iter().enumerate() {
                    @let total = height(minute.calls);
                    @let failed = height(minute.errors);
                    @let x = index * COLUMN_WIDTH + 1;
                    rect.ground x=(x) y=(CHART_HEIGHT) width=(COLUMN_WIDTH - 2) height="1" {}
                    @if total > failed {
                        rect.mark x=(x) y=(CHART_HEIGHT - total) width=(COLUMN_WIDTH - 2) height=(total - failed) {}
                    }
                    @if failed > 0 {
                        rect x=(x) y=(CHART_HEIGHT - failed) width=(COLUMN_WIDTH - 2) height=(failed) fill="url(#stripes)" {}
                    }
                }
            }
            figcaption { span { "60 min ago" } span { @if max > 0 { "at most " (format_number(max)) " a minute" } @else { "no calls" } } span { "now" } }
        }
    }
}

/// Renders the tokens of all definitions and of the summary as two bars.
pub(super) fn render_token_bars(full: usize, summary: usize) -> Markup {
    let percent = (summary as f64 / full.max(1) as f64 * 100.0).clamp(0.6, 100.0);
    let bar = |name, tokens: usize, percent, class| Bar { name, value: format_number(tokens as u64), percent, class };
    render_bars([bar("All definitions", full, 100.0, "whole"), bar("Summary", summary, percent, "mark")])
}

/// Renders each share of a total as a bar.
pub(super) fn render_share_bars(shares: &[(String, usize)], total: usize) -> Markup {
    render_bars(shares.iter().map(|(name, share)| {
        let percent = *share as f64 / total.max(1) as f64 * 100.0;
        Bar { name, value: format_number(*share as u64), percent, class: "mark" }
    }))
}

/// Renders the duration of each source's last discovery, relative to the longest one.
pub(super) fn render_duration_bars(runs: &[(String, DiscoveryRun)]) -> Markup {
    let longest = runs.iter().map(|(_, run)| run.elapsed_ms).max().unwrap_or(1).max(1);
    render_bars(runs.iter().map(|(name, run)| {
        let (suffix, class) = if run.failed { (" failed", "bad") } else { ("", "mark") };
        let percent = run.elapsed_ms as f64 / longest as f64 * 100.0;
        Bar { name, value: format_millis(run.elapsed_ms) + suffix, percent, class }
    }))
}

/// A labelled bar.
struct Bar<'a> {
    name: &'a str,
    value: String,
    percent: f64,
    class: &'a str,
}

/// Renders bars below each other. They are hidden from screen readers because the value is next to each.
fn render_bars<'a>(bars: impl IntoIterator<Item = Bar<'a>>) -> Markup {
    html! {
        dl.against {
            @for Bar { name, value, percent, class } in bars {
                div {
                    dt { (name) }
                    dd { (value) }
                    dd.bar aria-hidden="true" {
                        svg viewBox="0 0 100 1" preserveAspectRatio="none" {
                            rect.ground width="100" height="1" {}
                            rect.(class) width=(format!("{:.1}", percent.max(0.6))) height="1" {}
                        }
                    }
                }
            }
        }
    }
}
