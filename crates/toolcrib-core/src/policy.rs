//! Rules that say what may be done with a tool, by globs on its name. Enforced when listing and again when calling.

mod widening;

use serde::{Deserialize, Serialize};

pub use widening::{DefaultVerdict, widens};

/// From the least to the most strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
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

/// A source's rules on its tools. In each list the most specific glob that matches decides.
///
/// The first list is the source's own, and may allow what is otherwise refused. The others come from another file
/// about the same source and only restrict: the strictest verdict of all lists holds, and `allow` in them changes
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "StoredRules", into = "StoredRules")]
pub struct Rules {
    own: Vec<Rule>,
    restrictions: Vec<Vec<Rule>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub glob: String,
    pub verdict: Verdict,
}

/// Rules without restrictions are stored as one plain list, which is how all were stored before there were several.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredRules {
    One(Vec<Rule>),
    Several(Vec<Vec<Rule>>),
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
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules { own: most_specific_first(rules), restrictions: Vec::new() }
    }

    /// These rules, restricted by those that another file has for the same source.
    pub fn restricted_by(mut self, other: Rules) -> Rules {
        let lists = std::iter::once(other.own).chain(other.restrictions);
        self.restrictions.extend(lists.filter(|list| !list.is_empty()).map(most_specific_first));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.restrictions.is_empty()
    }

    /// The source's own list, then the restrictions.
    pub fn lists(&self) -> impl Iterator<Item = &[Rule]> {
        std::iter::once(self.own.as_slice()).chain(self.restrictions.iter().map(Vec::as_slice))
    }

    /// What holds for a tool that goes by these names. `unruled` is what it is where its source has no rule for it.
    pub fn verdict(&self, names: &[&str], unruled: Verdict) -> Verdict {
        let own = first_match(&self.own, names).unwrap_or(unruled);
        let restrictions = self.restrictions.iter().filter_map(|list| first_match(list, names));
        restrictions.fold(own, Verdict::max)
    }
}

/// More literal characters first, then fewer wildcards.
fn most_specific_first(mut rules: Vec<Rule>) -> Vec<Rule> {
    rules.sort_by_cached_key(|rule| {
        let wildcards = rule.glob.matches(['*', '?']).count();
        let literals = rule.glob.chars().count() - wildcards;
        (std::cmp::Reverse(literals), wildcards, rule.glob.clone())
    });
    rules
}

fn first_match(rules: &[Rule], names: &[&str]) -> Option<Verdict> {
    let matches = |rule: &&Rule| names.iter().any(|name| glob_matches(&rule.glob, name));
    rules.iter().find(matches).map(|rule| rule.verdict)
}

impl From<StoredRules> for Rules {
    fn from(stored: StoredRules) -> Rules {
        let mut lists = match stored {
            StoredRules::One(rules) => vec![rules],
            StoredRules::Several(lists) => lists,
        }
        .into_iter();
        let own = Rules::new(lists.next().unwrap_or_default());
        lists.fold(own, |rules, list| rules.restricted_by(Rules::new(list)))
    }
}

impl From<Rules> for StoredRules {
    fn from(rules: Rules) -> StoredRules {
        if rules.restrictions.is_empty() {
            return StoredRules::One(rules.own);
        }
        StoredRules::Several(std::iter::once(rules.own).chain(rules.restrictions).collect())
    }
}

/// `*` stands for any run of characters, `?` for one; the whole text must match.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    wildcard_match(glob, text, |_| true)
}

/// Only the last star is ever taken up again, so the work is at most the product of both lengths. `any_one` says which
/// characters of the text a `?` may stand for.
fn wildcard_match(glob: &str, text: &str, any_one: fn(char) -> bool) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut g, mut t) = (0, 0);
    // Where to resume when a later literal fails: the last star, and the text it has swallowed so far.
    let mut resume: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                resume = Some((g + 1, t));
                g += 1;
            }
            Some(&character) if character == text[t] || (character == '?' && any_one(text[t])) => {
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
            assert_eq!(rules.verdict(&[tool], Verdict::Allow), verdict, "{tool}");
        }
        assert_eq!(rules.verdict(&["any", "get_secret"], Verdict::Allow), Verdict::Hide, "any of its names");
        assert_eq!(Rules::default().verdict(&["push"], Verdict::Ask), Verdict::Ask);
    }

    #[test]
    fn a_restriction_never_lets_through_more() {
        let list = |glob: &str, verdict| Rules::new(vec![Rule { glob: glob.into(), verdict }]);
        let rules = list("get_*", Verdict::Ask).restricted_by(list("get_*", Verdict::Allow));
        assert_eq!(rules.verdict(&["get_x"], Verdict::Allow), Verdict::Ask);
        assert_eq!(rules.verdict(&["bash"], Verdict::Deny), Verdict::Deny);
        let rules = rules.restricted_by(list("*", Verdict::Deny));
        assert_eq!(rules.verdict(&["get_x"], Verdict::Allow), Verdict::Deny);
        let stored = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&stored).unwrap(), rules);
        assert_eq!(serde_json::to_string(&list("a", Verdict::Deny)).unwrap(), r#"[{"glob":"a","verdict":"deny"}]"#);
        assert_eq!(serde_json::from_str::<Rules>("[]").unwrap(), Rules::default());
    }
}
