//! Form of a group, access rule or policy, with the preview beside it.

use maud::{Markup, html};
use serde_json::{Map, Value};
use toolcrib::core::access_rules::RuleKind;
use toolcrib::core::expose::ExposeMode;
use toolcrib::core::policy::Verdict;

use super::draft::{DraftBody, DraftError, OriginalRule, RuleDraft};
use super::fields::{FieldRenderer, lines_of, list_of, text_of};
use super::rule_page::{Outcome, PreviewReason};
use super::section_path;
use crate::console::csrf_field;
use crate::console::history::render_code_spans;
use crate::console::page::PageContext;

/// Renders the form. `data-preview` names the element that the script replaces while the form is edited; the page is not
/// refreshed live meanwhile (`data-static`).
pub(super) fn render_form(context: &PageContext<'_>, draft: &RuleDraft, outcome: &Outcome) -> Markup {
    let errors: &[DraftError] = match outcome {
        Outcome::Invalid(errors) => errors,
        Outcome::Untouched | Outcome::Valid { .. } => &[],
    };
    let fields = FieldRenderer { errors };
    html! {
        form.split id="rule" method="post" action=(section_path(draft.kind)) data-preview="preview" data-static {
            div.stack {
                (csrf_field(context.client))
                @match &draft.original {
                    Some(original) => { (render_original(original)) }
                    None => {
                        (fields.text("rule", "Name", &draft.name, placeholder(draft.kind), "Lower-case letters, digits, _ and -"))
                    }
                }
                @match &draft.body {
                    DraftBody::Yaml(text) => { (render_yaml(&fields, text)) }
                    DraftBody::Fields(keys) => { (render_fields(context, &fields, draft.kind, keys)) }
                }
            }
            section.card.effect aria-labelledby="effect-title" {
                h2 id="effect-title" { "Preview" }
                div id="preview" { (render_preview(draft, outcome)) }
            }
        }
    }
}

/// Renders the fields that say which rule a form changes or removes.
pub(super) fn render_original(original: &OriginalRule) -> Markup {
    html! {
        input type="hidden" name="original" value=(original.name);
        input type="hidden" name="original_digest" value=(original.digest);
    }
}

fn placeholder(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Group => "support",
        RuleKind::Access => "support-desk",
        RuleKind::Policy => "ask-destructive",
    }
}

fn render_yaml(fields: &FieldRenderer<'_>, text: &str) -> Markup {
    html! {
        (fields.multiline("yaml", "Definition (YAML)", text, "", "The keys of the configuration file"))
        p.buttons {
            button name="step" value="preview" { "Preview" }
            button name="step" value="fields" { "Edit with fields" }
        }
    }
}

fn render_fields(
    context: &PageContext<'_>,
    fields: &FieldRenderer<'_>,
    kind: RuleKind,
    keys: &Map<String, Value>,
) -> Markup {
    let keys = &Value::Object(keys.clone());
    html! {
        @match kind {
            RuleKind::Group => { (render_group(fields, keys)) }
            RuleKind::Access => { (render_access(context, fields, keys)) }
            RuleKind::Policy => { (render_policy(context, fields, keys)) }
        }
        p.buttons {
            button name="step" value="preview" { "Preview" }
            button name="step" value="yaml" { "Edit as YAML" }
        }
    }
}

fn render_group(fields: &FieldRenderer<'_>, keys: &Value) -> Markup {
    let selectors = keys.get("select").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    // A row for another selector.
    let rows = selectors.iter().chain([&Value::Null]).enumerate();
    let modes = ExposeMode::ALL.map(|mode| (mode.as_str().to_owned(), mode.as_str().to_owned()));
    let modes: Vec<_> = std::iter::once((String::new(), "as the server".to_owned())).chain(modes).collect();
    html! {
        (fields.text("title", "Title", text_of(keys, "title"), "Support desk", "For people"))
        @for (index, selector) in rows {
            @let prefix = format!("select[{index}]");
            fieldset {
                legend { "Selector " (index + 1) }
                @if index == 0 { small { "A tool belongs to the group if all conditions of one selector hold." } }
                @for error in fields.errors.iter().filter(|error| error.field == prefix) {
                    p.message { (render_code_spans(&error.message)) }
                }
                (fields.selector(&format!("{prefix}."), selector))
            }
        }
        p { button name="step" value="preview" { "Add a selector" } }
        (fields.multiline("tools", "Tools", &lines_of(keys, "tools"), "github__get_issue", "Further tools by name, one per line"))
        (fields.multiline("exclude", "Exclude", &lines_of(keys, "exclude"), "*delete*", "Patterns on names, one per line"))
        details open[keys.get("instructions").or(keys.get("essential")).or(keys.get("mode")).is_some()] {
            summary { "MCP endpoint of the group" }
            div.stack {
                (fields.multiline("instructions", "Instructions", text_of(keys, "instructions"), "", "For clients of /mcp/GROUP"))
                (fields.multiline("essential", "Essential", &lines_of(keys, "essential"), "*search*", "Tools that are always listed: patterns, one per line"))
                (fields.select("mode", "Mode", text_of(keys, "mode"), &modes, "How tools are listed"))
            }
        }
    }
}

