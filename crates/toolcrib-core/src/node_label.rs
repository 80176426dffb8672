//! Labels of nodes: names that people give to the processes that share one store.

/// Maximum length of a label.
pub const MAX_NODE_LABEL_LEN: usize = 64;

/// Which texts are labels, for error messages.
pub const NODE_LABEL_RULE: &str = "a label has 1 to 64 of the characters A-Z, a-z, 0-9, `.`, `_` and `-`";

/// Label of a node without a name of its own.
const FALLBACK_LABEL: &str = "node";

/// Whether a text is a label: 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
///
/// ```
/// use toolcrib_core::node_label::is_node_label;
///
/// assert!(is_node_label("gpu-1.example"));
/// assert!(!is_node_label("gpu 1"));
/// assert!(!is_node_label(""));
/// ```
pub fn is_node_label(text: &str) -> bool {
    (1..=MAX_NODE_LABEL_LEN).contains(&text.len()) && text.chars().all(is_label_character)
}

/// Makes a label of the name of a machine: other characters become `-`, and a longer name is cut.
///
/// ```
/// use toolcrib_core::node_label::to_node_label;
///
/// assert_eq!(to_node_label("build machine.local"), "build-machine.local");
/// assert_eq!(to_node_label(""), "node");
/// ```
pub fn to_node_label(name: &str) -> String {
    let characters = name.trim().chars().take(MAX_NODE_LABEL_LEN);
    let label: String =
        characters.map(|character| if is_label_character(character) { character } else { '-' }).collect();
    if label.is_empty() { FALLBACK_LABEL.to_owned() } else { label }
}

fn is_label_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
}
