//! Rules on tools, by globs on their names. Enforced when tools are listed and again when they are called.
//!
//! ```text
//! tools: { "*": ask, "get_*": allow, "get_secret": hide }
//!
//! get_issue     allow    `get_*` has more literal characters than `*`
//! get_secret    hide     the most specific rule
//! delete_repo   ask
//! ```
//!
//! The order in the file has no meaning: rules are sorted by specificity. Annotations of a server, such as
//! `readOnlyHint`, play no part in a verdict, because a server could lie about them.

mod widening;

use serde::{Deserialize, Serialize};

use crate::tool::ToolName;

pub use widening::{DefaultVerdict, widens};

/// Decision of a rule about a tool. Ordered from permissive to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Listed and callable.
    #[default]
    Allow,
    /// Listed; a call needs the consent of the user.
    Ask,
    /// Listed for people who manage tools, not for agents; every call fails with `FORBIDDEN`.
    Deny,
    /// Treated as if the tool did not exist.
    Hide,
}

/// Rules of a source on its tools. In each list the most specific matching glob decides.
///
/// The first list is the source's own and may allow a tool that is restricted by default. Further lists come from other
/// files about the same source and only restrict: the strictest verdict of all lists applies, and `allow` in them has
/// no effect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "StoredRules", into = "StoredRules")]
pub struct Rules {
    /// The source's own list, most specific first.
    own: Vec<Rule>,
    /// Lists of other files, each most specific first.
    restrictions: Vec<Vec<Rule>>,
}

/// Verdict on the tools whose names match a glob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Matched against the tool's own name and its name in the catalogue without the prefix `source__`.
    pub glob: String,
    pub verdict: Verdict,
}

/// Stored form. Rules without restrictions are stored as one flat list, the only form before restrictions existed.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredRules {
    One(Vec<Rule>),
    Several(Vec<Vec<Rule>>),
}

// Names in the configuration and in stored rules.
crate::name_variants!(Verdict { Allow => "allow", Ask => "ask", Deny => "deny", Hide => "hide" });

impl Rules {
    /// Creates the source's own list from rules in any order.
    pub fn new(rules: Vec<Rule>) -> Rules {
        Rules { own: most_specific_first(rules), restrictions: Vec::new() }
    }

    /// Adds the rules of another file for the same source as restrictions.
    /// Kept as separate lists: two lists in which the most specific glob decides cannot be merged into one that gives
    /// the stricter verdict of both.
    pub fn restricted_by(mut self, other: Rules) -> Rules {
        let lists = std::iter::once(other.own).chain(other.restrictions);
        self.restrictions.extend(lists.filter(|list| !list.is_empty()).map(most_specific_first));
        self
    }

    /// Whether no rule exists, so that every tool has its default verdict.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.restrictions.is_empty()
    }

    /// Returns the source's own list, then the restrictions.
    pub fn lists(&self) -> impl Iterator<Item = &[Rule]> {
        std::iter::once(self.own.as_slice()).chain(self.restrictions.iter().map(Vec::as_slice))
    }

    /// Returns the verdict on a tool with these names: its own, and its name in the catalogue without the prefix
    /// `source__`. `default` applies where the source has no rule for it.
    pub fn verdict(&self, names: &[&str], default: Verdict) -> Verdict {
        self.decide(names, default).0
    }

    /// Returns the verdict on a tool that the catalogue does not have, because it was removed or its source is disabled:
    /// by the names that it may have had there, `prefix` being that of its source. Whether its name had a hash depended
    /// on the other tools.
    pub fn unlisted_verdict(&self, prefix: &str, original_name: &str, default: Verdict) -> Verdict {
        let plain = ToolName::from_original(prefix, original_name);
        let hashed = ToolName::with_hash(prefix, original_name);
        let names = [original_name, plain.without_prefix(prefix), hashed.without_prefix(prefix)];
        self.verdict(&names, default)
    }

    /// Whether a list denies or hides every tool, whatever its name.
    pub fn exclude_everything(&self) -> bool {
        let excludes = |list: &[Rule]| {
            list.iter().any(|rule| rule.glob == "*") && list.iter().all(|rule| rule.verdict >= Verdict::Deny)
        };
        self.lists().any(excludes)
    }

    /// Returns the rule that led to the [`verdict`](Rules::verdict); `None` if that is the default.
    pub fn deciding_rule(&self, names: &[&str], default: Verdict) -> Option<&Rule> {
        self.decide(names, default).1
    }

    /// Returns the verdict and the rule that led to it. A restriction that is not stricter than the lists before it has
    /// no effect and is not returned.
    fn decide(&self, names: &[&str], default: Verdict) -> (Verdict, Option<&Rule>) {
        let mut deciding_rule = first_match(&self.own, names);
        let mut verdict = deciding_rule.map_or(default, |rule| rule.verdict);
        for rule in self.restrictions.iter().filter_map(|list| first_match(list, names)) {
            if rule.verdict > verdict {
                verdict = rule.verdict;
                deciding_rule = Some(rule);
            }
        }
        (verdict, deciding_rule)
    }
}

