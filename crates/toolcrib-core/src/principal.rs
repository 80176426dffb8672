//! [`Principal`]: the client of a request or a call. Made once, where the request enters, by the layer that checks
//! credentials; carried from there to everything that decides, logs or records.
//!
//! ```text
//! admin.token, access token   Token { id }          name `admin`, or that of the token
//! session of the console      Console { token }     name of the token that opened it
//! identity provider           Jwt { issuer, sub }
//! none of these               Local                 a local process, a command, a host program
//! ```

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use crate::access::Role;
use crate::error::{Code, Error, Result};

/// The client of a request or a call. Cheap to clone: it goes through every call.
#[derive(Debug, Clone)]
pub struct Principal(Arc<PrincipalFields>);

#[derive(Debug, Clone)]
struct PrincipalFields {
    identity: PrincipalIdentity,
    name: String,
    role: Role,
    claims: Claims,
    groups: Arc<[String]>,
}

/// Identity of a principal: its kind, the issuer or token, and the subject. Two principals are the same client only if
/// all of it is equal; two issuers may use the same `sub` for different people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrincipalIdentity {
    /// A local process without credentials, a command, or a host program that embeds the library.
    Local,
    /// A session of the console, by the id of the token that opened it.
    Console { token: Arc<str> },
    /// A token, by its id; [`PrincipalIdentity::ADMIN_TOKEN`] for the one in `admin.token`.
    Token { id: Arc<str> },
    /// An access token of an identity provider.
    Jwt { issuer: Arc<str>, sub: Arc<str> },
}

/// Claims about a principal: a JSON object of bounded size, shared by all clones.
#[derive(Debug, Clone, Default)]
pub struct Claims(Option<Arc<Map<String, Value>>>);

/// Maximum size of all claims of a principal as compact JSON. Identity providers put group lists into tokens, but a
/// token has to fit into an HTTP header.
const MAX_CLAIMS_BYTES: usize = 32 * 1024;
/// Key of Toolcrib's own facts about a principal, which no claim may replace.
const RESERVED_CLAIM: &str = "caller";

impl Principal {
    /// Creates a principal without claims and groups.
    pub fn new(identity: PrincipalIdentity, name: impl Into<String>, role: Role) -> Principal {
        let fields =
            PrincipalFields { identity, name: name.into(), role, claims: Claims::default(), groups: Arc::default() };
        Principal(Arc::new(fields))
    }

    /// Creates the principal of a host program or a local process, with the role `agent`.
    ///
    /// ```
    /// use toolcrib_core::principal::Principal;
    ///
    /// let agent = Principal::local("my-agent");
    /// assert_eq!(agent.name(), "my-agent");
    /// ```
    pub fn local(name: impl Into<String>) -> Principal {
        Principal::new(PrincipalIdentity::Local, name, Role::Agent)
    }

    /// Returns the same principal under another name, e.g. with the interface that it uses in front.
    #[must_use]
    pub fn with_name(&self, name: impl Into<String>) -> Principal {
        Principal(Arc::new(PrincipalFields { name: name.into(), ..(*self.0).clone() }))
    }

    /// Returns the principal with another role.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Principal {
        Principal(Arc::new(PrincipalFields { role, ..(*self.0).clone() }))
    }

    /// Returns the principal with these claims.
    #[must_use]
    pub fn with_claims(&self, claims: Claims) -> Principal {
        Principal(Arc::new(PrincipalFields { claims, ..(*self.0).clone() }))
    }

    /// Returns the principal with these groups of its own.
    #[must_use]
    pub fn with_groups(&self, groups: impl Into<Arc<[String]>>) -> Principal {
        Principal(Arc::new(PrincipalFields { groups: groups.into(), ..(*self.0).clone() }))
    }

    /// Kind, issuer or token, and subject.
    pub fn identity(&self) -> &PrincipalIdentity {
        &self.0.identity
    }

    /// Name in logs, in records of calls and in the journal. Not unique, and no proof of identity.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Role, which decides on permissions.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Claims of its token.
    pub fn claims(&self) -> &Claims {
        &self.0.claims
    }

    /// Groups that its token is restricted to; empty for a token without such a restriction.
    pub fn groups(&self) -> &[String] {
        &self.0.groups
    }
}

/// A host program that does not name itself.
impl Default for Principal {
    fn default() -> Principal {
        // Shared, because each call without a caller of its own has it.
        static EMBEDDER: LazyLock<Principal> = LazyLock::new(|| Principal::local("embedder"));
        EMBEDDER.clone()
    }
}

