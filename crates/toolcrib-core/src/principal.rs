//! [`Principal`]: the client of a request or a call. Made once, where the request enters, by the layer that checks
//! credentials; carried from there to everything that decides, logs or records.
//!
//! ```text
//! admin.token, access token   Token { id }          name `admin`, or that of the token
//! session of the console      Console { token }     name of the token that opened it
//! identity provider           Jwt { issuer, sub }
//! none of these               Local                 a local process, a command, a host program
//! ```

use std::fmt;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::access::Role;
use crate::access_rules::{AccessRules, AccessScope};
use crate::error::{Code, Error, Result};

/// The client of a request or a call. Cheap to clone: it goes through every call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(Arc<PrincipalFields>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct PrincipalFields {
    name: String,
    subject: Arc<Subject>,
    narrowing: ViewNarrowing,
}

/// How the interface that a principal uses narrows what it sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewNarrowing {
    /// Denied and hidden tools are left out for administrators too: clients of MCP are agents, whatever token they have.
    pub as_agent: bool,
    /// Only tools of this group, as at the endpoint `/mcp/{group}`.
    pub group: Option<String>,
    /// Globs on names, of which one must match; empty for no such restriction.
    pub only: Vec<String>,
}

/// Everything about a principal but the name that it is shown under.
#[derive(Debug)]
struct Subject {
    identity: PrincipalIdentity,
    /// Name that it was made with.
    name: String,
    role: Role,
    claims: Claims,
    groups: Arc<[String]>,
    /// The last scope that was resolved for it.
    scope: ArcSwapOption<CachedScope>,
    /// The last scope that was resolved for it and narrowed by an interface.
    narrowed_scope: ArcSwapOption<CachedScope>,
}

/// A scope with the rules that it was resolved from, and how it was narrowed.
#[derive(Debug)]
struct CachedScope {
    rules: Arc<AccessRules>,
    narrowing: ViewNarrowing,
    scope: Arc<AccessScope>,
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
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Claims(Option<Arc<Map<String, Value>>>);

/// Maximum size of all claims of a principal as compact JSON. Identity providers put group lists into tokens, but a
/// token has to fit into an HTTP header.
const MAX_CLAIMS_BYTES: usize = 32 * 1024;
/// Key of Toolcrib's own facts about a principal, which no claim may replace.
const RESERVED_CLAIM: &str = "caller";

impl Principal {
    /// Creates a principal without claims and groups.
    pub fn new(identity: PrincipalIdentity, name: impl Into<String>, role: Role) -> Principal {
        let name = name.into();
        Principal::from_subject(name.clone(), Subject::new(identity, name, role, Claims::default(), Arc::default()))
    }

    fn from_subject(name: String, subject: Subject) -> Principal {
        let narrowing = ViewNarrowing::default();
        Principal(Arc::new(PrincipalFields { name, subject: Arc::new(subject), narrowing }))
    }

