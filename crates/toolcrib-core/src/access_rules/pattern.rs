//! Patterns of groups, policies and conditions: globs, or regular expressions behind `regex:`.

use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::policy::glob_matches;
use crate::text::sanitize_truncated;

/// Text before a regular expression.
const REGEX_PREFIX: &str = "regex:";
/// Maximum length of a pattern in bytes.
const MAX_PATTERN_LEN: usize = 500;
/// Maximum size of a compiled regular expression in bytes, and of the cache that it uses while matching. `(a{99}){99}`
/// is short and exceeds it.
const MAX_COMPILED_BYTES: usize = 256 * 1024;

/// Pattern on names, paths or claims. A glob matches the whole text: `*` any run of characters, `/` included, `?` one
/// character. A regular expression matches anywhere in the text. Case matters.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    /// `None` for a glob.
    regex: Option<Regex>,
}

impl Pattern {
    /// Parses a pattern. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("a pattern must not be empty".to_owned());
        }
        if text.len() > MAX_PATTERN_LEN {
            return Err(format!("a pattern has at most {MAX_PATTERN_LEN} bytes, and this one has {}", text.len()));
        }
        let regex = text.strip_prefix(REGEX_PREFIX).map(compile).transpose()?;
        Ok(Pattern { text: text.to_owned(), regex })
    }

    /// Whether the pattern matches a text.
    pub fn matches(&self, text: &str) -> bool {
        match &self.regex {
            Some(regex) => regex.is_match(text),
            None => glob_matches(&self.text, text),
        }
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Compiles a regular expression. The time of a match is linear in the text, whatever the expression.
fn compile(expression: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(expression);
    builder.size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES);
    builder.build().map_err(|error| {
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return "the regular expression is too large; use fewer or smaller repetitions".to_owned();
        }
        // Errors of the parser have several lines: the expression, a marker below it, and the reason last.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("the regular expression is invalid: {}", sanitize_truncated(reason, 120))
    })
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
        let text = String::deserialize(deserializer)?;
        Pattern::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_texts_and_regular_expressions_any_part() {
        for (pattern, text, expected) in [
            ("get_*", "get_issue", true),
            ("get_*", "budget_issue", false),
            ("/tickets/*", "/tickets/{id}/notes", true),
            ("regex:^(get|list)_", "list_issues", true),
            ("regex:issue", "get_issue_2", true),
            ("regex:^issue", "get_issue", false),
            ("[a-z]", "a", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn broken_and_expensive_patterns_are_refused_with_a_reason() {
        for (pattern, reason) in [
            ("", "empty"),
            ("regex:(", "unclosed group"),
            ("regex:(a{99}){99}{99}", "too large"),
            (&"x".repeat(501), "at most 500 bytes"),
        ] {
            let error = Pattern::parse(pattern).unwrap_err();
            assert!(error.contains(reason) && !error.contains('\n'), "{error}");
        }
    }
}
