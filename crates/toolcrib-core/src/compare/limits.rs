//! How far a value may go, before and after: whichever of the keywords that say so is the tighter one.

use std::cmp::Ordering;

use serde_json::Value;

use super::ChangeClass;
use super::keywords::{KeywordNote, MergedKeywords, display_json, is_vacuous};
use super::notes::SchemaRole;

/// A limit, the same without the limit itself, and whether more of it takes less or more.
const LIMIT_KEYWORDS: [(&str, Option<&str>, f64); 8] = [
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
    LIMIT_KEYWORDS.iter().any(|(limit, strict, _)| *limit == name || *strict == Some(name))
}

pub(super) fn compare_limits(
    side: SchemaRole,
    old: &MergedKeywords<'_>,
    new: &MergedKeywords<'_>,
    tell: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    for (name, strict, sign) in LIMIT_KEYWORDS {
        match (Limit::tightest(old, name, strict, sign), Limit::tightest(new, name, strict, sign)) {
            (None, None) => {}
            (None, Some(limit)) => {
                tell(side.narrowing_class(), KeywordNote::Remark(format!("{} was set", limit.to_text())))
            }
            (Some(limit), None) => {
                tell(side.widening_class(), KeywordNote::Remark(format!("{} was dropped", limit.name)))
            }
            (Some(before), Some(after)) => {
                let class = match after.cmp_tightness(&before) {
                    // 1 and 1.0 are one limit.
                    Ordering::Equal => continue,
                    Ordering::Less => side.widening_class(),
                    Ordering::Greater => side.narrowing_class(),
                };
                let now = if before.name == after.name { after.value_text() } else { after.to_text() };
                tell(class, KeywordNote::Remark(format!("{} became {now}", before.to_text())));
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
    fn tightest(keywords: &MergedKeywords<'a>, name: &'a str, strict: Option<&'a str>, sign: f64) -> Option<Limit<'a>> {
        let found = |name: &'a str, is_strict: bool| {
            let value = keywords.get(name).filter(|value| !is_vacuous(name, value))?;
            Some(Limit { name, value, number: value.as_f64()? * sign, is_strict })
        };
        // An older draft of JSON Schema says beside the limit whether it is strict.
        let says_so = strict.and_then(|strict| keywords.get(strict)) == Some(&&Value::Bool(true));
        let (own, other) = (found(name, says_so), strict.and_then(|strict| found(strict, true)));
        match (own, other) {
            (Some(own), Some(other)) if own.cmp_tightness(&other) == Ordering::Greater => Some(own),
            (own, other) => other.or(own),
        }
    }

    fn cmp_tightness(&self, other: &Limit<'_>) -> Ordering {
        self.number.total_cmp(&other.number).then(self.is_strict.cmp(&other.is_strict))
    }

    fn value_text(&self) -> String {
        display_json(self.value)
    }

    fn to_text(&self) -> String {
        format!("{} {}", self.name, self.value_text())
    }
}