    /// Returns the principal with other properties. The name that it is shown under stays.
    fn with_subject(&self, change: impl FnOnce(Subject) -> Subject) -> Principal {
        let subject = Arc::new(change(self.0.subject.copy()));
        Principal(Arc::new(PrincipalFields { subject, ..(*self.0).clone() }))
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

    /// Returns the principal with another identity, such as that of a session that its token opened.
    #[must_use]
    pub fn with_identity(&self, identity: PrincipalIdentity) -> Principal {
        self.with_subject(|subject| Subject { identity, ..subject })
    }

    /// Returns the same principal under another name, e.g. with the interface that it uses in front.
    #[must_use]
    pub fn with_name(&self, name: impl Into<String>) -> Principal {
        Principal(Arc::new(PrincipalFields { name: name.into(), ..(*self.0).clone() }))
    }

    /// Returns the same principal as it reads through an interface that narrows what it sees.
    #[must_use]
    pub fn narrowed(&self, narrowing: ViewNarrowing) -> Principal {
        Principal(Arc::new(PrincipalFields { narrowing, ..(*self.0).clone() }))
    }

    /// How its interface narrows what it sees.
    pub fn narrowing(&self) -> &ViewNarrowing {
        &self.0.narrowing
    }

    /// Returns the principal with another role.
    #[must_use]
    pub fn with_role(&self, role: Role) -> Principal {
        self.with_subject(|subject| Subject { role, ..subject })
    }

    /// Returns the principal with these claims.
    #[must_use]
    pub fn with_claims(&self, claims: Claims) -> Principal {
        self.with_subject(|subject| Subject { claims, ..subject })
    }

    /// Returns the principal with these groups of its own.
    #[must_use]
    pub fn with_groups(&self, groups: impl Into<Arc<[String]>>) -> Principal {
        self.with_subject(|subject| Subject { groups: groups.into(), ..subject })
    }

    /// Returns the scope for a set of rules and the narrowing: the one that was resolved before, or a new one.
    pub(crate) fn cached_scope(
        &self,
        rules: &Arc<AccessRules>,
        resolve: impl FnOnce() -> Arc<AccessScope>,
    ) -> Arc<AccessScope> {
        let PrincipalFields { subject, narrowing, .. } = &*self.0;
        let is_narrowed = *narrowing != ViewNarrowing::default();
        let cache = if is_narrowed { &subject.narrowed_scope } else { &subject.scope };
        let is_same = |cached: &&Arc<CachedScope>| Arc::ptr_eq(&cached.rules, rules) && cached.narrowing == *narrowing;
        if let Some(cached) = cache.load().as_ref().filter(is_same) {
            return cached.scope.clone();
        }
        let scope = resolve();
        let cached = CachedScope { rules: rules.clone(), narrowing: narrowing.clone(), scope: scope.clone() };
        cache.store(Some(Arc::new(cached)));
        scope
    }

    /// Kind, issuer or token, and subject.
    pub fn identity(&self) -> &PrincipalIdentity {
        &self.0.subject.identity
    }

    /// Name in logs, in records of calls and in the journal. Not unique, and no proof of identity.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Name that the principal was made with: that of its token, whatever interface it uses.
    pub fn original_name(&self) -> &str {
        &self.0.subject.name
    }

    /// Role, which decides on permissions.
    pub fn role(&self) -> Role {
        self.0.subject.role
    }

    /// Claims of its token.
    pub fn claims(&self) -> &Claims {
        &self.0.subject.claims
    }

    /// Groups that its token is restricted to; empty for a token without such a restriction.
    pub fn groups(&self) -> &[String] {
        &self.0.subject.groups
    }
}

/// The scope that was resolved from the properties is none of them.
impl PartialEq for Subject {
    fn eq(&self, other: &Subject) -> bool {
        let properties = |subject: &Subject| (subject.identity.clone(), subject.name.clone(), subject.role);
        properties(self) == properties(other) && self.claims == other.claims && self.groups == other.groups
    }
}

impl Eq for Subject {}

impl Subject {
    fn new(identity: PrincipalIdentity, name: String, role: Role, claims: Claims, groups: Arc<[String]>) -> Subject {
        let (scope, narrowed_scope) = (ArcSwapOption::empty(), ArcSwapOption::empty());
        Subject { identity, name, role, claims, groups, scope, narrowed_scope }
    }

    /// Copies the properties, without the scope that was resolved from them.
    fn copy(&self) -> Subject {
        let Subject { identity, name, role, claims, groups, scope: _, narrowed_scope: _ } = self;
        Subject::new(identity.clone(), name.clone(), *role, claims.clone(), groups.clone())
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

    /// Names of all kinds.
    pub const KINDS: [&str; 4] = ["local", "token", "console", "jwt"];

    /// Name of the kind, as conditions on `caller.kind` read it.
    pub fn kind(&self) -> &'static str {
        match self {
            PrincipalIdentity::Local => "local",
            PrincipalIdentity::Console { .. } => "console",
            PrincipalIdentity::Token { .. } => "token",
            PrincipalIdentity::Jwt { .. } => "jwt",
        }
    }

    /// Issuer of an access token.
    pub fn issuer(&self) -> Option<&str> {
        match self {
            PrincipalIdentity::Jwt { issuer, .. } => Some(issuer),
            PrincipalIdentity::Local | PrincipalIdentity::Console { .. } | PrincipalIdentity::Token { .. } => None,
        }
    }

    /// Id of the token, also of the one that opened a session of the console.
    pub fn token_id(&self) -> Option<&str> {
        match self {
            PrincipalIdentity::Console { token } | PrincipalIdentity::Token { id: token } => Some(token),
            PrincipalIdentity::Local | PrincipalIdentity::Jwt { .. } => None,
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

    /// Returns all claims.
    pub fn as_map(&self) -> &Map<String, Value> {
        static NO_CLAIMS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        self.0.as_deref().unwrap_or(&NO_CLAIMS)
    }
}

/// Shows names only: values may be personal data, and what is formatted for debugging may be logged.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.as_map().keys()).finish()
    }
}

impl Serialize for Claims {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_map().serialize(serializer)
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
    fn claims_are_compared_by_content_and_debugged_without_values() {
        let one = claims(json!({"team": "support", "level": 2})).unwrap();
        assert_eq!(one, claims(json!({"level": 2, "team": "support"})).unwrap());
        assert_eq!(claims(json!({})).unwrap(), Claims::default());
        let principal = Principal::local("ada").with_claims(one);
        assert_ne!(principal, Principal::local("ada"));
        let text = format!("{principal:?}");
        assert!(text.contains("team") && !text.contains("support"), "{text}");
    }

    #[test]
    fn claims_are_bounded_and_cannot_pose_as_facts_about_the_caller() {
        assert!(claims(json!({"caller": {"role": "admin"}})).unwrap().get("caller").is_none());
        assert_eq!(claims(json!({"text": "x".repeat(MAX_CLAIMS_BYTES)})).unwrap_err().code, Code::BadRequest);
    }
}