/// Sorts rules by specificity: more literal characters first, then fewer wildcards.
fn most_specific_first(mut rules: Vec<Rule>) -> Vec<Rule> {
    // The glob itself is the last key, so that equally specific rules always have the same order.
    rules.sort_by_cached_key(|rule| {
        let wildcards = rule.glob.matches(['*', '?']).count();
        let literals = rule.glob.chars().count() - wildcards;
        (std::cmp::Reverse(literals), wildcards, rule.glob.clone())
    });
    rules
}

/// Returns the first rule that matches any of the names. Lists are sorted by specificity, so it is their decision.
fn first_match<'r>(rules: &'r [Rule], names: &[&str]) -> Option<&'r Rule> {
    rules.iter().find(|rule| names.iter().any(|name| glob_matches(&rule.glob, name)))
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

/// Patterns on tool names that count as essential unless the configuration sets others (`expose.essential_patterns`).
/// The words are services and activities that many agents need.
pub const DEFAULT_ESSENTIAL_PATTERNS: [&str; 7] =
    ["search", "github", "slack", "confluence", "jira", "calendar", "email"];

/// Whether a glob matches the whole text. `*` matches any run of characters, `?` a single one; nothing else is special.
/// Case matters.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    wildcard_match(glob, text, |_| true)
}

/// Matches with backtracking to the last star only, so the cost is at most the product of both lengths. `matches_any`
/// says which characters of the text a `?` may match.
fn wildcard_match(glob: &str, text: &str, matches_any: fn(char) -> bool) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let mut g = 0;
    let mut t = 0;
    // Where to resume when a later literal fails: behind the last star, and the end of the text that it matches so far.
    let mut resume: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                resume = Some((g + 1, t));
                g += 1;
            }
            Some(&character) if character == text[t] || (character == '?' && matches_any(text[t])) => {
                g += 1;
                t += 1;
            }
            _ => match resume {
                Some((after_star, star_end)) => {
                    resume = Some((after_star, star_end + 1));
                    g = after_star;
                    t = star_end + 1;
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
    fn a_restriction_never_allows_more() {
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

    #[test]
    fn only_a_rule_with_an_effect_is_the_deciding_one() {
        let list = |glob: &str, verdict| Rules::new(vec![Rule { glob: glob.into(), verdict }]);
        let check = |own: &Rules, restriction: Rules, default, verdict, glob| {
            let rules = own.clone().restricted_by(restriction);
            assert_eq!(rules.verdict(&["get_x"], default), verdict);
            assert_eq!(rules.deciding_rule(&["get_x"], default).map(|rule| rule.glob.as_str()), glob);
        };
        let none = Rules::default();
        check(&none, list("*", Verdict::Allow), Verdict::Allow, Verdict::Allow, None);
        check(&none, list("*", Verdict::Allow), Verdict::Ask, Verdict::Ask, None);
        check(&none, list("*", Verdict::Ask), Verdict::Ask, Verdict::Ask, None);
        check(&none, list("*", Verdict::Ask), Verdict::Allow, Verdict::Ask, Some("*"));
        let own = list("get_*", Verdict::Ask);
        check(&own, list("*", Verdict::Allow), Verdict::Allow, Verdict::Ask, Some("get_*"));
        check(&own, list("*", Verdict::Ask), Verdict::Allow, Verdict::Ask, Some("get_*"));
        check(&own, list("*", Verdict::Deny), Verdict::Allow, Verdict::Deny, Some("*"));
        check(&own, list("put_*", Verdict::Deny), Verdict::Hide, Verdict::Ask, Some("get_*"));
    }
}
