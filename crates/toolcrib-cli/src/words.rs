//! Numbers in sentences.

/// `1 tool`, `3 tools`, `2 processes`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match (count, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (count, true) => format!("{count} {what}es"),
        (count, false) => format!("{count} {what}s"),
    }
}
