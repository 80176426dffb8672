//! Access tokens of identity providers (JWT, RFC 9068) as credentials.
//!
//! ```text
//! token ─▶ cache of verified tokens ─▶ Principal
//!   └─▶ parse ─▶ issuer by `iss` ─▶ algorithm, claims ─▶ keys of the issuer ─▶ signature ─▶ role ─▶ Principal
//! ```
//!
//! Parsing, claims, signatures and roles are pure; `issuer_keys` decides when keys are fetched, and `key_fetch` alone
//! does I/O. Nothing of a token reaches a log or a message: reasons are fixed texts ([`rejection`]).

mod claims;
mod issuer_keys;
mod key_fetch;
mod key_set;
mod principal;
mod rejection;
mod signature;
mod token;
mod verified_tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use serde_json::json;
use toolcrib::config::IssuerConfig;
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Error, Principal, Result};

pub(crate) use principal::JWT_NAME_PREFIX;

use claims::{ExpectedClaims, check_claims, read_issuer};
use issuer_keys::IssuerKeys;
use principal::create_principal;
use rejection::JwtRejection;
use token::{UnverifiedJwt, has_jwt_form};
use verified_tokens::{VerifiedToken, VerifiedTokens};

/// Delay after which a client may try again while keys are unavailable.
const KEYS_RETRY_DELAY_MS: u64 = 1000;

/// Verifies access tokens of the configured issuers.
#[derive(Debug, Default)]
pub(super) struct AccessTokenVerifier {
    /// Replaced on reload.
    issuers: ArcSwap<Vec<Arc<Issuer>>>,
    verified: VerifiedTokens,
}

/// An issuer with its keys.
#[derive(Debug)]
struct Issuer {
    config: IssuerConfig,
    /// The configured audience, or the default.
    audience: String,
    keys: Arc<IssuerKeys>,
    /// Set when the configuration of this issuer was removed or replaced.
    is_outdated: AtomicBool,
}

impl Issuer {
    fn is_current(&self) -> bool {
        !self.is_outdated.load(Ordering::Acquire)
    }
}

impl AccessTokenVerifier {
    /// Replaces the issuers. One whose configuration stays the same keeps its verified tokens, and one whose keys are at
    /// the same place keeps its keys.
    pub(super) fn set_issuers(&self, configs: &[IssuerConfig], default_audience: &str) {
        let old = self.issuers.load_full();
        let to_issuer = |config: &IssuerConfig| {
            let audience = config.audience.clone().unwrap_or_else(|| default_audience.to_owned());
            let same = old.iter().find(|issuer| issuer.config == *config && issuer.audience == audience);
            if let Some(same) = same {
                return same.clone();
            }
            let has_same_keys =
                |issuer: &&Arc<Issuer>| issuer.config.issuer == config.issuer && issuer.config.jwks == config.jwks;
            let keys = old.iter().find(has_same_keys).map_or_else(
                || {
                    let fetch = key_fetch::create_fetcher(&config.issuer, &config.jwks);
                    Arc::new(IssuerKeys::new(&config.issuer, fetch))
                },
                |issuer| issuer.keys.clone(),
            );
            Arc::new(Issuer { config: config.clone(), audience, keys, is_outdated: AtomicBool::new(false) })
        };
        let new: Vec<Arc<Issuer>> = configs.iter().map(to_issuer).collect();
        for issuer in old.iter().filter(|old| !new.iter().any(|new| Arc::ptr_eq(new, old))) {
            issuer.is_outdated.store(true, Ordering::Release);
        }
        self.issuers.store(Arc::new(new));
        self.verified.remove_outdated();
    }

    /// Returns the names of the issuers; empty if none is configured.
    pub(super) fn issuer_names(&self) -> Vec<String> {
        self.issuers.load().iter().map(|issuer| issuer.config.issuer.clone()).collect()
    }

    /// True if there are issuers.
    pub(super) fn has_issuers(&self) -> bool {
        !self.issuers.load().is_empty()
    }