/// See [`Principal::local`].
impl From<&str> for Principal {
    fn from(name: &str) -> Principal {
        Principal::local(name)
    }
}

impl PrincipalIdentity {
    /// Id of the token in `admin.token`. Ids of stored tokens are hexadecimal digits, so none is equal to it.
    pub const ADMIN_TOKEN: &str = "admin";

    /// Name of the kind, as conditions on `caller.kind` read it.
    pub fn kind(&self) -> &'static str {
        match self {
            PrincipalIdentity::Local => "local",
            PrincipalIdentity::Console { .. } => "console",
            PrincipalIdentity::Token { .. } => "token",
            PrincipalIdentity::Jwt { .. } => "jwt",
        }
    }

    /// Text that identifies the owner of sessions and streams. A token and the console sessions that were opened with it
    /// are one owner: they share its limits, and end with it.
    pub fn owner_key(&self) -> Arc<str> {
        match self {
            PrincipalIdentity::Local => "local".into(),
            PrincipalIdentity::Console { token } | PrincipalIdentity::Token { id: token } => token.clone(),
            // With the length of the issuer, so that no other pair of issuer and subject gives the same text.
            PrincipalIdentity::Jwt { issuer, sub } => format!("jwt {} {issuer} {sub}", issuer.len()).into(),
        }
    }
}

impl Claims {
    /// Wraps the claims of a token. The key `caller` is reserved and dropped.
    ///
    /// # Errors
    /// `BAD_REQUEST` for claims above 32 KiB.
    pub fn new(mut claims: Map<String, Value>) -> Result<Claims> {
        claims.remove(RESERVED_CLAIM);
        let size = serde_json::to_string(&claims).map_or(usize::MAX, |text| text.len());
        if size > MAX_CLAIMS_BYTES {
            let message = format!("the claims have {size} bytes; at most {MAX_CLAIMS_BYTES} are accepted");
            return Err(Error::new(Code::BadRequest, message));
        }
        Ok(Claims(Some(Arc::new(claims)).filter(|claims| !claims.is_empty())))
    }

    /// Returns a claim by its name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.get(name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims(value: Value) -> Result<Claims> {
        Claims::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn identities_with_the_same_subject_are_different_owners() {
        let jwt = |issuer: &str, sub: &str| PrincipalIdentity::Jwt { issuer: issuer.into(), sub: sub.into() };
        let identities = [
            PrincipalIdentity::Local,
            PrincipalIdentity::Token { id: "0123456789ab".into() },
            PrincipalIdentity::Token { id: PrincipalIdentity::ADMIN_TOKEN.into() },
            jwt("https://a", "ada"),
            jwt("https://b", "ada"),
            jwt("https://b a", "da"),
            jwt("https://b", "a da"),
        ];
        for (index, identity) in identities.iter().enumerate() {
            for other in &identities[index + 1..] {
                assert_ne!(identity, other);
                assert_ne!(identity.owner_key(), other.owner_key());
            }
        }
    }

    #[test]
    fn a_token_and_its_console_session_are_one_owner_of_two_kinds() {
        let token = PrincipalIdentity::Token { id: "0123456789ab".into() };
        let session = PrincipalIdentity::Console { token: "0123456789ab".into() };
        assert_eq!(token.owner_key(), session.owner_key());
        assert_ne!(token, session);
        assert_eq!((token.kind(), session.kind()), ("token", "console"));
    }

    #[test]
    fn a_name_changes_nothing_else() {
        let principal = Principal::local("local").with_groups(["support".to_owned()]);
        let principal = principal.with_claims(claims(json!({"team": "a"})).unwrap()).with_role(Role::Viewer);
        let renamed = principal.with_name("rest");
        assert_eq!((renamed.name(), renamed.role()), ("rest", Role::Viewer));
        assert_eq!((renamed.identity(), renamed.groups()), (principal.identity(), principal.groups()));
        assert_eq!(renamed.claims().get("team"), Some(&json!("a")));
    }

    #[test]
    fn claims_are_bounded_and_cannot_pose_as_facts_about_the_caller() {
        assert!(claims(json!({"caller": {"role": "admin"}})).unwrap().get("caller").is_none());
        assert_eq!(claims(json!({"text": "x".repeat(MAX_CLAIMS_BYTES)})).unwrap_err().code, Code::BadRequest);
    }
}
