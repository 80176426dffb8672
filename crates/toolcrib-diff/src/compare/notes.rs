//! English notes about changes, in two wordings: what an argument accepts, and what an output may be.
//!
//! Notes are sentences without a subject that follow the name of the tool in lists and in the history:
//!
//! ```text
//! github__create_issue: gained a required `owner`
//! github__list_issues: `state` no longer takes `all`
//! github__list_issues: its output may lack `labels` now
//! ```
//!
//! Names and values come from sources, so each is sanitised and truncated.

use std::collections::BTreeSet;

use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::Alternative;

use super::ChangeClass;

/// Maximum length of a list of type names, which are not trusted. In characters.
const MAX_TYPE_NAMES_LEN: usize = 80;

/// Whether a schema describes a tool's input or its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaRole {
    Input,
    Output,
}

/// Path of a value: `filter.state`, `labels[]`; empty at the root.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaPath(String);

/// Change of the set of accepted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueChange {
    /// Only these types or values are left of everything.
    Only(String),
    /// These types or values are no longer accepted.
    NoLonger(String),
    /// These types or values are accepted too.
    Also(String),
    /// The type is no longer restricted.
    AnyType,
    /// Values are no longer listed.
    OtherValuesToo,
    /// The old schema accepted nothing.
    AcceptsSomething,
    /// The new schema accepts nothing.
    AcceptsNothing,
    /// The schema of items or other fields was removed.
    AcceptsAnything,
    /// Items or other fields got a schema.
    NoLongerAnything,
    WithoutUnknownFields,
    WithUnknownFields,
    /// The budget or the depth limit ended the comparison.
    TooLarge,
    /// Something changed that the comparison does not interpret.
    Unclassified,
}

impl SchemaRole {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            SchemaRole::Input => "input",
            SchemaRole::Output => "output",
        }
    }

    /// Returns the class of accepting more values. Callers gain by a wider input; readers of an output may receive
    /// values they do not expect.
    pub(super) fn widening_class(self) -> ChangeClass {
        match self {
            SchemaRole::Input => ChangeClass::Widened,
            SchemaRole::Output => ChangeClass::Narrowed,
        }
    }

    /// Returns the class of accepting fewer values. The mirror image of [`SchemaRole::widening_class`].
    pub(super) fn narrowing_class(self) -> ChangeClass {
        match self {
            SchemaRole::Input => ChangeClass::Narrowed,
            SchemaRole::Output => ChangeClass::Widened,
        }
    }

    /// Renders a change with a subject of its own: `string became integer`.
    pub(super) fn render_remark(self, path: &SchemaPath, text: &str) -> String {
        match (self, path.is_root()) {
            (SchemaRole::Input, true) => format!("its arguments: {text}"),
            (SchemaRole::Output, true) => format!("its output: {text}"),
            (SchemaRole::Input, false) => format!("`{}`: {text}", path.0),
            (SchemaRole::Output, false) => format!("its output: `{}`: {text}", path.0),
        }
    }

    /// Renders a change that continues the path or the tool's name: `also takes null`.
    pub(super) fn render_predicate(self, path: &SchemaPath, change: &ValueChange) -> String {
        let predicate = change.to_text(self);
        match (self, path.is_root()) {
            (SchemaRole::Input, true) => predicate,
            (SchemaRole::Output, true) => format!("its output {predicate}"),
            (SchemaRole::Input, false) => format!("`{}` {predicate}", path.0),
            (SchemaRole::Output, false) => format!("its output: `{}` {predicate}", path.0),
        }
    }

    /// Renders an added, removed or renamed field: ``lost `labels` ``.
    pub(super) fn render_field_change(self, text: &str) -> String {
        match self {
            SchemaRole::Input => text.to_owned(),
            SchemaRole::Output => format!("its output {text}"),
        }
    }

    /// Renders a field that became required or optional.
    pub(super) fn render_required_change(self, path: &SchemaPath, is_required: bool) -> String {
        let path = &path.0;
        match (self, is_required) {
            (SchemaRole::Input, true) => format!("`{path}` became required"),
            (SchemaRole::Input, false) => format!("`{path}` became optional"),
            (SchemaRole::Output, true) => format!("its output always has `{path}` now"),
            (SchemaRole::Output, false) => format!("its output may lack `{path}` now"),
        }
    }

    /// Renders a changed title or description.
    pub(super) fn render_text_change(self, path: &SchemaPath, keyword: &str) -> String {
        match (self, path.is_root()) {
            (SchemaRole::Input | SchemaRole::Output, true) => {
                format!("the {keyword} of its {} schema changed", self.as_str())
            }
            (SchemaRole::Input, false) => format!("the {keyword} of `{}` changed", path.0),
            (SchemaRole::Output, false) => format!("the {keyword} of `{}` in its output changed", path.0),
        }
    }
}