    /// Whether a token is a JWT, whatever is in it. Others are opaque, and none of this module's business.
    pub(super) fn is_jwt(token: &str) -> bool {
        has_jwt_form(token)
    }

    /// Returns the principal of a token that was verified before and is still valid. Does not wait.
    pub(super) fn find_verified(&self, hash: &Fingerprint, now: Timestamp) -> Option<Principal> {
        self.verified.find(hash, now)
    }

    /// Returns the callers whose tokens were verified and are still valid, each once; only the newest of very many.
    pub(super) fn known_callers(&self, now: Timestamp) -> Vec<Principal> {
        self.verified.newest_callers(now)
    }

    /// Verifies a token, whose SHA-256 is `hash`. May fetch keys.
    ///
    /// # Errors
    /// `UNAUTHORIZED` with the reason; retryable if the keys are unavailable at the moment. `FORBIDDEN` for a valid token
    /// without a role.
    pub(super) async fn verify(&self, token: &str, hash: Fingerprint, now: Timestamp) -> Result<Principal> {
        if let Some(principal) = self.find_verified(&hash, now) {
            return Ok(principal);
        }
        if !self.has_issuers() {
            return Err(JwtRejection::NoIssuers.into());
        }
        let jwt = UnverifiedJwt::parse(token)?;
        let issuer = self.find_issuer(&jwt)?;
        if !issuer.config.algorithms.contains(&jwt.algorithm) {
            return Err(JwtRejection::AlgorithmNotAccepted.into());
        }
        // Before the keys: an expired token must not cause a request to the provider.
        let IssuerConfig { issuer: name, leeway, .. } = &issuer.config;
        let expected = ExpectedClaims { issuer: name, audience: &issuer.audience, leeway: *leeway };
        let expires_at = check_claims(&jwt.claims, expected, now)?;
        let key = verify_signature(&issuer, &jwt).await?;
        let principal = create_principal(&issuer.config, jwt.claims)?;
        let verified = VerifiedToken { principal: principal.clone(), issuer, key, expires_at };
        self.verified.insert(hash, verified, now);
        Ok(principal)
    }

    fn find_issuer(&self, jwt: &UnverifiedJwt<'_>) -> Result<Arc<Issuer>, JwtRejection> {
        let name = read_issuer(&jwt.claims)?;
        let issuers = self.issuers.load();
        let issuer = issuers.iter().find(|issuer| issuer.config.issuer == name);
        issuer.cloned().ok_or(JwtRejection::UnknownIssuer)
    }
}

/// Verifies the signature with the keys of the issuer; with new keys if the token was signed by one that is not known.
async fn verify_signature(issuer: &Issuer, jwt: &UnverifiedJwt<'_>) -> Result<Fingerprint> {
    let keys = issuer.keys.load().await.map_err(|_| keys_unavailable(&issuer.config.issuer))?;
    let rejection = match keys.verify(jwt) {
        Ok(key) => return Ok(key),
        Err(rejection) => rejection,
    };
    // A token without `kid` may have been signed by a key that replaced the only one.
    let may_be_new_key =
        rejection == JwtRejection::UnknownKey || (rejection == JwtRejection::WrongSignature && jwt.key_id.is_none());
    if !may_be_new_key {
        return Err(rejection.into());
    }
    match issuer.keys.load_unknown_key(&keys).await {
        Some(keys) => Ok(keys.verify(jwt)?),
        None => Err(rejection.into()),
    }
}

/// Error while the keys of an issuer cannot be fetched. The client keeps its token and tries again.
fn keys_unavailable(issuer: &str) -> Error {
    let message = format!("the keys of the issuer `{issuer}` cannot be fetched at the moment; try again");
    let details = json!({ "retry_after_ms": KEYS_RETRY_DELAY_MS });
    Error::new(Code::Unauthorized, message).with_retryable(true).with_details(details)
}
