//! Compares the output of a command with the one in a document. What differs from run to run (times, durations, ports,
//! keys) is replaced on both sides first.

use std::sync::LazyLock;

use regex::Regex;

/// Returns the first expected line that the output does not have, with the output, or nothing when all match.
pub(crate) fn find_mismatch(expected: &[String], actual: &[String]) -> Option<String> {
    let expected: Vec<String> = expected.iter().map(|line| normalize(line)).collect();
    let normalized: Vec<String> = actual.iter().map(|line| normalize(line)).collect();
    if matches_lines(&expected, &normalized) {
        return None;
    }
    Some(format!("the output differs\n--- in the document\n{}\n--- now\n{}\n", expected.join("\n"), actual.join("\n")))
}

/// Whether the lines match, where an expected line `…` stands for any number of lines.
fn matches_lines(expected: &[String], actual: &[String]) -> bool {
    match expected.split_first() {
        None => actual.is_empty(),
        Some((line, rest)) if line == "…" => {
            (0..=actual.len()).any(|skipped| matches_lines(rest, &actual[skipped..]))
        }
        Some((line, rest)) => {
            actual.split_first().is_some_and(|(first, after)| matches_text(line, first) && matches_lines(rest, after))
        }
    }
}

/// Whether a line matches, where `…` stands for any text. Lines without it are compared as they are, so that `…` in the
/// output itself matches too.
fn matches_text(expected: &str, actual: &str) -> bool {
    if expected == actual {
        return true;
    }
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Replaces what differs from run to run.
fn normalize(line: &str) -> String {
    static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let patterns = [
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r"\b\d+m\d+\.\d+s", "<duration>"),
            (r"\b\d+(\.\d+)? ?(ms|µs|s|m|h)( ago)?(?:\b|$)", "<duration>"),
            (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
            // The link with its key is printed on a terminal only; elsewhere the address alone.
            (r"/login\?key=[A-Za-z0-9_-]+…?", "/"),
            (r"\btcb_[A-Za-z0-9_-]+…?", "<token>"),
        ];
        patterns.map(|(pattern, with)| (Regex::new(pattern).unwrap(), with)).to_vec()
    });
    let mut line = line.trim_end().to_owned();
    for (pattern, with) in PATTERNS.iter() {
        line = pattern.replace_all(&line, *with).into_owned();
    }
    // Columns of a table are padded to the widest cell, which may be a duration.
    let mut collapsed = String::with_capacity(line.len());
    for (index, character) in line.char_indices() {
        let is_padding = character == ' ' && line[..index].ends_with(' ') && !line[..index].trim().is_empty();
        if !is_padding {
            collapsed.push(character);
        }
    }
    collapsed
}

#[test]
fn output_matches_but_for_what_differs_from_run_to_run() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    for (expected, actual) in [
        ("a\nb", "a\nb"),
        ("a: 14 tools (14702 ms)", "a: 14 tools (9 ms)"),
        ("x  9s ago", "x       12s ago"),
        ("2026-11-15 22:08:26Z  #1", "2027-01-01 00:00:00Z  #1"),
        ("a … c\n…\nz", "a b c\nd\ne\nz"),
        ("listening on http://127.0.0.1:7450", "listening on http://127.0.0.1:41234"),
        ("console at http://127.0.0.1:7450/login?key=hvbE…", "console at http://127.0.0.1:1/"),
    ] {
        assert_eq!(find_mismatch(&lines(expected), &lines(actual)), None, "{expected}");
    }
    for (expected, actual) in [("a", "b"), ("a", "a\nb"), ("a\nb", "a"), ("a … c", "a b d"), ("14 tools", "13 tools")]
    {
        assert!(find_mismatch(&lines(expected), &lines(actual)).is_some(), "{expected}");
    }
}
