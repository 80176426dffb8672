//! Rules that say what may be done with a tool, by globs on its name. Enforced when listing and again when calling.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[default]
    Allow,
    /// Listed; a call needs somebody's consent.
    Ask,
    /// Listed and not found by a search; every call is refused.
    Deny,
    /// As if it did not exist.
    Hide,
}

/// A source's rules on its tools. The most specific glob that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rules(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub glob: String,
    pub verdict: Verdict,
}

impl Verdict {
    pub const ALL: [Verdict; 4] = [Verdict::Allow, Verdict::Ask, Verdict::Deny, Verdict::Hide];

    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
            Verdict::Hide => "hide",
        }
    }
}

impl Rules {
    /// Sorts the rules so that the most specific comes first: more literal characters, then fewer wildcards.
    pub fn new(mut rules: Vec<Rule>) -> Rules {
        rules.sort_by_cached_key(|rule| {
            let wildcards = rule.glob.matches(['*', '?']).count();
            let literals = rule.glob.chars().count() - wildcards;
            (std::cmp::Reverse(literals), wildcards, rule.glob.clone())
        });
        Rules(rules)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// What the rules say of a tool that goes by these names; `None` when no rule matches any.
    pub fn verdict(&self, names: &[&str]) -> Option<Verdict> {
        let matches = |rule: &&Rule| names.iter().any(|name| glob_matches(&rule.glob, name));
        self.0.iter().find(matches).map(|rule| rule.verdict)
    }
}

/// `*` stands for any run of characters, `?` for one; the whole text must match. Only the last star is ever taken up
/// again, so the work is at most the product of both lengths.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Where to resume when a later literal fails: the last star, and the text it has swallowed so far.
    let mut resume: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                resume = Some((g + 1, t));
                g += 1;
            }
            Some(&character) if character == '?' || character == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match resume {
                Some((after_star, swallowed)) => {
                    resume = Some((after_star, swallowed + 1));
                    g = after_star;
                    t = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&character| character == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (glob, text, expected) in [
            ("delete_*", "delete_repo", true),
            ("delete_*", "undelete_repo", false),
            ("*delete*", "undelete_repo", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("*a*b", "xaybzb", true),
            ("", "", true),
        ] {
            assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
        }
    }

    #[test]
    fn the_most_specific_rule_decides() {
        let rule = |glob: &str, verdict| Rule { glob: glob.into(), verdict };
        let rules = Rules::new(vec![
            rule("*", Verdict::Deny),
            rule("get_*", Verdict::Allow),
            rule("get_secret", Verdict::Hide),
            rule("get_s*", Verdict::Ask),
        ]);
        for (tool, verdict) in [
            ("push", Verdict::Deny),
            ("get_all", Verdict::Allow),
            ("get_secret", Verdict::Hide),
            ("get_size", Verdict::Ask),
        ] {
            assert_eq!(rules.verdict(&[tool]), Some(verdict), "{tool}");
        }
        assert_eq!(rules.verdict(&["any", "get_secret"]), Some(Verdict::Hide), "any of its names");
        assert_eq!(Rules::default().verdict(&["push"]), None);
    }
}
