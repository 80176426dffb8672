//! Whether rules that replace others let through more than those did. Decided for every name a tool could have, since
//! the tools themselves are not known yet. Where that cannot be decided exactly the answer is yes.

use super::{Rule, Rules, Verdict, wildcard_match};
use crate::text::sanitize;
use crate::tool::MAX_TOOL_NAME_LEN as MAX_NAME_LEN;

/// Longer lists and longer globs are not analysed: comparing them is cubic in their number and quadratic in their
/// length, and they come from a file that is not trusted yet.
const MAX_RULES: usize = 64;
const MAX_GLOB_LEN: usize = 128;

/// What a tool is where no rule of its source matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultVerdict {
    Allow,
    /// Each built-in tool is allowed or asked about by itself; an `allow` can lift the latter.
    PerTool,
}

/// Whether `new` could give some tool a less strict verdict than `old`. `prefix` is what stands before the names of the
/// source's tools where agents see them.
pub fn widens(old: &Rules, new: &Rules, prefix: &str, default: DefaultVerdict) -> bool {
    let restrictions = old.restrictions.iter().enumerate().any(|(index, restriction)| {
        let now = new.restrictions.get(index).map_or(&[][..], Vec::as_slice);
        list_widens(restriction, now, prefix, DefaultVerdict::Allow)
    });
    restrictions || list_widens(&old.own, &new.own, prefix, default)
}

fn list_widens(old: &[Rule], new: &[Rule], prefix: &str, default: DefaultVerdict) -> bool {
    if old == new {
        return false;
    }
    let too_long =
        |rules: &[Rule]| rules.len() > MAX_RULES || rules.iter().any(|rule| rule.glob.chars().count() > MAX_GLOB_LEN);
    if too_long(old) || too_long(new) {
        return true;
    }
    // `None` stands for the tools that no rule of a list matches.
    let choices = |rules: &[Rule]| (0..rules.len()).map(Some).chain([None]).collect::<Vec<_>>();
    choices(old).into_iter().any(|before| {
        choices(new).into_iter().any(|after| {
            let verdict = |rules: &[Rule], index: Option<usize>| index.map(|index| rules[index].verdict);
            is_wider(verdict(old, before), verdict(new, after), default)
                && may_decide_together(old, before, new, after, prefix)
        })
    })
}

fn is_wider(old: Option<Verdict>, new: Option<Verdict>, default: DefaultVerdict) -> bool {
    match (old, new, default) {
        (Some(old), Some(new), _) => new < old,
        (None, None, _) => false,
        (Some(old), None, _) => old > Verdict::Allow,
        (None, Some(_), DefaultVerdict::Allow) => false,
        (None, Some(new), DefaultVerdict::PerTool) => new == Verdict::Allow,
    }
}

/// Whether some tool's verdict could come from rule `before` of the old list and from rule `after` of the new one.
fn may_decide_together(old: &[Rule], before: Option<usize>, new: &[Rule], after: Option<usize>, prefix: &str) -> bool {
    let chosen: Vec<&str> = before
        .map(|index| &old[index])
        .into_iter()
        .chain(after.map(|index| &new[index]))
        .map(|rule| rule.glob.as_str())
        .collect();
    if let [one, other] = chosen[..]
        && !may_match_one_tool(one, other, prefix)
    {
        return false;
    }
    // A more specific rule that matches whatever one of the two matches would have decided instead.
    let earlier = old[..before.unwrap_or(old.len())].iter().chain(&new[..after.unwrap_or(new.len())]);
    !earlier.into_iter().any(|rule| chosen.iter().any(|glob| glob_covers(&rule.glob, glob)))
}

/// Whether some tool could be matched by both globs. A rule may name a tool as its source does or as agents see it: with
/// other characters in place of illegal ones, cut, or with a hash at its end.
fn may_match_one_tool(one: &str, other: &str, prefix: &str) -> bool {
    let forms = |glob: &str| {
        let legal = sanitized_glob(glob);
        let hashed = hashed_name_glob(&legal, prefix);
        [glob.to_owned(), format!("{prefix}{glob}"), format!("{prefix}{legal}"), legal, hashed]
    };
    let others = forms(other);
    forms(one).iter().any(|one| others.iter().any(|other| globs_overlap(one, other)))
}

/// Matches the shown names of the tools whose own names a glob matches. Characters that are removed from names may have
/// stood where the glob has a `?`.
fn sanitized_glob(glob: &str) -> String {
    let legal = |character: char| match character {
        '?' => '*',
        '*' | '_' | '-' => character,
        _ if character.is_ascii_alphanumeric() => character,
        _ => '_',
    };
    sanitize(glob).chars().map(legal).collect()
}

/// Matches the names that these tools get where the plain name is taken or too long.
fn hashed_name_glob(legal: &str, prefix: &str) -> String {
    let kept = MAX_NAME_LEN.saturating_sub(prefix.len() + "_12345678".len());
    let head: String = legal.chars().take_while(|character| *character != '*').take(kept).collect();
    format!("{head}*_????????")
}

