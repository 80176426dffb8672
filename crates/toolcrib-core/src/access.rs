//! Authorization model for network clients: roles, the permissions they grant, and access tokens.
//!
//! A token is stored as its SHA-256 hash; the token text itself exists only in the response that creates it.
//! The journal holds the hash and the metadata, see [`Event::TokenCreated`](crate::inventory::Event). Authenticating
//! requests is the job of the server crate.
//!
//! ```text
//! route ─▶ Permission ─▶ min_role() ─▶ compared with the Role of the token
//! ```

mod group_name;
mod token_claims;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Result};
use crate::fingerprint::Fingerprint;
use crate::principal::{Claims, Principal};
use crate::text::sanitize_truncated;
use crate::time::Timestamp;

pub use group_name::{MAX_TOKEN_GROUPS, check_group_name};
pub use token_claims::check_token_claims;

pub(crate) use group_name::normalize_token_groups;

/// Role of a client. Ordered: each role has all permissions of the roles before it. `Ord` is derived from the order of
/// the variants, and [`Role::has_permission`] relies on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads sources, tools and history.
    Viewer,
    /// Also calls tools and refreshes sources.
    Agent,
    /// Also changes sources, tools and tokens.
    Admin,
}

/// Permission that a route requires of its client.
/// A route names what it does, not who may do it; [`Permission::min_role`] is the only place that maps one to the
/// other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// No credentials needed: any client that can open a connection.
    Public,
    /// Read sources, tools, history and statistics.
    Read,
    /// Call tools and refresh sources.
    Use,
    /// Change sources, tools and tokens.
    Manage,
}

/// Stored metadata of an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessToken {
    /// Short random identifier. Stable, while the name may change.
    pub id: String,
    /// Client of all requests with the token. Made when the token is created or changed, and shared by its requests.
    pub principal: Principal,
    /// SHA-256 of the token text, which is stored nowhere.
    pub hash: Fingerprint,
    /// Time of the journal record that created the token.
    pub created_at: Timestamp,
    /// `None` for a token that never expires.
    pub expires_at: Option<Timestamp>,
}

impl AccessToken {
    /// Name for display, unique among valid tokens. May change.
    pub fn name(&self) -> &str {
        self.principal.name()
    }

    /// May be changed at any time; requests that are authenticated afterwards have the new role.
    pub fn role(&self) -> Role {
        self.principal.role()
    }

    /// Groups that the token is restricted to; empty for a token without such a restriction.
    pub fn groups(&self) -> &[String] {
        self.principal.groups()
    }

    /// Claims that conditions of rules read.
    pub fn claims(&self) -> &Claims {
        self.principal.claims()
    }

    /// Whether the token is no longer valid at `now`. A token expires at `expires_at` itself, not after it.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Maximum number of tokens; creating another one fails with `CONFLICT`.
/// Expired tokens count until they are revoked. Tokens are part of the inventory in memory, and a lookup by name reads
/// them all, so their number is bounded.
pub const MAX_ACCESS_TOKENS: usize = 1_000;
/// Maximum time from creation to expiry: 100 years, which keeps all times far from overflow.
pub const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);
/// Length of a token id in hexadecimal digits. Names of this shape are rejected, so that `token revoke` can take
/// either.
const TOKEN_ID_DIGITS: usize = 12;
/// Maximum length of a token name in bytes; allowed names are ASCII.
const MAX_TOKEN_NAME_LEN: usize = 64;
/// Names of built-in actors in the journal and the logs. A token of the same name could not be told apart from them.
const RESERVED_TOKEN_NAMES: [&str; 9] =
    ["admin", "local", "cli", "config", "refresh", "rest", "console", "mcp", "system"];

/// Checks that a token name is safe to print in logs, tables and URLs without escaping.
///
/// Fails with `BAD_REQUEST` and a message that says what is allowed. Reserved names are compared without regard to
/// case: `Admin` in a log would be read as `admin`.
pub fn check_token_name(name: &str) -> Result<()> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._-@".contains(character);
    let is_valid = name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_allowed);
    if RESERVED_TOKEN_NAMES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(Error::new(Code::BadRequest, format!("`{name}` is a reserved name; choose another")));
    }
    // Tokens are found by id first and then by name. A name that looks like an id could shadow the id of another token.
    if name.len() == TOKEN_ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = format!("`{name}` looks like the id of a token; choose another name");
        return Err(Error::new(Code::BadRequest, message));
    }
    if is_valid && name.len() <= MAX_TOKEN_NAME_LEN {
        return Ok(());
    }
    let message = format!(
        "`{}` is not a valid token name: use letters, digits and `.`, `_`, `-`, `@`, at most {MAX_TOKEN_NAME_LEN} characters, a letter or digit first",
        sanitize_truncated(name, 80)
    );
    Err(Error::new(Code::BadRequest, message))
}

impl Permission {
    /// Returns the lowest role with this permission, or `None` for [`Permission::Public`].
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
    /// Whether clients with this role may use a route that requires the permission.
    pub fn has_permission(self, permission: Permission) -> bool {
        permission.min_role().is_none_or(|min_role| self >= min_role)
    }
}

// Names in the configuration, in REST and in stored events, lowest role first.
crate::name_variants!(Role { Viewer => "viewer", Agent => "agent", Admin => "admin" });

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Accepts the lower-case names alone, as they are written by [`Role::as_str`].
impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Role> {
        Role::parse(text).ok_or_else(|| {
            let message = format!("no role named `{}`; use `viewer`, `agent` or `admin`", sanitize_truncated(text, 40));
            Error::new(Code::BadRequest, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_names_are_restricted_ascii_of_bounded_length() {
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
    fn roles_are_ordered_and_parse_from_their_names() {
        assert!(Role::Viewer < Role::Agent && Role::Agent < Role::Admin);
        for role in Role::ALL {
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