fn render_access(context: &PageContext<'_>, fields: &FieldRenderer<'_>, keys: &Value) -> Markup {
    let groups = group_options(context);
    let is_active = keys.get("active").and_then(Value::as_bool).unwrap_or(true);
    html! {
        (fields.conditions("when", keys.get("when").unwrap_or(&Value::Null)))
        @if groups.is_empty() { p.empty { "There are no groups yet. " a href="/access/groups" { "Add one" } " first." } }
        @else { (fields.checkboxes("groups", "Groups that it gives", &list_of(keys, "groups"), &groups, "")) }
        label.check {
            input type="checkbox" name="active" value="yes" checked[is_active];
            span { "Active" }
        }
    }
}

fn render_policy(context: &PageContext<'_>, fields: &FieldRenderer<'_>, keys: &Value) -> Markup {
    let matches = keys.get("match").unwrap_or(&Value::Null);
    html! {
        fieldset {
            legend { "Tools" }
            small { "All conditions must hold; none: every tool." }
            @for error in fields.errors.iter().filter(|error| error.field == "match") {
                p.message { (render_code_spans(&error.message)) }
            }
            (fields.selector("match.", matches))
            (render_group_choice(context, fields, matches))
        }
        (fields.conditions("match.when", matches.get("when").unwrap_or(&Value::Null)))
        (render_verdict_choice(fields, text_of(keys, "verdict")))
    }
}

/// Renders the choice of the group that a policy is about.
pub(super) fn render_group_choice(context: &PageContext<'_>, fields: &FieldRenderer<'_>, matches: &Value) -> Markup {
    let any = std::iter::once((String::new(), "any".to_owned()));
    let groups: Vec<_> = any.chain(group_options(context)).collect();
    fields.select("match.group", "Group", text_of(matches, "group"), &groups, "The tool belongs to it")
}

/// Renders the choice of a verdict.
pub(super) fn render_verdict_choice(fields: &FieldRenderer<'_>, verdict: &str) -> Markup {
    let options = [
        (Verdict::Ask, "ask: needs consent"),
        (Verdict::Deny, "deny: refuse calls"),
        (Verdict::Hide, "hide: unknown to agents"),
        (Verdict::Allow, "allow"),
    ];
    let options = options.map(|(verdict, label)| (verdict.as_str().to_owned(), label.to_owned()));
    let verdict = if verdict.is_empty() { Verdict::Ask.as_str() } else { verdict };
    fields.select("verdict", "Verdict", verdict, &options, "The strictest verdict applies")
}

/// Returns the known groups with their titles.
pub(super) fn group_options(context: &PageContext<'_>) -> Vec<(String, String)> {
    let rules = context.app.registry.rules().in_force();
    let label = |name: &str, title: Option<&String>| match title {
        Some(title) => format!("{name} ({title})"),
        None => name.to_owned(),
    };
    rules.groups().map(|group| (group.name.clone(), label(&group.name, group.definition.title.as_ref()))).collect()
}

/// Renders the errors, or the effect with the button that saves.
fn render_preview(draft: &RuleDraft, outcome: &Outcome) -> Markup {
    html! {
        @match outcome {
            Outcome::Untouched => { p.faint { "Fill in the form to see what it does." } }
            Outcome::Invalid(errors) => {
                ul.errors {
                    @for (index, error) in errors.iter().enumerate() {
                        li.message data-announce[index == 0] {
                            @if error.line > 0 { "Line " (error.line) ": " }
                            @if let Some(label) = field_label(draft.kind, &error.field) { (label) ": " }
                            (render_code_spans(&error.message))
                        }
                    }
                }
            }
            Outcome::Valid { preview, digest, reason } => {
                @if *reason == PreviewReason::Unconfirmed { p.message { "The definition has changed since its preview. Check the effect, then save." } }
                input type="hidden" name="previewed" value=(digest);
                p { button.primary name="step" value="save" { "Save" } }
                (preview)
            }
        }
    }
}

/// Returns the name of a field for people, such as `Selector 1, name`; `None` for the draft as a whole.
fn field_label(kind: RuleKind, field: &str) -> Option<String> {
    let field = if kind == RuleKind::Policy { field.strip_prefix("match.").unwrap_or(field) } else { field };
    let row = |noun: &str, rest: &str| {
        let (index, rest) = rest.split_once(']')?;
        let number = index.parse::<usize>().ok()? + 1;
        let key = rest.trim_start_matches('.').replace('_', " ");
        Some(if key.is_empty() { format!("{noun} {number}") } else { format!("{noun} {number}, {key}") })
    };
    match field {
        "" | "yaml" => None,
        "rule" => Some("Name".to_owned()),
        _ => field
            .strip_prefix("select[")
            .and_then(|rest| row("Selector", rest))
            .or_else(|| field.strip_prefix("when[").and_then(|rest| row("Condition", rest)))
            .or_else(|| Some(field.replace('_', " "))),
    }
}