impl SchemaPath {
    /// Returns the path of a field, truncated to 120 characters. Truncating also bounds the work for deeply nested
    /// fields.
    pub(super) fn field(&self, name: &str) -> SchemaPath {
        let dot = if self.is_root() { "" } else { "." };
        SchemaPath(sanitize_truncated(&format!("{}{dot}{}", self.0, sanitize_truncated(name, 60)), 120))
    }

    /// Returns the path of the items of an array.
    pub(super) fn items(&self) -> SchemaPath {
        SchemaPath(format!("{}[]", self.0))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the path is that of the whole value.
    fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl ValueChange {
    /// Returns the predicate in the wording of the role.
    fn to_text(&self, role: SchemaRole) -> String {
        let (for_input, for_output) = match self {
            ValueChange::Only(values) => (format!("accepts only {values} now"), format!("is only {values} now")),
            ValueChange::NoLonger(values) => (format!("no longer takes {values}"), format!("is no longer {values}")),
            ValueChange::Also(values) => (format!("also takes {values}"), format!("may also be {values}")),
            ValueChange::AnyType => ("accepts any type now".into(), "may be of any type now".into()),
            ValueChange::OtherValuesToo => ("accepts other values too".into(), "may have other values too".into()),
            ValueChange::AcceptsSomething => ("accepts values now".into(), "may be present now".into()),
            ValueChange::AcceptsNothing => ("accepts no value any more".into(), "is never present any more".into()),
            ValueChange::AcceptsAnything => ("accepts anything now".into(), "may be anything now".into()),
            ValueChange::NoLongerAnything => {
                ("no longer accepts every value".into(), "is no longer unrestricted".into())
            }
            ValueChange::WithoutUnknownFields => {
                ("no longer accepts unknown fields".into(), "has no unknown fields any more".into())
            }
            ValueChange::WithUnknownFields => {
                ("also accepts unknown fields".into(), "may have unknown fields too".into())
            }
            ValueChange::TooLarge => {
                let both = "is too large to be compared in full";
                (both.into(), both.into())
            }
            ValueChange::Unclassified => {
                let both = "changed in a way that cannot be classified";
                (both.into(), both.into())
            }
        };
        match role {
            SchemaRole::Input => for_input,
            SchemaRole::Output => for_output,
        }
    }
}

/// Lists the types of alternatives, with the label of an object where it has one.
pub(super) fn describe_types<'a, 'b: 'a>(alternatives: impl IntoIterator<Item = &'a Alternative<'b>>) -> String {
    let describe = |alternative: &Alternative<'b>| match (&alternative.label, alternative.type_name) {
        (Some(label), Some(kind @ "object")) => format!("{kind} `{}`", sanitize_truncated(label, 40)),
        (_, Some(kind)) => sanitize_truncated(kind, 40),
        (Some(label), None) => format!("`{}`", sanitize_truncated(label, 40)),
        // An alternative without a type, such as `{"minimum": 1}`.
        (None, None) => "other values".to_owned(),
    };
    let names: BTreeSet<String> = alternatives.into_iter().map(describe).collect();
    sanitize_truncated(&names.into_iter().collect::<Vec<_>>().join(", "), MAX_TYPE_NAMES_LEN)
}
