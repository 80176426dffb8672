//! Globs on paths: `*` and `?` within a name, `**` across directories, `[a-z]`, `{a,b}`. Translated to a regex, so
//! matching takes linear time.
//!
//! ```text
//! *.rs           main.rs, src/main.rs          no `/`: the name alone, at any depth
//! src/*.rs       src/main.rs                   the whole path; `*` does not cross a `/`
//! src/**/*.rs    src/main.rs, src/a/b/c.rs     `**/` matches any number of directories, also none
//! *.{rs,toml}    main.rs, Cargo.toml
//! ```

use regex::{Regex, RegexBuilder};
use toolcrib_core::Result;

use super::super::{invalid_input, sanitize_for_message};

/// Maximum length of a glob; also in the tools' input schemas.
const MAX_GLOB_LEN: usize = 500;

/// Matches paths relative to the start of a search. A glob without `/` matches the file name alone, at any depth.
#[derive(Debug)]
pub(crate) struct Glob {
    regex: Regex,
    /// The glob has no `/`.
    name_only: bool,
}

impl Glob {
    /// Parses a glob.
    pub(crate) fn new(glob: &str) -> Result<Glob> {
        let invalid =
            || invalid_input(format!("`{}` is not a glob; an example is `src/**/*.rs`", sanitize_for_message(glob)));
        if glob.is_empty() || glob.len() > MAX_GLOB_LEN {
            return Err(invalid());
        }
        // Relative paths of a walk have no leading `./`.
        let pattern = to_regex(glob.trim_start_matches("./")).ok_or_else(invalid)?;
        let regex = RegexBuilder::new(&pattern).size_limit(1 << 20).build().map_err(|_| invalid())?;
        Ok(Glob { regex, name_only: !glob.contains('/') })
    }

    /// Matches a relative path with `/` as separator.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.name_only { name } else { path })
    }
}

/// Translates a glob; `None` for unbalanced braces and incomplete classes or escapes.
fn to_regex(glob: &str) -> Option<String> {
    let mut pattern = String::from("(?s)^");
    let mut characters = glob.chars().peekable();
    let mut open_braces = 0;
    while let Some(character) = characters.next() {
        match character {
            '*' if characters.next_if_eq(&'*').is_some() => {
                // `**/` also matches no directory at all.
                pattern += if characters.next_if_eq(&'/').is_some() { "(?:.*/)?" } else { ".*" };
            }
            '*' => pattern += "[^/]*",
            '?' => pattern += "[^/]",
            '[' => {
                let mut class: String = characters.by_ref().take_while(|&character| character != ']').collect();
                if class.is_empty() {
                    return None;
                }
                let negated = class.starts_with(['!', '^']);
                // Drop characters with a meaning in regex classes but not in globs.
                class = class.trim_start_matches(['!', '^']).replace('\\', "").replace(['[', '&', '~'], "");
                pattern += &format!("[{}{class}]", if negated { "^/" } else { "" });
            }
            '{' => {
                open_braces += 1;
                pattern += "(?:";
            }
            ',' if open_braces > 0 => pattern.push('|'),
            '}' if open_braces > 0 => {
                open_braces -= 1;
                pattern.push(')');
            }
            '\\' => pattern += &regex::escape(&characters.next()?.to_string()),
            _ => pattern += &regex::escape(&character.to_string()),
        }
    }
    pattern.push('$');
    (open_braces == 0).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_paths() {
        for (glob, path, expected) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "src/deep/main.rs", true),
            ("*.rs", "main.rsx", false),
            ("src/*.rs", "src/main.rs", true),
            ("src/*.rs", "src/deep/main.rs", false),
            ("src/**/*.rs", "src/main.rs", true),
            ("src/**/*.rs", "src/a/b/main.rs", true),
            ("**/test/*", "test/x", true),
            ("src/**", "src/a/b", true),
            ("./src/*", "src/a", true),
            ("a?c", "abc", true),
            ("[ab].txt", "b.txt", true),
            ("[!ab].txt", "b.txt", false),
            ("*.{rs,toml}", "Cargo.toml", true),
            ("*.{rs,toml}", "Cargo.lock", false),
            ("a.c", "abc", false),
            ("\\*", "*", true),
            ("(x|y)+$", "x", false),
        ] {
            assert_eq!(Glob::new(glob).unwrap().matches(path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn invalid_globs_are_rejected() {
        for glob in ["", "{a", "[", "[]", "[z-a]", "a\\", &"*".repeat(501)] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }
}
