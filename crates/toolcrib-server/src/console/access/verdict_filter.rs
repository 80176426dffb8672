//! Form on the Access page that gives many tools a verdict at once, such as "all destructive ones: ask".
//!
//! It is a GET of the form of a new policy, filled in with the filter. While it is edited, the script shows the tools that
//! match.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::access_rules::RuleKind;

use super::fields::FieldRenderer;
use super::rule_form::{render_group_choice, render_verdict_choice};
use super::section_path;
use crate::console::page::PageContext;

/// Renders the form inside a disclosure.
pub(super) fn render_form(context: &PageContext<'_>) -> Markup {
    let fields = FieldRenderer { errors: &[] };
    html! {
        details.add data-keep {
            summary { "Give many tools a verdict" }
            form.stack id="verdict-filter" method="get" action=(section_path(RuleKind::Policy)) data-preview="matches" {
                section.pair aria-label="Filter" {
                    (fields.text("match.source", "Source", "", "zendesk*", "Pattern on the source"))
                    (fields.text("match.name", "Name", "", "*delete*", "Glob, or regex:… on the tool's name"))
                    (fields.text("match.tags", "Tags", "", "billing", "All of them, separated by commas"))
                    (render_group_choice(context, &fields, &Value::Null))
                }
                (fields.risks("match.risk", &Value::Null))
                (render_verdict_choice(&fields, ""))
                section id="matches" aria-label="Matching tools" {}
                p { button.primary { "Preview the policy" } }
            }
        }
    }
}
