//! What is found, in words: of an argument what it takes, of an answer what it may be.

use std::collections::BTreeSet;

use super::ChangeClass;
use super::alternatives::Alternative;
use crate::text::sanitize_truncated;

/// Of the names of types, which come from outside.
const MAX_TYPE_NAMES_LEN: usize = 80;

/// Whether a schema is about what a tool takes or what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaRole {
    Input,
    Output,
}

/// Where in the schema: `filter.state`, `labels[]`; nothing at its root.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaPath(String);

/// What became of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueChange {
    /// These alone, where there was no such limit.
    Only(String),
    NoLonger(String),
    Also(String),
    AnyType,
    OtherValuesToo,
    AcceptsSomething,
    AcceptsNothing,
    AcceptsAnything,
    NoLongerAnything,
    WithoutUnknownFields,
    WithUnknownFields,
    TooLarge,
    Unclassified,
}

impl SchemaRole {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            SchemaRole::Input => "input",
            SchemaRole::Output => "output",
        }
    }

    /// The class of a value that may be more than before. Who calls gains by that; who reads an answer may meet what
    /// nobody told of.
    pub(super) fn widening_class(self) -> ChangeClass {
        match self {
            SchemaRole::Input => ChangeClass::Widened,
            SchemaRole::Output => ChangeClass::Narrowed,
        }
    }

    /// The class of a value that may be less than before.
    pub(super) fn narrowing_class(self) -> ChangeClass {
        match self {
            SchemaRole::Input => ChangeClass::Narrowed,
            SchemaRole::Output => ChangeClass::Widened,
        }
    }

    /// What has a subject of its own: `string became integer`.
    pub(super) fn render_remark(self, place: &SchemaPath, text: &str) -> String {
        match (self, place.is_root()) {
            (SchemaRole::Input, true) => format!("its arguments: {text}"),
            (SchemaRole::Output, true) => format!("its output: {text}"),
            (SchemaRole::Input, false) => format!("`{}`: {text}", place.0),
            (SchemaRole::Output, false) => format!("its output: `{}`: {text}", place.0),
        }
    }

    /// What reads on after the place, or after the tool's name: `also takes null`.
    pub(super) fn render_predicate(self, place: &SchemaPath, became: &ValueChange) -> String {
        let words = became.to_text(self);
        match (self, place.is_root()) {
            (SchemaRole::Input, true) => words,
            (SchemaRole::Output, true) => format!("its output {words}"),
            (SchemaRole::Input, false) => format!("`{}` {words}", place.0),
            (SchemaRole::Output, false) => format!("its output: `{}` {words}", place.0),
        }
    }

    /// Of fields that came, went or have another name: ``lost `labels` ``.
    pub(super) fn render_field_change(self, text: &str) -> String {
        match self {
            SchemaRole::Input => text.to_owned(),
            SchemaRole::Output => format!("its output {text}"),
        }
    }

    /// A field that must be there now, or need not be any more.
    pub(super) fn render_required_change(self, place: &SchemaPath, now: bool) -> String {
        let place = &place.0;
        match (self, now) {
            (SchemaRole::Input, true) => format!("`{place}` became required"),
            (SchemaRole::Input, false) => format!("`{place}` became optional"),
            (SchemaRole::Output, true) => format!("its output always has `{place}` now"),
            (SchemaRole::Output, false) => format!("its output may come without `{place}` now"),
        }
    }

    /// A title or a description.
    pub(super) fn render_text_change(self, place: &SchemaPath, keyword: &str) -> String {
        match (self, place.is_root()) {
            (SchemaRole::Input | SchemaRole::Output, true) => {
                format!("the {keyword} of its {} schema changed", self.as_str())
            }
            (SchemaRole::Input, false) => format!("the {keyword} of `{}` changed", place.0),
            (SchemaRole::Output, false) => format!("the {keyword} of `{}` in its output changed", place.0),
        }
    }
}

impl SchemaPath {
    pub(super) fn field(&self, name: &str) -> SchemaPath {
        let dot = if self.is_root() { "" } else { "." };
        SchemaPath(sanitize_truncated(&format!("{}{dot}{}", self.0, sanitize_truncated(name, 60)), 120))
    }

    pub(super) fn items(&self) -> SchemaPath {
        SchemaPath(format!("{}[]", self.0))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl ValueChange {
    fn to_text(&self, side: SchemaRole) -> String {
        let (taken, given) = match self {
            ValueChange::Only(what) => (format!("takes only {what} now"), format!("is only {what} now")),
            ValueChange::NoLonger(what) => (format!("no longer takes {what}"), format!("is no longer {what}")),
            ValueChange::Also(what) => (format!("also takes {what}"), format!("may also be {what}")),
            ValueChange::AnyType => ("takes any type now".into(), "may be of any type now".into()),
            ValueChange::OtherValuesToo => ("takes other values too".into(), "may have other values too".into()),
            ValueChange::AcceptsSomething => ("takes something now".into(), "may be there now".into()),
            ValueChange::AcceptsNothing => ("takes nothing any more".into(), "is never there any more".into()),
            ValueChange::AcceptsAnything => ("takes anything now".into(), "may be anything now".into()),
            ValueChange::NoLongerAnything => {
                ("takes less than anything now".into(), "is no longer just anything".into())
            }
            ValueChange::WithoutUnknownFields => {
                ("no longer takes unknown fields".into(), "has no unknown fields any more".into())
            }
            ValueChange::WithUnknownFields => {
                ("also takes unknown fields".into(), "may have unknown fields too".into())
            }
            ValueChange::TooLarge => {
                let both = "is too large to be compared in full";
                (both.into(), both.into())
            }
            ValueChange::Unclassified => {
                let both = "changed in a way that is not told apart";
                (both.into(), both.into())
            }
        };
        match side {
            SchemaRole::Input => taken,
            SchemaRole::Output => given,
        }
    }
}

/// The types of ways, and what each is called where that is known.
pub(super) fn describe_types<'a, 'b: 'a>(ways: impl IntoIterator<Item = &'a Alternative<'b>>) -> String {
    let one = |way: &Alternative<'b>| match (&way.label, way.type_name) {
        (Some(label), Some(kind @ "object")) => format!("{kind} `{}`", sanitize_truncated(label, 40)),
        (_, Some(kind)) => sanitize_truncated(kind, 40),
        (Some(label), None) => format!("`{}`", sanitize_truncated(label, 40)),
        (None, None) => "other values".to_owned(),
    };
    let names: BTreeSet<String> = ways.into_iter().map(one).collect();
    sanitize_truncated(&names.into_iter().collect::<Vec<_>>().join(", "), MAX_TYPE_NAMES_LEN)
}
