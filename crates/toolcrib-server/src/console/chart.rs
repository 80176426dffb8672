//! Small charts as SVG: drawn here, described in words for those who do not see them.

use maud::{Markup, html};

use super::words::{counted, grouped, lasted};
use crate::activity::{Minute, Run};

const HEIGHT: u64 = 64;
const STEP: usize = 10;

/// Calls by the minute; those that failed stand at the foot of their column.
pub(super) fn minutes(hour: &[Minute]) -> Markup {
    let most = hour.iter().map(|minute| minute.calls).max().unwrap_or_default();
    let (calls, errors) = hour.iter().fold((0, 0), |(calls, errors), one| (calls + one.calls, errors + one.errors));
    let words = format!("{} in the last hour, {} failed", counted(calls as usize, "call"), grouped(errors));
    // A single call must be seen beside a thousand.
    let tall = |number: u64| if number == 0 { 0 } else { (number * HEIGHT / most.max(4)).max(3) };
    html! {
        figure.chart {
            @if calls > 0 {
                p.legend aria-hidden="true" {
                    span.key-done { (grouped(calls - errors)) " done" }
                    span.key-failed { (grouped(errors)) " failed" }
                }
            }
            svg viewBox=(format!("0 0 {} {}", hour.len() * STEP, HEIGHT + 1)) preserveAspectRatio="none"
                role="img" aria-label=(words) {
                // Stripes, so that what failed is not told by its colour alone.
                defs { pattern id="stripes" width="10" height="4" patternUnits="userSpaceOnUse" {
                    rect.bad width="10" height="2.5" {}
                } }
                @for (index, minute) in hour.iter().enumerate() {
                    @let (whole, failed) = (tall(minute.calls), tall(minute.errors));
                    @let x = index * STEP + 1;
                    rect.ground x=(x) y=(HEIGHT) width=(STEP - 2) height="1" {}
                    @if whole > failed {
                        rect.mark x=(x) y=(HEIGHT - whole) width=(STEP - 2) height=(whole - failed) {}
                    }
                    @if failed > 0 {
                        rect x=(x) y=(HEIGHT - failed) width=(STEP - 2) height=(failed) fill="url(#stripes)" {}
                    }
                }
            }
            figcaption { span { "60 min ago" } span { @if most > 0 { "at most " (grouped(most)) " a minute" } @else { "no calls" } } span { "now" } }
        }
    }
}

/// One number against another, as two bars.
pub(super) fn against(full: usize, summary: usize) -> Markup {
    let part = (summary as f64 / full.max(1) as f64 * 100.0).clamp(0.6, 100.0);
    html! {
        dl.against {
            div { dt { "All definitions" } dd { (grouped(full as u64)) } (bar(100.0, "whole")) }
            div { dt { "Summary" } dd { (grouped(summary as u64)) } (bar(part, "mark")) }
        }
    }
}

/// Parts of a whole.
pub(super) fn parts(parts: &[(String, usize)], whole: usize) -> Markup {
    html! {
        dl.against {
            @for (name, part) in parts {
                div {
                    dt { (name) }
                    dd { (grouped(*part as u64)) }
                    (bar(*part as f64 / whole.max(1) as f64 * 100.0, "mark"))
                }
            }
        }
    }
}

/// How long each source took to be discovered, the longest as the measure of all.
pub(super) fn durations(sources: &[(String, Vec<Run>)]) -> Markup {
    let last = |runs: &[Run]| runs.last().copied();
    let most = sources.iter().filter_map(|(_, runs)| last(runs)).map(|run| run.elapsed_ms).max().unwrap_or(1).max(1);
    html! {
        dl.against {
            @for (name, runs) in sources {
                @if let Some(run) = last(runs) {
                    div {
                        dt { (name) }
                        dd { (lasted(run.elapsed_ms)) @if run.failed { " failed" } }
                        (bar(run.elapsed_ms as f64 / most as f64 * 100.0, if run.failed { "bad" } else { "mark" }))
                    }
                }
            }
        }
    }
}

/// The numbers stand beside it, so it says nothing of its own.
fn bar(percent: f64, class: &str) -> Markup {
    html! {
        dd.bar aria-hidden="true" {
            svg viewBox="0 0 100 1" preserveAspectRatio="none" {
                rect.ground width="100" height="1" {}
                rect.(class) width=(format!("{:.1}", percent.max(0.6))) height="1" {}
            }
        }
    }
}
