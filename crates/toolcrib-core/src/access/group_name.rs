//! Names of groups, and the list of groups that a token is restricted to.

use crate::error::{Code, Error, Result};
use crate::text::sanitize_truncated;

/// Maximum number of groups of one token. Each request of the token resolves all of them.
pub const MAX_TOKEN_GROUPS: usize = 100;
/// Maximum length of a group name in bytes; allowed names are ASCII.
const MAX_GROUP_NAME_LEN: usize = 64;

/// Checks the name of a group: it is part of URLs, such as `/mcp/{group}`, and of lists that are separated by commas.
///
/// Fails with `BAD_REQUEST` and a message that says what is allowed.
pub fn check_group_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    if (1..=MAX_GROUP_NAME_LEN).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let message = format!(
        "`{}` is not a valid group name: use lower-case letters, digits, `_` and `-`, at most {MAX_GROUP_NAME_LEN} characters",
        sanitize_truncated(name, 80)
    );
    Err(Error::new(Code::BadRequest, message))
}

/// Checks the names of the groups of a token and returns them in their order, each once. The inventory knows which groups
/// exist.
pub(crate) fn normalize_token_groups(groups: &[String]) -> Result<Vec<String>> {
    groups.iter().try_for_each(|name| check_group_name(name))?;
    let mut groups = groups.to_vec();
    groups.sort();
    groups.dedup();
    if groups.len() > MAX_TOKEN_GROUPS {
        let message = format!("a token has at most {MAX_TOKEN_GROUPS} groups, not {}", groups.len());
        return Err(Error::new(Code::BadRequest, message));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_names_are_lower_case_ascii_of_bounded_length() {
        for name in ["support", "a", "0", "-", "_x", "support-desk_2", &"x".repeat(64)] {
            assert!(check_group_name(name).is_ok(), "{name}");
        }
        for name in ["", "Support", "a b", "a/b", "a.b", "a,b", "é", "a\n", "*", &"x".repeat(65)] {
            assert_eq!(check_group_name(name).unwrap_err().code, Code::BadRequest, "{name}");
        }
    }

    #[test]
    fn groups_of_a_token_are_sorted_unique_and_bounded() {
        let normalize =
            |names: &[&str]| normalize_token_groups(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(normalize(&["sales", "dev", "sales"]).unwrap(), ["dev", "sales"]);
        assert_eq!(normalize(&["dev", "No"]).unwrap_err().code, Code::BadRequest);
        let numbered = |count: usize| (0..count).map(|number| format!("g{number}")).collect::<Vec<_>>();
        assert_eq!(normalize_token_groups(&numbered(MAX_TOKEN_GROUPS)).unwrap().len(), MAX_TOKEN_GROUPS);
        assert_eq!(normalize_token_groups(&numbered(MAX_TOKEN_GROUPS + 1)).unwrap_err().code, Code::BadRequest);
    }
}
