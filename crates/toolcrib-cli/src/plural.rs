//! Counts and name lists in messages.

/// Returns a count with its noun: `1 tool`, `3 tools`, `2 processes`.
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
