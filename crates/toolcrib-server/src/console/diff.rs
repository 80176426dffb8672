//! Two texts, line by line: what was lost and what was gained, marked by a sign and not by colour alone.

use maud::{Markup, html};

use super::text::format_count;

/// What differs is compared line by line where the lengths multiplied, which is what it costs, are no more than this.
const MAX_COMPARED_PAIRS: usize = 500_000;
/// So much of a difference is shown: nobody reads on.
const MAX_LINES_SHOWN: usize = 300;
const MAX_LINE_LEN: usize = 1_000;
/// So many lines are shown around what differs.
const CONTEXT_LINES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiffLine<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

pub(super) fn render_diff(before: &str, after: &str) -> Markup {
    let lines = diff_lines(before, after);
    let near = |at: usize| {
        let around = at.saturating_sub(CONTEXT_LINES)..=(at + CONTEXT_LINES).min(lines.len().saturating_sub(1));
        lines[around].iter().any(|line| !matches!(line, DiffLine::Same(_)))
    };
    let seen: Vec<usize> = (0..lines.len()).filter(|at| near(*at) || *at == 0 || near(*at - 1)).collect();
    let left_out = seen.get(MAX_LINES_SHOWN..).unwrap_or_default().len();
    html! {
        div.diff tabindex="0" role="group" aria-label="What differs" {
            ul { @for (at, line) in seen.iter().take(MAX_LINES_SHOWN).filter_map(|at| Some((*at, lines.get(*at)?))) {
                @match line {
                    DiffLine::Removed(text) => { li.lost { span { "−" span.unseen { " lost" } } del { (truncate_line(text)) } } }
                    DiffLine::Added(text) => {
                        li.gained { span { "+" span.unseen { " gained" } } ins { (truncate_line(text)) } }
                    }
                    DiffLine::Same(text) if near(at) => { li { span {} span { (truncate_line(text)) } } }
                    DiffLine::Same(_) => { li.skipped { span {} span { "…" } } }
                }
            } }
        }
        @if left_out > 0 { p.faint { (format_count(left_out, "more line")) " left out here." } }
    }
}

fn truncate_line(line: &str) -> String {
    let end = line.floor_char_boundary(MAX_LINE_LEN);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// The longest common part stays; of what differs, the old comes first.
fn diff_lines<'a>(before: &'a str, after: &'a str) -> Vec<DiffLine<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - begin;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    let mut lines: Vec<DiffLine<'_>> = old[..begin].iter().map(|line| DiffLine::Same(line)).collect();
    diff_middle(&old[begin..old.len() - end], &new[begin..new.len() - end], &mut lines);
    lines.extend(old[old.len() - end..].iter().map(|line| DiffLine::Same(line)));
    lines
}

fn diff_middle<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<DiffLine<'a>>) {
    let (mut at, mut other) = (0, 0);
    if old.len().saturating_mul(new.len()) <= MAX_COMPARED_PAIRS {
        let common = common_lengths(old, new);
        while at < old.len() && other < new.len() {
            if old[at] == new[other] {
                lines.push(DiffLine::Same(old[at]));
                (at, other) = (at + 1, other + 1);
            } else if common[at + 1][other] >= common[at][other + 1] {
                lines.push(DiffLine::Removed(old[at]));
                at += 1;
            } else {
                lines.push(DiffLine::Added(new[other]));
                other += 1;
            }
        }
    }
    lines.extend(old[at..].iter().map(|line| DiffLine::Removed(line)));
    lines.extend(new[other..].iter().map(|line| DiffLine::Added(line)));
}

/// How many lines the rests of both have in common, from each place on.
fn common_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<u32>> {
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for at in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            common[at][other] = match old[at] == new[other] {
                true => common[at + 1][other + 1] + 1,
                false => common[at + 1][other].max(common[at][other + 1]),
            };
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stayed_stays_and_what_differs_is_told_once() {
        use DiffLine::{Added, Removed, Same};
        assert_eq!(diff_lines("a\nb\nc", "a\nx\nc"), [Same("a"), Removed("b"), Added("x"), Same("c")]);
        assert_eq!(diff_lines("a\nb\nc\nd", "b\nd\ne"), [Removed("a"), Same("b"), Removed("c"), Same("d"), Added("e")]);
        assert_eq!(diff_lines("", "a"), [Added("a")]);
        assert_eq!(diff_lines("a\na", "a"), [Same("a"), Removed("a")]);
        let long = |with: &str| format!("{with}\n").repeat(3_000);
        assert_eq!(diff_lines(&long("x"), &long("y")).len(), 6_000);
        let shown = render_diff(&long("x"), &long("y")).into_string();
        assert_eq!((shown.matches("<li").count(), shown.contains("5,700 more lines")), (MAX_LINES_SHOWN, true));
    }
}
