//! Cost of matching a regular expression that a source wrote.

/// Backtracking stops here, so that every match ends.
pub(in crate::schema) const BACKTRACK_LIMIT: usize = 100_000;
/// Steps of a match that reaches the limit.
const BACKTRACKING_STEPS: u64 = 10_000;
/// States of an automaton that advance by one byte in one step.
const STATES_PER_STEP: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Has look-around or back references.
    Backtracking,
    /// Linear in the text for each of its states.
    Automaton { states: u64 },
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Pattern {
        if has_backtracking(pattern) {
            Pattern::Backtracking
        } else {
            Pattern::Automaton { states: count_states(pattern) }
        }
    }

    /// Upper bound of the steps of one match.
    pub(super) fn steps(self, text: &str) -> u64 {
        match self {
            Pattern::Backtracking => BACKTRACKING_STEPS,
            Pattern::Automaton { states } => 1 + (text.len() as u64).saturating_mul(states) / STATES_PER_STEP,
        }
    }
}

/// Returns whether a pattern may need backtracking. Counting one in error (a named group, say) costs nothing but steps.
fn has_backtracking(pattern: &str) -> bool {
    const FORMS: [&str; 9] = ["(?=", "(?!", "(?<", "(?>", "(?(", "*+", "++", "?+", "}+"];
    let is_back_reference = |byte: u8| matches!(byte, b'1'..=b'9' | b'k' | b'g' | b'G' | b'K');
    FORMS.iter().any(|form| pattern.contains(form))
        || pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && is_back_reference(pair[1]))
}

/// Counts about one state for each character, and what is repeated as often as it may be. Linear in the pattern.
fn count_states(pattern: &str) -> u64 {
    // States of the open groups, outermost first, and of the last item, to which a repetition applies.
    let mut groups: Vec<u64> = vec![1];
    let mut last_item = 0;
    let add = |groups: &mut [u64], states: u64| {
        if let Some(group) = groups.last_mut() {
            *group = group.saturating_add(states);
        }
    };
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '(' => groups.push(1),
            ')' if groups.len() > 1 => {
                last_item = groups.pop().unwrap_or_default();
                add(&mut groups, last_item);
            }
            '{' => {
                let times = repetitions(characters.as_str());
                add(&mut groups, last_item.saturating_mul(times));
                last_item = last_item.saturating_mul(times);
            }
            _ => {
                if character == '\\' {
                    characters.next();
                }
                last_item = 1;
                add(&mut groups, last_item);
            }
        }
    }
    groups.into_iter().fold(0, u64::saturating_add)
}

/// Returns the larger number of `{n,m}`, given the text after the brace; 1 where that is no repetition.
fn repetitions(text: &str) -> u64 {
    /// No repetition that a regular expression may have is longer.
    const MAX_LEN: usize = 24;
    let Some(end) = text.bytes().take(MAX_LEN).position(|byte| byte == b'}') else { return 1 };
    text[..end].split(',').filter_map(|number| number.trim().parse().ok()).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(pattern: &str) -> u64 {
        match Pattern::new(pattern) {
            Pattern::Automaton { states } => states,
            Pattern::Backtracking => panic!("`{pattern}` does not backtrack"),
        }
    }

    #[test]
    fn repetitions_multiply_only_within_one_another() {
        assert!((3..10).contains(&states("abc")));
        assert!((30..60).contains(&states("a{10}b{20}")));
        assert!((100..200).contains(&states("(a{10}){10}")));
        assert!(states("((((a{1000}){1000}){1000}){1000}){1000}") > 1_000_000_000_000);
        assert_eq!(states(&format!("{}a{}", "(".repeat(30), "{99}){99}".repeat(30))), u64::MAX);
    }

    #[test]
    fn look_around_and_back_references_may_backtrack() {
        for pattern in ["^(?=a)", "(?!x)y", r"(a)\1", "a++b", "(?<n>a)"] {
            assert_eq!(Pattern::new(pattern), Pattern::Backtracking, "{pattern}");
        }
    }
}
