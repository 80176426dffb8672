//! How far a value may go, before and after: whichever of the keywords that say so is the tighter one.

use std::cmp::Ordering;

use serde_json::Value;

use super::Class;
use super::keywords::{Keywords, Note, asks_nothing, short};
use super::words::Side;

/// A limit, the same without the limit itself, and whether more of it takes less or more.
const LIMITS: [(&str, Option<&str>, f64); 8] = [
    ("minimum", Some("exclusiveMinimum"), 1.0),
    ("minLength", None, 1.0),
    ("minItems", None, 1.0),
    ("minProperties", None, 1.0),
    ("maximum", Some("exclusiveMaximum"), -1.0),
    ("maxLength", None, -1.0),
    ("maxItems", None, -1.0),
    ("maxProperties", None, -1.0),
];

pub(super) fn is_limit(name: &str) -> bool {
    LIMITS.iter().any(|(limit, strict, _)| *limit == name || *strict == Some(name))
}

pub(super) fn limits(side: Side, old: &Keywords<'_>, new: &Keywords<'_>, tell: &mut impl FnMut(Class, Note)) {
    for (name, strict, sign) in LIMITS {
        match (Limit::of(old, name, strict, sign), Limit::of(new, name, strict, sign)) {
            (None, None) => {}
            (None, Some(limit)) => tell(side.less(), Note::Remark(format!("{} was set", limit.shown()))),
            (Some(limit), None) => tell(side.more(), Note::Remark(format!("{} was dropped", limit.name))),
            (Some(before), Some(after)) => {
                let class = match after.tighter_than(&before) {
                    // 1 and 1.0 are one limit.
                    Ordering::Equal => continue,
                    Ordering::Less => side.more(),
                    Ordering::Greater => side.less(),
                };
                let now = if before.name == after.name { after.value() } else { after.shown() };
                tell(class, Note::Remark(format!("{} became {now}", before.shown())));
            }
        }
    }
}

/// How far a value may go, by the tighter of two keywords.
struct Limit<'a> {
    name: &'a str,
    value: &'a Value,
    number: f64,
    /// Whether the limit itself is not taken.
    is_strict: bool,
}

impl<'a> Limit<'a> {
    fn of(keywords: &Keywords<'a>, name: &'a str, strict: Option<&'a str>, sign: f64) -> Option<Limit<'a>> {
        let found = |name: &'a str, is_strict: bool| {
            let value = keywords.get(name).filter(|value| !asks_nothing(name, value))?;
            Some(Limit { name, value, number: value.as_f64()? * sign, is_strict })
        };
        // An older draft of JSON Schema says beside the limit whether it is strict.
        let says_so = strict.and_then(|strict| keywords.get(strict)) == Some(&&Value::Bool(true));
        let (own, other) = (found(name, says_so), strict.and_then(|strict| found(strict, true)));
        match (own, other) {
            (Some(own), Some(other)) if own.tighter_than(&other) == Ordering::Greater => Some(own),
            (own, other) => other.or(own),
        }
    }

    fn tighter_than(&self, other: &Limit<'_>) -> Ordering {
        self.number.total_cmp(&other.number).then(self.is_strict.cmp(&other.is_strict))
    }

    fn value(&self) -> String {
        short(self.value)
    }

    fn shown(&self) -> String {
        format!("{} {}", self.name, self.value())
    }
}
