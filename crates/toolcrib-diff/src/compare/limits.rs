//! Compares numeric limits. Of a limit and its exclusive form, the tighter one applies.
//!
//! `{"minimum": 5}` became `{"exclusiveMinimum": 5}` is a tighter limit, although neither keyword has a counterpart on
//! the other side; so both are reduced to one effective limit before they are compared.

use std::cmp::Ordering;

use toolcrib_schema::{LIMITS, Limit};

use super::ChangeClass;
use super::keywords::{KeywordNote, MergedKeywords, display_json};
use super::notes::SchemaRole;

/// Compares the limits of two schemas.
pub(super) fn compare_limits(
    role: SchemaRole,
    old: &MergedKeywords<'_>,
    new: &MergedKeywords<'_>,
    report: &mut impl FnMut(ChangeClass, KeywordNote),
) {
    let mut remark = |class: ChangeClass, text: String| report(class, KeywordNote::Remark(text));
    // A tighter limit accepts fewer values.
    for keywords in &LIMITS {
        let before = Limit::tightest(keywords, |keyword| old.get(keyword).copied());
        let after = Limit::tightest(keywords, |keyword| new.get(keyword).copied());
        match (before, after) {
            (None, None) => {}
            (None, Some(limit)) => remark(role.narrowing_class(), format!("{} was set", display_limit(&limit))),
            (Some(limit), None) => remark(role.widening_class(), format!("{} was dropped", limit.keyword)),
            (Some(before), Some(after)) => {
                let class = match after.cmp_tightness(&before) {
                    // The same limit written differently: 1 and 1.0.
                    Ordering::Equal => continue,
                    Ordering::Less => role.widening_class(),
                    Ordering::Greater => role.narrowing_class(),
                };
                // `maximum 10 became 5`, but `maximum 10 became exclusiveMaximum 5`.
                let is_same_keyword = before.keyword == after.keyword;
                let text = if is_same_keyword { display_json(after.value) } else { display_limit(&after) };
                remark(class, format!("{} became {text}", display_limit(&before)));
            }
        }
    }
}

/// Renders keyword and value: `maximum 10`.
fn display_limit(limit: &Limit<'_>) -> String {
    format!("{} {}", limit.keyword, display_json(limit.value))
}
