//! Fields of the forms of the Access page, with their hints and errors.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::access_rules::{ClaimTest, Risk};

use super::draft::{DraftError, condition_fields};
use super::words::{risk_label, test_label};
use crate::console::history::render_code_spans;

/// HTTP methods that a selector can name.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// Renders fields, each with the errors that belong to it.
pub(super) struct FieldRenderer<'a> {
    pub(super) errors: &'a [DraftError],
}

impl FieldRenderer<'_> {
    /// Renders an input with its label, hint and error; `control` gets the id of the hint and whether the input is
    /// invalid.
    pub(super) fn field(
        &self,
        name: &str,
        label: &str,
        hint: &str,
        control: impl FnOnce(&str, Option<&str>) -> Markup,
    ) -> Markup {
        let id = hint_id(name);
        let errors = self.errors_of(name);
        let invalid = (!errors.is_empty()).then_some("true");
        html! {
            div.field {
                label { span { (label) } (control(&id, invalid)) }
                small id=(id) {
                    @for error in &errors { span.message { (render_code_spans(error)) } " " }
                    (hint)
                }
            }
        }
    }

    pub(super) fn text(&self, name: &str, label: &str, value: &str, placeholder: &str, hint: &str) -> Markup {
        self.field(name, label, hint, |id, invalid| {
            html! {
                input name=(name) value=(value) placeholder=(placeholder) aria-describedby=(id) aria-invalid=[invalid]
                    autocomplete="off" spellcheck="false";
            }
        })
    }

    pub(super) fn multiline(&self, name: &str, label: &str, value: &str, placeholder: &str, hint: &str) -> Markup {
        self.field(name, label, hint, |id, invalid| {
            html! {
                textarea name=(name) rows="2" placeholder=(placeholder) spellcheck="false" aria-describedby=(id)
                    aria-invalid=[invalid] {
                    // Browsers drop the first line break of a text area.
                    "\n" (value)
                }
            }
        })
    }

    /// Renders a choice; each option has a value and a label.
    pub(super) fn select(
        &self,
        name: &str,
        label: &str,
        value: &str,
        options: &[(String, String)],
        hint: &str,
    ) -> Markup {
        let is_known = options.iter().any(|(option, _)| option == value);
        self.field(name, label, hint, |id, invalid| {
            html! {
                select name=(name) aria-describedby=(id) aria-invalid=[invalid] {
                    @for (option, label) in options {
                        option value=(option) selected[option == value] { (label) }
                    }
                    @if !is_known { option value=(value) selected { (value) } }
                }
            }
        })
    }

    /// Renders checkboxes in a fieldset. A checked value that is not among the options is kept.
    pub(super) fn checkboxes(
        &self,
        name: &str,
        label: &str,
        checked: &[&str],
        options: &[(String, String)],
        hint: &str,
    ) -> Markup {
        let errors = self.errors_of(name);
        let unknown = checked.iter().filter(|value| !options.iter().any(|(option, _)| option == *value));
        html! {
            fieldset.choice {
                legend { (label) }
                @for error in &errors { p.message { (render_code_spans(error)) } }
                @for (option, label) in options {
                    label.check {
                        input type="checkbox" name=(name) value=(option) checked[checked.contains(&option.as_str())];
                        span { (label) }
                    }
                }
                @for value in unknown {
                    label.check { input type="checkbox" name=(name) value=(value) checked; span { (value) " (unknown)" } }
                }
                @if !hint.is_empty() { small { (hint) } }
            }
        }
    }

    /// Renders the fields of a selector.
    pub(super) fn selector(&self, prefix: &str, selector: &Value) -> Markup {
        let name = |key: &str| format!("{prefix}{key}");
        let methods = METHODS.iter().map(|method| ((*method).to_owned(), (*method).to_owned()));
        let methods: Vec<_> = std::iter::once((String::new(), "any".to_owned())).chain(methods).collect();
        html! {
            div.pair {
                (self.text(&name("source"), "Source", text_of(selector, "source"), "zendesk*", "Pattern on the source"))
                (self.text(&name("name"), "Name", text_of(selector, "name"), "get_*", "Glob, or regex:… on the tool's name"))
                (self.text(&name("tags"), "Tags", &words_of(selector, "tags"), "read, tickets", "All of them, separated by commas"))
                (self.text(&name("without_tags"), "Without tags", &words_of(selector, "without_tags"), "internal", "None of them"))
                (self.select(&name("method"), "Method", text_of(selector, "method"), &methods, "Of an HTTP operation"))
                (self.text(&name("path"), "Path", text_of(selector, "path"), "/tickets/*", "Pattern on the path of an operation"))
            }
            (self.risks(&name("risk"), selector))
        }
    }

    /// Renders the choice of risks.
    pub(super) fn risks(&self, name: &str, selector: &Value) -> Markup {
        let options = Risk::ALL.map(|risk| (risk.as_str().to_owned(), risk_label(risk).to_owned()));
        self.checkboxes(name, "Risk", &list_of(selector, "risk"), &options, "")
    }

    /// Renders the fields of conditions, and a row for another one.
    pub(super) fn conditions(&self, key: &str, conditions: &Value) -> Markup {
        let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = conditions.iter().chain([&Value::Null]).enumerate();
        let tests = ClaimTest::NAMES.map(|test| (test.to_owned(), test_label(test).to_owned()));
        html! {
            fieldset {
                legend { "Conditions on the caller" }
                small {
                    "All of them must hold; none: every caller. Claims of the caller's token, and "
                    code { "caller.kind" } ", " code { "caller.role" } ", " code { "caller.issuer" } ", " code { "caller.token" } "."
                }
                @for (index, condition) in rows {
                    @let (test, value) = condition_fields(condition);
                    @let prefix = format!("{key}[{index}]");
                    @let (errors, claim_errors) = (self.errors_of(&prefix), self.errors_of(&format!("{prefix}.claim")));
                    @let errors_id = (!errors.is_empty()).then(|| hint_id(&prefix));
                    @let claim = ConditionInput { is_invalid: !claim_errors.is_empty(), errors_id: errors_id.as_deref() };
                    @let test_value = ConditionInput { is_invalid: errors.len() > claim_errors.len(), ..claim };
                    div.condition {
                        (claim.text(&format!("{prefix}.claim"), &format!("Claim {}", index + 1), text_of(condition, "claim"), "realm_access.roles"))
                        select name=(format!("{prefix}.test")) aria-label=(format!("Test {}", index + 1)) {
                            @for (option, label) in &tests { option value=(option) selected[option == test] { (label) } }
                        }
                        (test_value.text(&format!("{prefix}.value"), &format!("Value {}", index + 1), &value, "support"))
                    }
                    @if let Some(id) = &errors_id {
                        p.message id=(id) { @for error in &errors { (render_code_spans(error)) " " } }
                    }
                }
                p { button name="step" value="preview" { "Add a condition" } }
            }
        }
    }

    /// Returns the errors of a field and of the parts of its value.
    fn errors_of(&self, name: &str) -> Vec<String> {
        let is_of = |error: &&DraftError| {
            let rest = error.field.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']))
        };
        self.errors.iter().filter(is_of).map(|error| error.message.clone()).collect()
    }
}

