//! Decides whether new rules allow more than the rules they replace, so that a change can be approved again.
//!
//! Decided for every name that a tool could have, since the tools are not known yet. Where an exact answer is not
//! possible, the rules count as wider.
//!
//! ```text
//! { "delete_*": deny }    ─▶ { "delete_*": deny, "push": ask }    narrower: no approval
//! { "delete_*": deny }    ─▶ { "delete_repo": deny }              wider: `delete_branch` is allowed now
//! ```
//!
//! The method: for every pair of an old and a new rule whose verdicts widen, look for a name that both decide about.
//! Such a name may exist if the globs overlap and no more specific rule covers one of them.

use super::{Rule, Rules, Verdict, wildcard_match};
use crate::text::sanitize;
use crate::tool::MAX_TOOL_NAME_LEN as MAX_NAME_LEN;

/// Maximum number of rules in a list that is analysed. The comparison is cubic in the number of rules and quadratic in
/// the length of globs, and the file is not trusted yet; anything longer counts as wider unless it is equal.
const MAX_RULES: usize = 64;
/// Maximum length of a glob that is analysed, for the same reason.
const MAX_GLOB_LEN: usize = 128;

/// Verdict on a tool where no rule of its source matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultVerdict {
    /// For all sources but built-in ones.
    Allow,
    /// Each built-in tool has its own default, `allow` or `ask`; a rule `allow` can lift the latter.
    PerTool,
}

/// Whether `new` could give some tool a less strict verdict than `old`. `prefix` is the prefix of the source's tools in
/// the names that agents see. May return true for rules that widen nothing, but never false for rules that do. A new
/// restriction list can only restrict, so only the old ones are looked at.
pub fn widens(old: &Rules, new: &Rules, prefix: &str, default: DefaultVerdict) -> bool {
    let restrictions_widen = old.restrictions.iter().enumerate().any(|(index, restriction)| {
        let replacement = new.restrictions.get(index).map_or(&[][..], Vec::as_slice);
        list_widens(restriction, replacement, prefix, DefaultVerdict::Allow)
    });
    restrictions_widen || list_widens(&old.own, &new.own, prefix, default)
}

/// Whether one list allows more than the list it replaces.
/// Equal lists are recognised first, so that long ones do not need approval on every load.
fn list_widens(old: &[Rule], new: &[Rule], prefix: &str, default: DefaultVerdict) -> bool {
    if old == new {
        return false;
    }
    let too_long =
        |rules: &[Rule]| rules.len() > MAX_RULES || rules.iter().any(|rule| rule.glob.chars().count() > MAX_GLOB_LEN);
    if too_long(old) || too_long(new) {
        return true;
    }
    // Every pair of an old and a new rule; `None` stands for tools that no rule of a list matches.
    let choices = |rules: &[Rule]| (0..rules.len()).map(Some).chain([None]).collect::<Vec<_>>();
    choices(old).into_iter().any(|before| {
        choices(new).into_iter().any(|after| {
            let verdict = |rules: &[Rule], index: Option<usize>| index.map(|index| rules[index].verdict);
            is_wider(verdict(old, before), verdict(new, after), default)
                && may_decide_together(old, before, new, after, prefix)
        })
    })
}

/// Whether a verdict becomes less strict. `None` stands for the default.
/// Where the default is `allow`, a rule for a tool that had none is never wider.
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
    let globs: Vec<&str> = before
        .map(|index| &old[index])
        .into_iter()
        .chain(after.map(|index| &new[index]))
        .map(|rule| rule.glob.as_str())
        .collect();
    if let [old_glob, new_glob] = globs[..]
        && !may_match_one_tool(old_glob, new_glob, prefix)
    {
        return false;
    }
    // Rules are sorted by specificity: an earlier rule that matches everything one of the two matches would decide
    // instead.
    let earlier = old[..before.unwrap_or(old.len())].iter().chain(&new[..after.unwrap_or(new.len())]);
    !earlier.into_iter().any(|rule| globs.iter().any(|glob| glob_covers(&rule.glob, glob)))
}

/// Whether both globs could match the same tool. A rule may use the tool's own name or the name that agents see: with
/// characters replaced, shortened, or with a hash at its end.
/// One rule may name the tool by its own name and the other as agents see it, so all forms are compared with each
/// other.
fn may_match_one_tool(a: &str, b: &str, prefix: &str) -> bool {
    let forms = |glob: &str| {
        let sanitized = sanitized_glob(glob);
        let hashed = hashed_name_glob(&sanitized, prefix);
        [glob.to_owned(), format!("{prefix}{glob}"), format!("{prefix}{sanitized}"), sanitized, hashed]
    };
    let forms_of_b = forms(b);
    forms(a).iter().any(|a| forms_of_b.iter().any(|b| globs_overlap(a, b)))
}

/// Returns a glob for the sanitised names of the tools whose own names `glob` matches. `?` becomes `*`, since
/// sanitising may remove the character that it matches.
fn sanitized_glob(glob: &str) -> String {
    let replace = |character: char| match character {
        '?' => '*',
        '*' | '_' | '-' => character,
        _ if character.is_ascii_alphanumeric() => character,
        _ => '_',
    };
    sanitize(glob).chars().map(replace).collect()
}

/// Returns a glob for the names that these tools get where the ordinary name is taken or too long.
fn hashed_name_glob(sanitized: &str, prefix: &str) -> String {
    let max_len = MAX_NAME_LEN.saturating_sub(prefix.len() + "_12345678".len());
    let head: String = sanitized.chars().take_while(|character| *character != '*').take(max_len).collect();
    format!("{head}*_????????")
}

/// Whether `general` matches every text that `specific` matches. May return false for globs
/// that do, but never true for globs that do not.
fn glob_covers(general: &str, specific: &str) -> bool {
    // `specific` is treated as a text in which only a `*` of `general` can match a `*`.
    wildcard_match(general, specific, |character| character != '*')
}

/// Whether a text exists that both globs match. Takes time in proportion to the product of the lengths.
fn globs_overlap(a: &str, b: &str) -> bool {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    // Dynamic programming from the ends: `row[j]` says whether `a[i..]` and `b[j..]` match a common text.
    let mut below = vec![false; b.len() + 1];
    for i in (0..=a.len()).rev() {
        let mut row = vec![false; b.len() + 1];
        for j in (0..=b.len()).rev() {
            row[j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some('*'), None) => below[j],
                (None, Some('*')) => row[j + 1],
                (Some(_), None) | (None, Some(_)) => false,
                (Some('*'), Some(_)) | (Some(_), Some('*')) => below[j] || row[j + 1],
                (Some(x), Some(y)) => (x == y || *x == '?' || *y == '?') && below[j + 1],
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
        for (a, b, expected) in [
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
            assert_eq!((globs_overlap(a, b), globs_overlap(b, a)), (expected, expected), "{a} {b}");
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
            let verdict = Verdict::ALL.into_iter().find(|candidate| candidate.as_str() == verdict).unwrap();
            Rule { glob: glob.to_owned(), verdict }
        };
        let list = |text: &str| Rules::new(text.split_whitespace().map(rule).collect());
        let mut lists = text.split('|').map(list);
        let own = lists.next().unwrap();
        lists.fold(own, Rules::restricted_by)
    }

    #[test]
    fn only_rules_that_allow_more_are_wider() {
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
