//! Line diff of two texts. Removed and added lines are marked by a sign and not by colour alone.
//!
//! Definitions come from sources and may be of any size, so the comparison, the number of lines and their length are
//! each bounded.

use maud::{Markup, html};
use similar::{Algorithm, ChangeTag, DiffOp, capture_diff_slices, group_diff_ops};

use super::text::format_count;

/// Maximum number of differing lines in both texts together that are compared; the cost of the comparison grows with its
/// square. Beyond it all old lines count as removed and all new ones as added.
const MAX_COMPARED_LINES: usize = 3_000;
/// Maximum number of lines rendered.
const MAX_LINES_SHOWN: usize = 300;
/// Maximum length of a rendered line, in bytes.
const MAX_LINE_LEN: usize = 1_000;
/// Unchanged lines shown before and after a difference.
const CONTEXT_LINES: usize = 3;

/// One line of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'a> {
    /// In both texts.
    Same(&'a str),
    /// In the old text alone.
    Removed(&'a str),
    /// In the new text alone.
    Added(&'a str),
    /// Unchanged lines that are left out.
    Gap,
}

/// Renders the differences of two texts with their context.
pub(super) fn render_diff(before: &str, after: &str) -> Markup {
    let lines = diff_lines(before, after);
    let hidden = lines.len().saturating_sub(MAX_LINES_SHOWN);
    html! {
        div.diff tabindex="0" role="group" aria-label="Differences" {
            ul { @for line in lines.iter().take(MAX_LINES_SHOWN) {
                @match line {
                    DiffLine::Removed(text) => { li.lost { span { "−" span.unseen { " removed" } } del { (truncate_line(text)) } } }
                    DiffLine::Added(text) => {
                        li.gained { span { "+" span.unseen { " added" } } ins { (truncate_line(text)) } }
                    }
                    DiffLine::Same(text) => { li { span {} span { (truncate_line(text)) } } }
                    DiffLine::Gap => { li.skipped { span {} span { "…" } } }
                }
            } }
        }
        @if hidden > 0 { p.faint { (format_count(hidden, "more line")) " not shown." } }
    }
}

/// Cuts a line at [`MAX_LINE_LEN`] bytes, at the boundary of a character.
fn truncate_line(line: &str) -> String {
    let end = line.floor_char_boundary(MAX_LINE_LEN);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// Compares two texts line by line.
fn diff_lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let old: Vec<&str> = before.lines().collect();
    let new: Vec<&str> = after.lines().collect();
    let prefix = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let suffix = old[prefix..].iter().rev().zip(new[prefix..].iter().rev()).take_while(|(a, b)| a == b).count();
    let old_len = old.len() - prefix - suffix;
    let new_len = new.len() - prefix - suffix;
    let operations = if old_len + new_len <= MAX_COMPARED_LINES {
        capture_diff_slices(Algorithm::Myers, &old, &new)
    } else {
        vec![
            DiffOp::Equal { old_index: 0, new_index: 0, len: prefix },
            DiffOp::Replace { old_index: prefix, old_len, new_index: prefix, new_len },
            DiffOp::Equal { old_index: prefix + old_len, new_index: prefix + new_len, len: suffix },
        ]
    };
    let mut lines = Vec::new();
    let mut next_line = 0;
    for operation in group_diff_ops(operations, CONTEXT_LINES).iter().flatten() {
        if next_line < operation.old_range().start {
            lines.push(DiffLine::Gap);
        }
        next_line = operation.old_range().end;
        lines.extend(operation.iter_changes(&old, &new).map(|change| match change.tag() {
            ChangeTag::Equal => DiffLine::Same(change.value()),
            ChangeTag::Delete => DiffLine::Removed(change.value()),
            ChangeTag::Insert => DiffLine::Added(change.value()),
        }));
    }
    if next_line < old.len() {
        lines.push(DiffLine::Gap);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_keeps_common_lines_and_is_bounded() {
        use DiffLine::{Added, Gap, Removed, Same};
        assert_eq!(diff_lines("a\nb\nc", "a\nx\nc"), [Same("a"), Removed("b"), Added("x"), Same("c")]);
        assert_eq!(diff_lines("a\nb\nc\nd", "b\nd\ne"), [Removed("a"), Same("b"), Removed("c"), Same("d"), Added("e")]);
        assert_eq!(diff_lines("", "a"), [Added("a")]);
        assert_eq!(diff_lines("a\na", "a"), [Same("a"), Removed("a")]);
        assert_eq!(diff_lines("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n6\n7")[..2], [Gap, Same("4")]);
        assert_eq!(diff_lines("1\n2\n3\n4\n5", "0\n1\n2\n3\n4\n5").last(), Some(&Gap));
        let long = |line: &str| format!("{line}\n").repeat(3_000);
        assert_eq!(diff_lines(&long("x"), &long("y")).len(), 6_000);
        let html = render_diff(&long("x"), &long("y")).into_string();
        assert_eq!((html.matches("<li").count(), html.contains("5,700 more lines")), (MAX_LINES_SHOWN, true));
    }
}
