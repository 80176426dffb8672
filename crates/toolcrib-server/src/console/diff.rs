//! Two texts, line by line: what was lost and what was gained, marked by a sign and not by colour alone.

use maud::{Markup, html};

use super::words::counted;

/// What differs is compared line by line where the lengths multiplied, which is what it costs, are no more than this.
const MOST_PAIRS: usize = 500_000;
/// So much of a difference is shown: nobody reads on.
const MOST_SHOWN: usize = 300;
const LONGEST_LINE: usize = 1_000;
/// So many lines are shown around what differs.
const AROUND: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Lost(&'a str),
    Gained(&'a str),
}

pub(super) fn shown(before: &str, after: &str) -> Markup {
    let lines = compared(before, after);
    let near = |at: usize| {
        let around = at.saturating_sub(AROUND)..=(at + AROUND).min(lines.len().saturating_sub(1));
        lines[around].iter().any(|line| !matches!(line, Line::Same(_)))
    };
    let seen: Vec<usize> = (0..lines.len()).filter(|at| near(*at) || *at == 0 || near(*at - 1)).collect();
    let left_out = seen.get(MOST_SHOWN..).unwrap_or_default().len();
    html! {
        div.diff tabindex="0" role="group" aria-label="What differs" {
            ul { @for (at, line) in seen.iter().take(MOST_SHOWN).filter_map(|at| Some((*at, lines.get(*at)?))) {
                @match line {
                    Line::Lost(text) => { li.lost { span { "−" span.unseen { " lost" } } del { (cut(text)) } } }
                    Line::Gained(text) => {
                        li.gained { span { "+" span.unseen { " gained" } } ins { (cut(text)) } }
                    }
                    Line::Same(text) if near(at) => { li { span {} span { (cut(text)) } } }
                    Line::Same(_) => { li.skipped { span {} span { "…" } } }
                }
            } }
        }
        @if left_out > 0 { p.faint { (counted(left_out, "more line")) " left out here." } }
    }
}

fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(LONGEST_LINE);
    if end < line.len() { format!("{}…", &line[..end]) } else { line.to_owned() }
}

/// The longest common part stays; of what differs, the old comes first.
fn compared<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let begin = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - begin;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(one, other)| one == other).count();
    let mut lines: Vec<Line<'_>> = old[..begin].iter().map(|line| Line::Same(line)).collect();
    middle(&old[begin..old.len() - end], &new[begin..new.len() - end], &mut lines);
    lines.extend(old[old.len() - end..].iter().map(|line| Line::Same(line)));
    lines
}

fn middle<'a>(old: &[&'a str], new: &[&'a str], lines: &mut Vec<Line<'a>>) {
    let (mut at, mut other) = (0, 0);
    if old.len().saturating_mul(new.len()) <= MOST_PAIRS {
        let common = common(old, new);
        while at < old.len() && other < new.len() {
            if old[at] == new[other] {
                lines.push(Line::Same(old[at]));
                (at, other) = (at + 1, other + 1);
            } else if common[at + 1][other] >= common[at][other + 1] {
                lines.push(Line::Lost(old[at]));
                at += 1;
            } else {
                lines.push(Line::Gained(new[other]));
                other += 1;
            }
        }
    }
    lines.extend(old[at..].iter().map(|line| Line::Lost(line)));
    lines.extend(new[other..].iter().map(|line| Line::Gained(line)));
}

/// How many lines the rests of both have in common, from each place on.
fn common(old: &[&str], new: &[&str]) -> Vec<Vec<u32>> {
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
        use Line::{Gained, Lost, Same};
        assert_eq!(compared("a\nb\nc", "a\nx\nc"), [Same("a"), Lost("b"), Gained("x"), Same("c")]);
        assert_eq!(compared("a\nb\nc\nd", "b\nd\ne"), [Lost("a"), Same("b"), Lost("c"), Same("d"), Gained("e")]);
        assert_eq!(compared("", "a"), [Gained("a")]);
        assert_eq!(compared("a\na", "a"), [Same("a"), Lost("a")]);
        let long = |with: &str| format!("{with}\n").repeat(3_000);
        assert_eq!(compared(&long("x"), &long("y")).len(), 6_000);
        let shown = shown(&long("x"), &long("y")).into_string();
        assert_eq!((shown.matches("<li").count(), shown.contains("5,700 more lines")), (MOST_SHOWN, true));
    }
}
