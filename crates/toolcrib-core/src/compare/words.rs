//! What is found, in words: of an argument what it takes, of an answer what it may be.

use std::collections::BTreeSet;

use super::Class;
use super::ways::Way;
use crate::text::shown_short;

/// Of the names of types, which come from outside.
const LONGEST_NAMES: usize = 80;

/// Whether a schema is about what a tool takes or what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Input,
    Output,
}

/// Where in the schema: `filter.state`, `labels[]`; nothing at its root.
#[derive(Debug, Clone, Default)]
pub(super) struct Place(String);

/// What became of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Became {
    /// These alone, where there was no such limit.
    Only(String),
    NoLonger(String),
    Also(String),
    AnyType,
    OtherValuesToo,
    Something,
    Nothing,
    Anything,
    NotAnything,
    WithoutUnknownFields,
    WithUnknownFields,
    TooLarge,
    Untold,
}

impl Side {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Side::Input => "input",
            Side::Output => "output",
        }
    }

    /// The class of a value that may be more than before. Who calls gains by that; who reads an answer may meet what
    /// nobody told of.
    pub(super) fn more(self) -> Class {
        match self {
            Side::Input => Class::Widened,
            Side::Output => Class::Narrowed,
        }
    }

    /// The class of a value that may be less than before.
    pub(super) fn less(self) -> Class {
        match self {
            Side::Input => Class::Narrowed,
            Side::Output => Class::Widened,
        }
    }

    /// What has a subject of its own: `string became integer`.
    pub(super) fn remark(self, place: &Place, text: &str) -> String {
        match (self, place.is_root()) {
            (Side::Input, true) => format!("its arguments: {text}"),
            (Side::Output, true) => format!("its output: {text}"),
            (Side::Input, false) => format!("`{}`: {text}", place.0),
            (Side::Output, false) => format!("its output: `{}`: {text}", place.0),
        }
    }

    /// What reads on after the place, or after the tool's name: `also takes null`.
    pub(super) fn predicate(self, place: &Place, became: &Became) -> String {
        let words = became.words(self);
        match (self, place.is_root()) {
            (Side::Input, true) => words,
            (Side::Output, true) => format!("its output {words}"),
            (Side::Input, false) => format!("`{}` {words}", place.0),
            (Side::Output, false) => format!("its output: `{}` {words}", place.0),
        }
    }

    /// Of fields that came, went or have another name: ``lost `labels` ``.
    pub(super) fn of_fields(self, text: &str) -> String {
        match self {
            Side::Input => text.to_owned(),
            Side::Output => format!("its output {text}"),
        }
    }

    /// A field that must be there now, or need not be any more.
    pub(super) fn required(self, place: &Place, now: bool) -> String {
        let place = &place.0;
        match (self, now) {
            (Side::Input, true) => format!("`{place}` became required"),
            (Side::Input, false) => format!("`{place}` became optional"),
            (Side::Output, true) => format!("its output always has `{place}` now"),
            (Side::Output, false) => format!("its output may come without `{place}` now"),
        }
    }

    /// A title or a description.
    pub(super) fn text(self, place: &Place, keyword: &str) -> String {
        match (self, place.is_root()) {
            (Side::Input | Side::Output, true) => format!("the {keyword} of its {} schema changed", self.as_str()),
            (Side::Input, false) => format!("the {keyword} of `{}` changed", place.0),
            (Side::Output, false) => format!("the {keyword} of `{}` in its output changed", place.0),
        }
    }
}

impl Place {
    pub(super) fn field(&self, name: &str) -> Place {
        let dot = if self.is_root() { "" } else { "." };
        Place(shown_short(&format!("{}{dot}{}", self.0, shown_short(name, 60)), 120))
    }

    pub(super) fn items(&self) -> Place {
        Place(format!("{}[]", self.0))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl Became {
    fn words(&self, side: Side) -> String {
        let (taken, given) = match self {
            Became::Only(what) => (format!("takes only {what} now"), format!("is only {what} now")),
            Became::NoLonger(what) => (format!("no longer takes {what}"), format!("is no longer {what}")),
            Became::Also(what) => (format!("also takes {what}"), format!("may also be {what}")),
            Became::AnyType => ("takes any type now".into(), "may be of any type now".into()),
            Became::OtherValuesToo => ("takes other values too".into(), "may have other values too".into()),
            Became::Something => ("takes something now".into(), "may be there now".into()),
            Became::Nothing => ("takes nothing any more".into(), "is never there any more".into()),
            Became::Anything => ("takes anything now".into(), "may be anything now".into()),
            Became::NotAnything => ("takes less than anything now".into(), "is no longer just anything".into()),
            Became::WithoutUnknownFields => {
                ("no longer takes unknown fields".into(), "has no unknown fields any more".into())
            }
            Became::WithUnknownFields => ("also takes unknown fields".into(), "may have unknown fields too".into()),
            Became::TooLarge => {
                let both = "is too large to be compared in full";
                (both.into(), both.into())
            }
            Became::Untold => {
                let both = "changed in a way that is not told apart";
                (both.into(), both.into())
            }
        };
        match side {
            Side::Input => taken,
            Side::Output => given,
        }
    }
}

/// The types of ways, and what each is called where that is known.
pub(super) fn named<'a, 'b: 'a>(ways: impl IntoIterator<Item = &'a Way<'b>>) -> String {
    let one = |way: &Way<'b>| match (&way.label, way.kind) {
        (Some(label), Some(kind @ "object")) => format!("{kind} `{}`", shown_short(label, 40)),
        (_, Some(kind)) => shown_short(kind, 40),
        (Some(label), None) => format!("`{}`", shown_short(label, 40)),
        (None, None) => "other values".to_owned(),
    };
    let names: BTreeSet<String> = ways.into_iter().map(one).collect();
    shown_short(&names.into_iter().collect::<Vec<_>>().join(", "), LONGEST_NAMES)
}
