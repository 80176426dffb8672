//! Cost of compiling and matching a regular expression that a source wrote.
//!
//! Patterns without look-around and back references run on an automaton, in time proportional to text and states.
//! Others backtrack, with a limit on steps; both bounds are estimated from the pattern alone, without compiling it.

/// Backtracking stops here, and the match counts as unfinished.
pub(crate) const BACKTRACK_LIMIT: usize = 1_000;
/// States of an automaton that advance by one byte in one step.
const STATES_PER_STEP: u64 = 16;
/// Size of a compiled Unicode class such as `\p{L}`, measured; of anything else, rounded up.
const UNICODE_CLASS_BYTES: u64 = 40 * 1024;
const STATE_BYTES: u64 = 256;

/// Estimated cost of one pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternCost {
    /// Has look-around or back references.
    pub(super) has_backtracking: bool,
    /// Estimated memory of the compiled pattern.
    pub(super) compiled_bytes: u64,
    /// Number of states of the automaton, all of which may be active at once.
    states: u64,
}

impl PatternCost {
    /// Estimates the cost of a pattern without compiling it.
    pub(super) fn new(pattern: &str) -> PatternCost {
        let PatternSize { states, bytes } = estimate(pattern);
        PatternCost { has_backtracking: has_backtracking(pattern), compiled_bytes: bytes, states }
    }

    /// Upper bound of the steps of one match.
    pub(super) fn steps(self, text: &str) -> u64 {
        let len = text.len() as u64;
        if self.has_backtracking {
            // Each time it may run an automaton over the rest of the text, at 7 ns a byte.
            let steps_of_one = len.saturating_mul(7) / 100 + 1;
            return steps_of_one.saturating_mul(BACKTRACK_LIMIT as u64);
        }
        len.saturating_mul(self.states) / STATES_PER_STEP + 1
    }
}

/// Returns whether a pattern may need backtracking. Counting one in error (a named group, say) costs nothing but steps.
fn has_backtracking(pattern: &str) -> bool {
    const FORMS: [&str; 9] = ["(?=", "(?!", "(?<", "(?>", "(?(", "*+", "++", "?+", "}+"];
    // Also possessive quantifiers and atomic groups, which the automaton does not support.
    let is_back_reference = |byte: u8| matches!(byte, b'1'..=b'9' | b'k' | b'g' | b'G' | b'K');
    FORMS.iter().any(|form| pattern.contains(form))
        || pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && is_back_reference(pair[1]))
}

/// Estimated size of a compiled pattern or a part of it.
#[derive(Debug, Clone, Copy, Default)]
struct PatternSize {
    states: u64,
    bytes: u64,
}

impl PatternSize {
    const CHARACTER: PatternSize = PatternSize { states: 1, bytes: STATE_BYTES };
    const UNICODE_CLASS: PatternSize = PatternSize { states: 1, bytes: UNICODE_CLASS_BYTES };

    /// Size of two items in sequence.
    fn plus(self, other: PatternSize) -> PatternSize {
        PatternSize { states: self.states.saturating_add(other.states), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// Size of a repeated item.
    fn times(self, times: u64) -> PatternSize {
        PatternSize { states: self.states.saturating_mul(times), bytes: self.bytes.saturating_mul(times) }
    }
}

/// Counts each character once, and what is repeated as often as it may be. Linear in the pattern.
fn estimate(pattern: &str) -> PatternSize {
    // Sizes of the open groups and classes, outermost first, and of the last item, to which a repetition applies.
    let mut groups: Vec<PatternSize> = vec![PatternSize::CHARACTER];
    let mut last_item = PatternSize::default();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        let item = match character {
            '(' | '[' => {
                groups.push(PatternSize::CHARACTER);
                continue;
            }
            ')' | ']' if groups.len() > 1 => groups.pop().unwrap_or_default(),
            '{' => last_item.times(repetitions(characters.as_str())),
            '\\' if matches!(characters.next(), Some('p' | 'P')) => {
                skip_name(&mut characters);
                PatternSize::UNICODE_CLASS
            }
            _ => PatternSize::CHARACTER,
        };
        last_item = item;
        if let Some(group) = groups.last_mut() {
            *group = group.plus(item);
        }
    }
    groups.into_iter().fold(PatternSize::default(), PatternSize::plus)
}

/// Skips `{Name}` after `\p`, so that it is not taken for a repetition.
fn skip_name(characters: &mut std::str::Chars<'_>) {
    if characters.as_str().starts_with('{') {
        characters.find(|character| *character == '}');
    }
}

/// Returns the larger number of `{n,m}`, given the text after the brace; 1 where that is no repetition.
fn repetitions(text: &str) -> u64 {
    /// No repetition that a regular expression may have is longer.
    const MAX_REPETITION_LEN: usize = 24;
    let Some(end) = text.bytes().take(MAX_REPETITION_LEN).position(|byte| byte == b'}') else { return 1 };
    text[..end].split(',').filter_map(|number| number.trim().parse().ok()).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(pattern: &str) -> u64 {
        estimate(pattern).states
    }

    #[test]
    fn repetitions_multiply_only_within_one_another() {
        assert!((3..10).contains(&states("abc")));
        assert!((30..60).contains(&states("a{10}b{20}")));
        assert!((100..300).contains(&states("(a{10}){10}")));
        assert!((100..300).contains(&states("[abc]{30}")));
        assert!(states("((((a{1000}){1000}){1000}){1000}){1000}") > 1_000_000_000_000);
        assert_eq!(states(&format!("{}a{}", "(".repeat(30), "{99}){99}".repeat(30))), u64::MAX);
    }

    #[test]
    fn unicode_classes_are_large() {
        assert!(estimate(r"^\p{L}{110}N").bytes > 4_000_000);
        assert!(estimate(r"^[\p{L}\d]{64}$").bytes > 2_000_000);
        assert!(estimate(r"^[\w.-]{1,64}$").bytes < 200_000);
    }

    #[test]
    fn look_around_and_back_references_may_backtrack() {
        for pattern in ["^(?=a)", "(?!x)y", r"(a)\1", "a++b", "(?<n>a)"] {
            assert!(PatternCost::new(pattern).has_backtracking, "{pattern}");
        }
        assert!(!PatternCost::new("^[a-z]+(?:-[0-9]+)?$").has_backtracking);
    }
}
