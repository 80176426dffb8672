//! Who may do what over the network: roles, and the tokens that give them. Of a token only its hash is known here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::text::sanitize_truncated;
use crate::time::Timestamp;

/// Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees what there is.
    Viewer,
    /// Calls and refreshes tools too.
    Agent,
    /// Changes what there is.
    Admin,
}

/// What is asked of who comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Open to whoever reaches the socket.
    Public,
    /// To see what there is.
    Read,
    /// To call and refresh tools.
    Use,
    /// To change what there is.
    Manage,
}

/// A token as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Short and random: it names the token where its name may change.
    pub id: String,
    pub name: String,
    pub role: Role,
    /// SHA-256 of the token.
    pub hash: Fingerprint,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

impl Token {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// How many tokens there may be.
pub const MAX_ACCESS_TOKENS: usize = 1_000;
/// How long one may live: 100 years.
pub const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);
/// Ids are so many hexadecimal digits, and no name looks like one.
const TOKEN_ID_DIGITS: usize = 12;
const MAX_TOKEN_NAME_LEN: usize = 64;
/// Who the journal and the logs know by these names holds no token.
const RESERVED_TOKEN_NAMES: [&str; 7] = ["admin", "local", "cli", "config", "refresh", "rest", "console"];

/// A name that may stand in logs, tables and addresses as it is.
pub fn check_token_name(name: &str) -> Result<()> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "._-@".contains(character);
    let sound = name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(plain);
    if RESERVED_TOKEN_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(Error::new(Code::BadRequest, format!("`{name}` is the name of somebody else; take another")));
    }
    if name.len() == TOKEN_ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Error::new(Code::BadRequest, format!("`{name}` looks like the id of a token; take another name")));
    }
    if sound && name.len() <= MAX_TOKEN_NAME_LEN {
        return Ok(());
    }
    let message = format!(
        "`{}` is no name for a token: letters, digits and `.`, `_`, `-`, `@`, at most {MAX_TOKEN_NAME_LEN}, a letter or digit first",
        sanitize_truncated(name, 80)
    );
    Err(Error::new(Code::BadRequest, message))
}

impl Permission {
    /// The least role that may; none where anybody may.
    pub fn min_role(self) -> Option<Role> {
        match self {
            Permission::Public => None,
            Permission::Read => Some(Role::Viewer),
            Permission::Use => Some(Role::Agent),
            Permission::Manage => Some(Role::Admin),
        }
    }
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Agent, Role::Admin];

    pub fn has_permission(self, needs: Permission) -> bool {
        needs.min_role().is_none_or(|least| self >= least)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Agent => "agent",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Role> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            let message =
                format!("no role named `{}`; there are admin, agent and viewer", sanitize_truncated(text, 40));
            Error::new(Code::BadRequest, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_bounded() {
        for name in ["ci", "ada@laptop", "build-1.2_x", "7", "0123456789ab-"] {
            assert!(check_token_name(name).is_ok(), "{name}");
        }
        for name in
            ["admin", "Admin", "LOCAL", "0123456789ab", "", "-x", "a b", "a/b", "<b>", "naïve", "a\n", &"x".repeat(65)]
        {
            assert_eq!(check_token_name(name).unwrap_err().code, Code::BadRequest, "{name}");
        }
    }

    #[test]
    fn a_larger_role_includes_the_smaller_ones() {
        assert!(Role::Viewer < Role::Agent && Role::Agent < Role::Admin);
        for role in Role::ALL {
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
