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

/// Path of a value, and the depth of the walk that leads to it.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaPath {
    /// `filter.state`, `labels[]`; empty at the root.
    text: String,
    pub(super) depth: usize,
}

/// Change of the set of accepted values, worded for an argument and for an output. `{}` stands for types or values.
pub(super) type ValueChange = [&'static str; 2];

/// Only these types or values are left of everything.
pub(super) const ONLY: ValueChange = ["accepts only {} now", "is only {} now"];
/// These types or values are no longer accepted.
pub(super) const NO_LONGER: ValueChange = ["no longer takes {}", "is no longer {}"];
/// These types or values are accepted too.
pub(super) const ALSO: ValueChange = ["also takes {}", "may also be {}"];
/// The type is no longer restricted.
pub(super) const ANY_TYPE: ValueChange = ["accepts any type now", "may be of any type now"];
/// Values are no longer listed.
pub(super) const OTHER_VALUES_TOO: ValueChange = ["accepts other values too", "may have other values too"];
/// The old schema accepted nothing.
pub(super) const ACCEPTS_SOMETHING: ValueChange = ["accepts values now", "may be present now"];
/// The new schema accepts nothing.
pub(super) const ACCEPTS_NOTHING: ValueChange = ["accepts no value any more", "is never present any more"];
/// The schema of items or other fields was removed.
pub(super) const ACCEPTS_ANYTHING: ValueChange = ["accepts anything now", "may be anything now"];
/// Items or other fields got a schema.
pub(super) const NO_LONGER_ANYTHING: ValueChange = ["no longer accepts every value", "is no longer unrestricted"];
pub(super) const NO_UNKNOWN_FIELDS: ValueChange =
    ["no longer accepts unknown fields", "has no unknown fields any more"];
pub(super) const UNKNOWN_FIELDS: ValueChange = ["also accepts unknown fields", "may have unknown fields too"];
/// The budget or the depth limit ended the comparison.
pub(super) const TOO_LARGE: ValueChange = ["is too large to be compared in full"; 2];
/// Something changed that the comparison does not interpret.
pub(super) const UNCLASSIFIED: ValueChange = ["changed in a way that cannot be classified"; 2];

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
            (SchemaRole::Input, false) => format!("`{}`: {text}", path.text),
            (SchemaRole::Output, false) => format!("its output: `{}`: {text}", path.text),
        }
    }

    /// Renders a change that continues the path or the tool's name: `also takes null`.
    pub(super) fn render_predicate(self, path: &SchemaPath, [input, output]: ValueChange, values: &str) -> String {
        let predicate = match self {
            SchemaRole::Input => input.replace("{}", values),
            SchemaRole::Output => output.replace("{}", values),
        };
        match (self, path.is_root()) {
            (SchemaRole::Input, true) => predicate,
            (SchemaRole::Output, true) => format!("its output {predicate}"),
            (SchemaRole::Input, false) => format!("`{}` {predicate}", path.text),
            (SchemaRole::Output, false) => format!("its output: `{}` {predicate}", path.text),
        }
    }

    /// Renders an added or removed field: ``lost `labels` ``. `verb` ends with a space.
    pub(super) fn render_field_change(self, verb: &str, field: &SchemaPath) -> String {
        let subject = if self == SchemaRole::Output { "its output " } else { "" };
        format!("{subject}{verb}`{}`", field.text)
    }

    /// Renders a field that became required or optional.
    pub(super) fn render_required_change(self, path: &SchemaPath, is_required: bool) -> String {
        let path = &path.text;
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
            (SchemaRole::Input, false) => format!("the {keyword} of `{}` changed", path.text),
            (SchemaRole::Output, false) => format!("the {keyword} of `{}` in its output changed", path.text),
        }
    }
}

impl SchemaPath {
    /// Returns the path of a field, truncated to 120 characters. Truncating also bounds the work for deeply nested
    /// fields.
    pub(super) fn field(&self, name: &str) -> SchemaPath {
        let dot = if self.is_root() { "" } else { "." };
        let text = sanitize_truncated(&format!("{}{dot}{}", self.text, sanitize_truncated(name, 60)), 120);
        SchemaPath { text, depth: self.depth + 1 }
    }

    /// Returns the path of the items of an array.
    pub(super) fn items(&self) -> SchemaPath {
        SchemaPath { text: format!("{}[]", self.text), depth: self.depth + 1 }
    }

    /// Returns the path of alternatives of the same value, one level deeper.
    pub(super) fn alternatives(&self) -> SchemaPath {
        SchemaPath { text: self.text.clone(), depth: self.depth + 1 }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the path is that of the whole value.
    fn is_root(&self) -> bool {
        self.text.is_empty()
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
