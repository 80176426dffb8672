//! Small charts as SVG: drawn here, described in words for those who do not see them.

use maud::{Markup, html};

use super::text::{format_count, format_millis, format_number};
use crate::activity::{DiscoveryRun, MinuteCounts};

const CHART_HEIGHT: u64 = 64;
const COLUMN_WIDTH: usize = 10;

/// Calls by the minute; those that failed stand at the foot of their column.
pub(super) fn render_calls_chart(hour: &[MinuteCounts]) -> Markup {
    let most = hour.iter().map(|minute| minute.calls).max().unwrap_or_default();
    let (calls, errors) = hour.iter().fold((0, 0), |(calls, errors), one| (calls + one.calls, errors + one.errors));
    let words = format!("{} in the last hour, {} failed", format_count(calls as usize, "call"), format_number(errors));
    // A single call must be seen beside a thousand.
    let tall = |number: u64| if number == 0 { 0 } else { (number * CHART_HEIGHT / most.max(4)).max(3) };
    html! {
        figure.chart {
            @if calls > 0 {
                p.legend aria-hidden="true" {
                    span.key-done { (format_number(calls - errors)) " done" }
                    span.key-failed { (format_number(errors)) " failed" }
                }
            }
            svg viewBox=(format!("0 0 {} {}", hour.len() * COLUMN_WIDTH, CHART_HEIGHT + 1)) preserveAspectRatio="none"
                role="img" aria-label=(words) {
                // Stripes, so that what failed is not told by its colour alone.
                defs { pattern id="stripes" width="10" height="4" patternUnits="userSpaceOnUse" {
                    rect.bad width="10" height="2.5" {}
                } }
                @for (index, minute) in hour.iter().enumerate() {
                    @let (whole, failed) = (tall(minute.calls), tall(minute.errors));
                    @let x = index * COLUMN_WIDTH + 1;
                    rect.ground x=(x) y=(CHART_HEIGHT) width=(COLUMN_WIDTH - 2) height="1" {}
                    @if whole > failed {
                        rect.mark x=(x) y=(CHART_HEIGHT - whole) width=(COLUMN_WIDTH - 2) height=(whole - failed) {}
                    }
                    @if failed > 0 {
                        rect x=(x) y=(CHART_HEIGHT - failed) width=(COLUMN_WIDTH - 2) height=(failed) fill="url(#stripes)" {}
                    }
                }
            }
            figcaption { span { "60 min ago" } span { @if most > 0 { "at most " (format_number(most)) " a minute" } @else { "no calls" } } span { "now" } }
        }
    }
}

/// One number against another, as two bars.
pub(super) fn render_token_bars(full: usize, summary: usize) -> Markup {
    let part = (summary as f64 / full.max(1) as f64 * 100.0).clamp(0.6, 100.0);
    html! {
        dl.against {
            div { dt { "All definitions" } dd { (format_number(full as u64)) } (render_bar(100.0, "whole")) }
            div { dt { "Summary" } dd { (format_number(summary as u64)) } (render_bar(part, "mark")) }
        }
    }
}

/// Parts of a whole.
pub(super) fn render_share_bars(parts: &[(String, usize)], whole: usize) -> Markup {
    html! {
        dl.against {
            @for (name, part) in parts {
                div {
                    dt { (name) }
                    dd { (format_number(*part as u64)) }
                    (render_bar(*part as f64 / whole.max(1) as f64 * 100.0, "mark"))
                }
            }
        }
    }
}

/// How long each source took to be discovered, the longest as the measure of all.
pub(super) fn render_duration_bars(sources: &[(String, Vec<DiscoveryRun>)]) -> Markup {
    let last = |runs: &[DiscoveryRun]| runs.last().copied();
    let most = sources.iter().filter_map(|(_, runs)| last(runs)).map(|run| run.elapsed_ms).max().unwrap_or(1).max(1);
    html! {
        dl.against {
            @for (name, runs) in sources {
                @if let Some(run) = last(runs) {
                    div {
                        dt { (name) }
                        dd { (format_millis(run.elapsed_ms)) @if run.failed { " failed" } }
                        (render_bar(run.elapsed_ms as f64 / most as f64 * 100.0, if run.failed { "bad" } else { "mark" }))
                    }
                }
            }
        }
    }
}

/// The numbers stand beside it, so it says nothing of its own.
fn render_bar(percent: f64, class: &str) -> Markup {
    html! {
        dd.bar aria-hidden="true" {
            svg viewBox="0 0 100 1" preserveAspectRatio="none" {
                rect.ground width="100" height="1" {}
                rect.(class) width=(format!("{:.1}", percent.max(0.6))) height="1" {}
            }
        }
    }
}