/// Input of a condition. Its label is for screen readers only, and its errors are below all inputs of the condition.
#[derive(Debug, Clone, Copy)]
struct ConditionInput<'a> {
    is_invalid: bool,
    /// Id of the element with the errors of the condition.
    errors_id: Option<&'a str>,
}

impl ConditionInput<'_> {
    fn text(self, name: &str, label: &str, value: &str, placeholder: &str) -> Markup {
        html! {
            input name=(name) value=(value) placeholder=(placeholder) aria-label=(label) aria-describedby=[self.errors_id]
                aria-invalid=[self.is_invalid.then_some("true")] autocomplete="off" spellcheck="false";
        }
    }
}

/// Id of the element that describes a field.
fn hint_id(name: &str) -> String {
    format!("hint-{}", name.replace(['[', ']', '.'], "-"))
}

/// Returns a text of a map, or an empty one.
pub(super) fn text_of<'a>(keys: &'a Value, key: &str) -> &'a str {
    keys.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the texts of a list.
pub(super) fn list_of<'a>(keys: &'a Value, key: &str) -> Vec<&'a str> {
    match keys.get(key) {
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(text)) => vec![text],
        _ => Vec::new(),
    }
}

/// Returns a list as text separated by commas.
pub(super) fn words_of(keys: &Value, key: &str) -> String {
    list_of(keys, key).join(", ")
}

/// Returns a list as text with one item per line.
pub(super) fn lines_of(keys: &Value, key: &str) -> String {
    list_of(keys, key).join("\n")
}
