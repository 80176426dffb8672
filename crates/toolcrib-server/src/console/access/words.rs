//! Describes rules in words, for lists.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::access_rules::{ClaimCondition, ClaimTest, PolicyMatch, Risk, Selector};
use toolcrib::core::text::sanitize_truncated;

/// Maximum length of a value in a description.
const MAX_VALUE_LEN: usize = 80;

/// Renders the conditions of an access rule or a policy; `otherwise` stands for none.
pub(super) fn render_conditions(conditions: &[ClaimCondition], otherwise: &str) -> Markup {
    html! {
        @if conditions.is_empty() { (otherwise) }
        @for (index, ClaimCondition { claim, test }) in conditions.iter().enumerate() {
            @if index > 0 { " and " }
            code { (shorten(claim.as_str())) } " " (test_words(test)) @if let Some(value) = value_text(test) { " " code { (value) } }
        }
    }
}

/// Name of a test in a sentence about a claim.
pub(super) fn test_label(name: &str) -> &'static str {
    match name {
        "equals" => "is",
        "not_equals" => "is not",
        "contains" => "contains",
        "not_contains" => "does not contain",
        "matches" => "matches",
        "exists" => "exists",
        "in" => "is one of",
        "not_in" => "is none of",
        _ => "",
    }
}

fn test_words(test: &ClaimTest) -> &'static str {
    if *test == ClaimTest::Exists(false) { "is missing" } else { test_label(test.name()) }
}

fn value_text(test: &ClaimTest) -> Option<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match test {
        ClaimTest::Exists(_) => None,
        ClaimTest::In(values) | ClaimTest::NotIn(values) => {
            Some(shorten(&values.iter().map(text).collect::<Vec<_>>().join(", ")))
        }
        ClaimTest::Equals(value)
        | ClaimTest::NotEquals(value)
        | ClaimTest::Contains(value)
        | ClaimTest::NotContains(value) => Some(shorten(&text(value))),
        ClaimTest::Matches(pattern) => Some(shorten(pattern.as_str())),
    }
}

/// Renders the tools and callers that a policy is about.
pub(super) fn render_match(matches: &PolicyMatch) -> Markup {
    let parts = selector_parts(&matches.selector);
    html! {
        @if parts.is_empty() && matches.group.is_none() { "every tool" }
        @for (index, (label, value)) in parts.iter().enumerate() {
            @if index > 0 { ", " }
            (label) " " code { (value) }
        }
        @if let Some(group) = &matches.group {
            @if !parts.is_empty() { ", " }
            "group " code { (group) }
        }
        @if !matches.when.is_empty() { " for callers where " (render_conditions(&matches.when, "")) }
    }
}

/// Returns the conditions of a selector with their names.
fn selector_parts(selector: &Selector) -> Vec<(&'static str, String)> {
    let Selector { source, name, tags, without_tags, method, path, risk } = selector;
    let risks: Vec<&str> = risk.iter().map(|risk| risk_label(*risk)).collect();
    let parts = [
        ("source", source.as_ref().map(|pattern| shorten(pattern.as_str()))),
        ("name", name.as_ref().map(|pattern| shorten(pattern.as_str()))),
        ("tags", join(tags)),
        ("without tags", join(without_tags)),
        ("method", method.clone()),
        ("path", path.as_ref().map(|pattern| shorten(pattern.as_str()))),
        ("risk", (!risks.is_empty()).then(|| risks.join(", "))),
    ];
    parts.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
}

fn join(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| shorten(&texts.join(", ")))
}

/// Name of a risk for people.
pub(super) fn risk_label(risk: Risk) -> &'static str {
    match risk {
        Risk::ReadOnly => "read-only",
        Risk::Writes => "writes",
        Risk::Destructive => "destructive",
        Risk::OpenWorld => "open world",
    }
}

fn shorten(text: &str) -> String {
    sanitize_truncated(text, MAX_VALUE_LEN)
}