/// Whether every text that `specific` matches is matched by `general` too.
fn glob_covers(general: &str, specific: &str) -> bool {
    // The other glob is taken as a text in which `*` stands for itself, so only a `*` can match it.
    wildcard_match(general, specific, |character| character != '*')
}

/// Whether a text exists that both globs match.
fn globs_overlap(one: &str, other: &str) -> bool {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    // `row[j]` says whether the rest of `one` from here and the rest of `other` from `j` have a text in common.
    let mut below = vec![false; other.len() + 1];
    for i in (0..=one.len()).rev() {
        let mut row = vec![false; other.len() + 1];
        for j in (0..=other.len()).rev() {
            row[j] = match (one.get(i), other.get(j)) {
                (None, None) => true,
                (Some('*'), None) => below[j],
                (None, Some('*')) => row[j + 1],
                (Some(_), None) | (None, Some(_)) => false,
                (Some('*'), Some(_)) | (Some(_), Some('*')) => below[j] || row[j + 1],
                (Some(a), Some(b)) => (a == b || *a == '?' || *b == '?') && below[j + 1],
            };
        }
        below = row;
    }
    below[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_overlap_and_cover() {
        for (one, other, expected) in [
            ("delete_*", "*_repo", true),
            ("delete_*", "create_*", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("", "", true),
            ("a*b", "b*a", false),
            ("a*", "*b", true),
            ("?", "*", true),
            ("a*b*c", "a?c", true),
            ("a*b*c", "a?d", false),
        ] {
            assert_eq!((globs_overlap(one, other), globs_overlap(other, one)), (expected, expected), "{one} {other}");
        }
        for (general, specific, expected) in [
            ("*", "delete_*", true),
            ("delete_*", "delete_repo_*", true),
            ("delete_*", "*", false),
            ("?", "*", false),
            ("?", "?", true),
            ("a*", "a?", true),
            ("*a*", "*a", true),
        ] {
            assert_eq!(glob_covers(general, specific), expected, "{general} {specific}");
        }
    }

    fn parse_rules(text: &str) -> Rules {
        let rule = |pair: &str| {
            let (glob, verdict) = pair.split_once(':').unwrap();
            let verdict = Verdict::ALL.into_iter().find(|one| one.as_str() == verdict).unwrap();
            Rule { glob: glob.to_owned(), verdict }
        };
        let list = |text: &str| Rules::new(text.split_whitespace().map(rule).collect());
        let mut lists = text.split('|').map(list);
        let own = lists.next().unwrap();
        lists.fold(own, Rules::restricted_by)
    }

    #[test]
    fn only_rules_that_let_through_more_are_wider() {
        for (old, new, expected) in [
            ("delete_*:deny", "delete_*:deny", false),
            ("delete_*:deny", "delete_*:ask", true),
            ("delete_*:deny", "delete_*:hide", false),
            ("delete_*:deny", "", true),
            ("", "delete_*:deny", false),
            ("", "get_*:allow", false),
            ("delete_*:deny", "delete_*:deny create_*:ask", false),
            ("delete_*:deny", "delete_repo:allow delete_*:deny", true),
            ("delete_*:deny", "get_*:allow delete_*:deny", false),
            ("delete_*:deny", "*:deny", false),
            ("*:deny", "*:deny get_*:allow", true),
            ("*:deny get_*:allow", "*:deny", false),
            ("*:deny get_*:allow", "*:deny get_*:allow get_secret:deny", false),
            ("*:hide", "*:hide get_*:deny", true),
            ("delete_*:deny", "src__delete_x:allow delete_*:deny", true),
            ("delete_?:deny", "delete_a:deny delete_b:deny", true),
            // Names as agents see them.
            ("repo.*:deny", "repo.*:deny repo_delete:allow", true),
            ("*_repo:deny", "*_repo:deny aaaa_1a2b3c4d:allow", true),
            ("delete_*:deny", "delete_*:deny get_aaaa_1a2b3c4d:allow", false),
            (" | delete_*:deny", "", true),
            ("x:deny | delete_*:deny", "x:deny | delete_*:hide", false),
            ("x:deny", "x:deny | y:deny", false),
        ] {
            assert_eq!(
                widens(&parse_rules(old), &parse_rules(new), "src__", DefaultVerdict::Allow),
                expected,
                "{old} -> {new}"
            );
        }
        for (old, new, expected) in
            [("", "bash:allow", true), ("", "bash:ask", false), ("", "bash:deny", false), ("bash:allow", "", false)]
        {
            assert_eq!(
                widens(&parse_rules(old), &parse_rules(new), "", DefaultVerdict::PerTool),
                expected,
                "{old} -> {new}"
            );
        }
    }

    #[test]
    fn long_lists_are_wider_unless_they_are_equal() {
        let many = |count: usize| parse_rules(&(0..count).map(|n| format!("t{n}:deny ")).collect::<String>());
        assert!(!widens(&many(100), &many(100), "", DefaultVerdict::Allow));
        assert!(widens(&many(100), &many(101), "", DefaultVerdict::Allow));
        let long = format!("{}:deny", "*a".repeat(100));
        assert!(widens(&parse_rules(&long), &parse_rules("*:deny"), "", DefaultVerdict::Allow));
    }
}
