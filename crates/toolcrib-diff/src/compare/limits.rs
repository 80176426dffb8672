//! Compares numeric limits: minimum and maximum of values, lengths and counts. Of a limit and its exclusive form, the
//! tighter one applies.
//!
//! `{"minimum": 5}` became `{"exclusiveMinimum": 5}` is a tighter limit, although neither keyword has a counterpart on
//! the other side; so both are reduced to one effective limit before they are compared.

use std::cmp::Ordering;

use serde_json::Value;

use super::ChangeClass;
use super::keywords::{KeywordNote, MergedKeywords, display_json, is_vacuous};
use super::notes::SchemaRole;

/// For each limit: its keyword, its exclusive form, and a sign that makes a larger number mean a tighter limit.
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

/// Returns whether a keyword is a limit or its exclusive form.
pub(super) fn is_limit(name: &str) -> bool {
    LIMIT_KEYWORDS.iter().any(|(limit, strict, _)| *limit == name || *strict == Some(name))
}

/// Compares the limits of two schemas.
pub(super) fn compare_limits(
    role: SchemaRole,
    old: &MergedKeywords<'_>,
    new: &MergedKeywords<'_>,
    report: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    // A tighter limit accepts fewer values.
    for (name, strict, sign) in LIMIT_KEYWORDS {
        match (Limit::tightest(old, name, strict, sign), Limit::tightest(new, name, strict, sign)) {
            (None, None) => {}
            (None, Some(limit)) => {
                report(role.narrowing_class(), KeywordNote::Remark(format!("{} was set", limit.to_text())))
            }
            (Some(limit), None) => {
                report(role.widening_class(), KeywordNote::Remark(format!("{} was dropped", limit.name)))
            }
            (Some(before), Some(after)) => {
                let class = match after.cmp_tightness(&before) {
                    // The same limit written differently: 1 and 1.0.
                    Ordering::Equal => continue,
                    Ordering::Less => role.widening_class(),
                    Ordering::Greater => role.narrowing_class(),
                };
                // `maximum 10 became 5`, but `maximum 10 became exclusiveMaximum 5`.
                let after_text = if before.name == after.name { after.value_text() } else { after.to_text() };
                report(class, KeywordNote::Remark(format!("{} became {after_text}", before.to_text())));
            }
        }
    }
}

/// The effective limit of a schema, by the tighter of two keywords.
struct Limit<'a> {
    /// Keyword that sets it.
    name: &'a str,
    value: &'a Value,
    /// Value times the sign of its keyword: larger is tighter.
    number: f64,
    /// The limit itself is excluded.
    is_strict: bool,
}

impl<'a> Limit<'a> {
    /// Returns the tighter of a limit and its exclusive form, if the schema has either.
    fn tightest(keywords: &MergedKeywords<'a>, name: &'a str, strict: Option<&'a str>, sign: f64) -> Option<Limit<'a>> {
        // `as_f64` fails for the boolean form, which is no limit by itself.
        let limit = |name: &'a str, is_strict: bool| {
            let value = keywords.get(name).filter(|value| !is_vacuous(name, value))?;
            Some(Limit { name, value, number: value.as_f64()? * sign, is_strict })
        };
        // Up to draft 4, `exclusiveMinimum` and `exclusiveMaximum` are booleans beside the limit.
        let has_boolean_form = strict.and_then(|strict| keywords.get(strict)) == Some(&&Value::Bool(true));
        let inclusive = limit(name, has_boolean_form);
        let exclusive = strict.and_then(|strict| limit(strict, true));
        match (inclusive, exclusive) {
            (Some(inclusive), Some(exclusive)) if inclusive.cmp_tightness(&exclusive) == Ordering::Greater => {
                Some(inclusive)
            }
            (inclusive, exclusive) => exclusive.or(inclusive),
        }
    }

    /// Compares how tight two limits are. At the same number, an exclusive limit is tighter.
    fn cmp_tightness(&self, other: &Limit<'_>) -> Ordering {
        self.number.total_cmp(&other.number).then(self.is_strict.cmp(&other.is_strict))
    }

    fn value_text(&self) -> String {
        display_json(self.value)
    }

    /// Renders keyword and value: `maximum 10`.
    fn to_text(&self) -> String {
        format!("{} {}", self.name, self.value_text())
    }
}
