//! Counts and name lists in messages. English plurals only, as far as the nouns of the messages need them.

/// Returns a count with its noun: `1 tool`, `3 tools`, `2 processes`. Adds `es` after an `s` and `s` elsewhere; nouns
/// with another plural (`query`) are not supported.
pub(crate) fn pluralize(count: usize, noun: &str) -> String {
    match (count, noun.ends_with('s')) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{count} {noun}es"),
        (_, false) => format!("{count} {noun}s"),
    }
}

/// Joins the first `limit` names and counts the rest: `a, b and 2 more`.
pub(crate) fn join_truncated(names: &[String], limit: usize) -> String {
    let joined = names.iter().take(limit).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(limit) {
        0 => joined,
        more => format!("{joined} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_a_long_list() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(join_truncated(&names, 3), "a, b, c");
        assert_eq!(join_truncated(&names, 1), "a and 2 more");
    }
}
