//! Line diff of two texts. Removed and added lines are marked by a sign and not by colour alone.
//!
//! Definitions come from sources and may be of any size, so the comparison, the number of lines and their length are
//! each bounded.

use maud::{Markup, html};

use super::text::format_count;

/// Maximum product of the numbers of differing lines, which is the cost of the comparison. Beyond it all old lines
/// count as removed and all new ones as added. The table of the comparison has about as many entries, of four bytes
/// each.
const MAX_COMPARED_PAIRS: usize = 500_000;
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
}

/// Renders the differences of two texts with their context.
pub(super) fn render_diff(before: &str, after: &str) -> Markup {
    let lines = diff_lines(before, after);
    let is_near_change = |index: usize| {
        let context = index.saturating_sub(CONTEXT_LINES)..=(index + CONTEXT_LINES).min(lines.len().saturating_sub(1));
        lines[context].iter().any(|line| !matches!(line, DiffLine::Same(_)))
    };
    // The first line of each gap is included, to be rendered as an ellipsis.
    let shown: Vec<usize> =
        (0..lines.len()).filter(|index| is_near_change(*index) || *index == 0 || is_near_change(*index - 1)).collect();
    let hidden = shown.get(MAX_LINES_SHOWN..).unwrap_or_default().len();
    html! {
        div.diff tabindex="0" role="group" aria-label="Differences" {
            ul { @for (index, line) in shown.iter().take(MAX_LINES_SHOWN).filter_map(|index| Some((*index, lines.get(*index)?))) {
                @match line {
                    DiffLine::Removed(text) => { li.lost { span { "−" span.unseen { " removed" } } del { (truncate_line(text)) } } }
                    DiffLine::Added(text) => {
                        li.gained { span { "+" span.unseen { " added" } } ins { (truncate_line(text)) } }
                    }
                    DiffLine::Same(text) if is_near_change(index) => { li { span {} span { (truncate_line(text)) } } }
                    DiffLine::Same(_) => { li.skipped { span {} span { "…" } } }
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

/// Compares two texts. Common lines at both ends are skipped first, because most changes are small.
fn diff_lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let old: Vec<&str> = before.lines().collect();
    let new: Vec<&str> = after.lines().collect();
    let prefix = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let max_suffix = old.len().min(new.len()) - prefix;
    let suffix = old.iter().rev().zip(new.iter().rev()).take(max_suffix).take_while(|(a, b)| a == b).count();
    let mut lines: Vec<DiffLine<'_>> = old[..prefix].iter().map(|line| DiffLine::Same(line)).collect();
    diff_middle(&old[prefix..old.len() - suffix], &new[prefix..new.len() - suffix], &mut lines);
    lines.extend(old[old.len() - suffix..].iter().map(|line| DiffLine::Same(line)));
    lines
}

/// Compares the differing middle part by its longest common subsequence; removed lines come before added ones.
fn diff_middle<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<DiffLine<'a>>) {
    let mut old_index = 0;
    let mut new_index = 0;
    if old.len().saturating_mul(new.len()) <= MAX_COMPARED_PAIRS {
        let common = common_lengths(old, new);
        while old_index < old.len() && new_index < new.len() {
            if old[old_index] == new[new_index] {
                lines.push(DiffLine::Same(old[old_index]));
                old_index += 1;
                new_index += 1;
            } else if common[old_index + 1][new_index] >= common[old_index][new_index + 1] {
                lines.push(DiffLine::Removed(old[old_index]));
                old_index += 1;
            } else {
                lines.push(DiffLine::Added(new[new_index]));
                new_index += 1;
            }
        }
    }
    lines.extend(old[old_index..].iter().map(|line| DiffLine::Removed(line)));
    lines.extend(new[new_index..].iter().map(|line| DiffLine::Added(line)));
}

/// Returns the table of the longest common subsequence: entry `[i][j]` is its length for `old[i..]` and `new[j..]`.
fn common_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<u32>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] =
                if old[i] == new[j] { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_keeps_common_lines_and_is_bounded() {
        use DiffLine::{Added, Removed, Same};
        assert_eq!(diff_lines("a\nb\nc", "a\nx\nc"), [Same("a"), Removed("b"), Added("x"), Same("c")]);
        assert_eq!(diff_lines("a\nb\nc\nd", "b\nd\ne"), [Removed("a"), Same("b"), Removed("c"), Same("d"), Added("e")]);
        assert_eq!(diff_lines("", "a"), [Added("a")]);
        assert_eq!(diff_lines("a\na", "a"), [Same("a"), Removed("a")]);
        let long = |line: &str| format!("{line}\n").repeat(3_000);
        assert_eq!(diff_lines(&long("x"), &long("y")).len(), 6_000);
        let html = render_diff(&long("x"), &long("y")).into_string();
        assert_eq!((html.matches("<li").count(), html.contains("5,700 more lines")), (MAX_LINES_SHOWN, true));
    }
}
