//! Globs on paths: `*` and `?` within a name, `**` across directories, `[a-z]`, `{one,other}`.

use regex::{Regex, RegexBuilder};
use toolcrib_core::Result;

use super::super::{invalid_input, sanitize_for_message};

const MAX_GLOB_LEN: usize = 500;

/// Matches paths relative to where a search starts. A glob without `/` looks at the name alone, at any depth.
#[derive(Debug)]
pub(in crate::builtin) struct Glob {
    regex: Regex,
    name_only: bool,
}

impl Glob {
    pub(in crate::builtin) fn new(glob: &str) -> Result<Glob> {
        let wrong =
            || invalid_input(format!("`{}` is not a glob; an example is `src/**/*.rs`", sanitize_for_message(glob)));
        if glob.is_empty() || glob.len() > MAX_GLOB_LEN {
            return Err(wrong());
        }
        let pattern = to_regex(glob.trim_start_matches("./")).ok_or_else(wrong)?;
        let regex = RegexBuilder::new(&pattern).size_limit(1 << 20).build().map_err(|_| wrong())?;
        Ok(Glob { regex, name_only: !glob.contains('/') })
    }

    /// `path` is relative, with `/` between its parts.
    pub(in crate::builtin) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.regex.is_match(if self.name_only { name } else { path })
    }
}

fn to_regex(glob: &str) -> Option<String> {
    let mut pattern = String::from("(?s)^");
    let mut characters = glob.chars().peekable();
    let mut braces = 0;
    while let Some(character) = characters.next() {
        match character {
            '*' if characters.next_if_eq(&'*').is_some() => {
                // `**/` also stands for no directory at all.
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
                class = class.trim_start_matches(['!', '^']).replace('\\', "").replace(['[', '&', '~'], "");
                pattern += &format!("[{}{class}]", if negated { "^/" } else { "" });
            }
            '{' => {
                braces += 1;
                pattern += "(?:";
            }
            ',' if braces > 0 => pattern.push('|'),
            '}' if braces > 0 => {
                braces -= 1;
                pattern.push(')');
            }
            '\\' => pattern += &regex::escape(&characters.next()?.to_string()),
            _ => pattern += &regex::escape(&character.to_string()),
        }
    }
    pattern.push('$');
    (braces == 0).then_some(pattern)
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
    fn nonsense_is_refused() {
        for glob in ["", "{a", "[", "[]", "[z-a]", "a\\", &"*".repeat(501)] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }
}
