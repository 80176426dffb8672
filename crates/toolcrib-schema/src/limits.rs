//! Numeric limits: minimum and maximum of values, lengths and counts. A limit of a value may be exclusive, which drafts
//! write in two ways: as a keyword of its own, and up to draft 4 as a boolean beside the inclusive one.

use std::cmp::Ordering;

use serde_json::Value;
use toolcrib_core::json::as_float;

use crate::keywords::is_vacuous;

/// Keywords of one limit.
#[derive(Debug)]
pub struct LimitKeywords {
    inclusive: &'static str,
    exclusive: Option<&'static str>,
    /// Makes a larger number mean a tighter limit.
    sign: f64,
}

/// `minimum` and `exclusiveMinimum`.
pub const MINIMUM: LimitKeywords =
    LimitKeywords { inclusive: "minimum", exclusive: Some("exclusiveMinimum"), sign: 1.0 };
/// `maximum` and `exclusiveMaximum`.
pub const MAXIMUM: LimitKeywords =
    LimitKeywords { inclusive: "maximum", exclusive: Some("exclusiveMaximum"), sign: -1.0 };

/// All limits.
pub const LIMITS: [LimitKeywords; 8] = [
    MINIMUM,
    LimitKeywords { inclusive: "minLength", exclusive: None, sign: 1.0 },
    LimitKeywords { inclusive: "minItems", exclusive: None, sign: 1.0 },
    LimitKeywords { inclusive: "minProperties", exclusive: None, sign: 1.0 },
    MAXIMUM,
    LimitKeywords { inclusive: "maxLength", exclusive: None, sign: -1.0 },
    LimitKeywords { inclusive: "maxItems", exclusive: None, sign: -1.0 },
    LimitKeywords { inclusive: "maxProperties", exclusive: None, sign: -1.0 },
];

/// Returns whether a keyword is a limit or its exclusive form.
pub fn is_limit(keyword: &str) -> bool {
    LIMITS.iter().any(|limit| limit.inclusive == keyword || limit.exclusive == Some(keyword))
}

/// A limit of a schema.
#[derive(Debug, Clone, Copy)]
pub struct Limit<'a> {
    /// Keyword that sets it.
    pub keyword: &'static str,
    pub value: &'a Value,
    /// The limit itself is excluded.
    pub is_exclusive: bool,
    /// Value times the sign of its keyword: larger is tighter.
    number: f64,
}

impl<'a> Limit<'a> {
    /// Returns the limits that the inclusive and the exclusive keyword set. Malformed and vacuous ones are none.
    pub fn read(
        keywords: &LimitKeywords,
        get: impl Fn(&str) -> Option<&'a Value>,
    ) -> (Option<Limit<'a>>, Option<Limit<'a>>) {
        // `as_float` fails for the boolean form, which is no limit by itself.
        let limit = |keyword: &'static str, is_exclusive: bool| {
            let value = get(keyword).filter(|value| !is_vacuous(keyword, value))?;
            Some(Limit { keyword, value, is_exclusive, number: as_float(value)? * keywords.sign })
        };
        let has_boolean_form = keywords.exclusive.and_then(&get) == Some(&Value::Bool(true));
        let inclusive = limit(keywords.inclusive, has_boolean_form);
        (inclusive, keywords.exclusive.and_then(|exclusive| limit(exclusive, true)))
    }

    /// Returns the tighter of both limits, which is the one that has an effect.
    pub fn tightest(keywords: &LimitKeywords, get: impl Fn(&str) -> Option<&'a Value>) -> Option<Limit<'a>> {
        match Limit::read(keywords, get) {
            (Some(inclusive), Some(exclusive)) if inclusive.cmp_tightness(&exclusive) == Ordering::Greater => {
                Some(inclusive)
            }
            (inclusive, exclusive) => exclusive.or(inclusive),
        }
    }

    /// Compares how tight two limits of the same kind are. At the same number, an exclusive limit is tighter.
    pub fn cmp_tightness(&self, other: &Limit<'_>) -> Ordering {
        self.number.total_cmp(&other.number).then(self.is_exclusive.cmp(&other.is_exclusive))
    }
}
