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
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::json;
use toolcrib::config::{IssuerConfig, JwksLocation};
use toolcrib::core::Timestamp;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::{Code, Error, Principal, Result};

pub(crate) use principal::JWT_NAME_PREFIX;

use claims::{ExpectedClaims, check_claims, read_issuer};
use issuer_keys::{IssuerKeys, KeysUnavailable, RefetchReason};
use principal::create_principal;
use rejection::JwtRejection;
use token::{UnverifiedJwt, has_jwt_form};
use verified_tokens::{VerifiedToken, VerifiedTokens};

/// Delay after which a client may try again while the configuration of its issuer is being changed.
const CONFIG_RETRY_DELAY: Duration = Duration::from_secs(1);

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
    /// Set when the configuration of this issuer was removed or replaced, or is about to be.
    is_outdated: AtomicBool,
}

impl Issuer {
    fn is_current(&self) -> bool {
        !self.is_outdated.load(Ordering::Acquire)
    }

    /// Whether this issuer was created from the configuration.
    fn has_config(&self, config: &IssuerConfig, default_audience: &str) -> bool {
        self.config == *config && self.audience == config.audience.as_deref().unwrap_or(default_audience)
    }
}

impl AccessTokenVerifier {
    /// Replaces the issuers. One whose configuration stays the same keeps its verified tokens, and one whose keys are at
    /// the same place keeps its keys.
    pub(super) fn set_issuers(&self, configs: &[IssuerConfig], default_audience: &str) {
        let old = self.issuers.load_full();
        let to_issuer = |config: &IssuerConfig| {
            let same = old.iter().find(|issuer| issuer.is_current() && issuer.has_config(config, default_audience));
            if let Some(same) = same {
                return same.clone();
            }
            let audience = config.audience.clone().unwrap_or_else(|| default_audience.to_owned());
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

    /// Applies the first step of a change of the issuers: those that are not among the new ones are removed, and tokens of
    /// those that differ get an error after which the client tries again, until [`set_issuers`](Self::set_issuers).
    pub(super) fn suspend_changed_issuers(&self, configs: &[IssuerConfig], default_audience: &str) {
        let mut issuers = self.issuers.load_full().to_vec();
        for issuer in &issuers {
            if !configs.iter().any(|config| issuer.has_config(config, default_audience)) {
                issuer.is_outdated.store(true, Ordering::Release);
            }
        }
        issuers.retain(|issuer| configs.iter().any(|config| config.issuer == issuer.config.issuer));
        self.issuers.store(Arc::new(issuers));
        self.verified.remove_outdated();
    }

    /// Reads the keys again that are in files.
    pub(super) async fn reload_key_files(&self) {
        for issuer in self.issuers.load_full().iter() {
            if matches!(issuer.config.jwks, JwksLocation::File(_)) {
                issuer.keys.refetch().await;
            }
        }
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
        // After the last wait: the configuration may have been reloaded meanwhile.
        if !issuer.is_current() {
            return Err(retry_error("the configuration of the token's issuer is being changed", CONFIG_RETRY_DELAY));
        }
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

/// Verifies the signature with the keys of the issuer; with new keys if the token may be signed with one of those.
async fn verify_signature(issuer: &Issuer, jwt: &UnverifiedJwt<'_>) -> Result<Fingerprint> {
    let keys = issuer.keys.load().await.map_err(|unavailable| keys_unavailable(issuer, unavailable))?;
    let rejection = match keys.verify(jwt) {
        Ok(key) => return Ok(key),
        Err(rejection) => rejection,
    };
    let reason = match (rejection, &jwt.key_id) {
        (JwtRejection::UnknownKey, Some(_)) => RefetchReason::UnknownKeyId,
        (JwtRejection::UnknownKey | JwtRejection::WrongSignature, None) => RefetchReason::MissingKeyId,
        _ => return Err(rejection.into()),
    };
    match issuer.keys.load_newer(&keys, reason).await {
        Ok(Some(newer)) => Ok(newer.verify(jwt)?),
        Err(unavailable) if reason == RefetchReason::UnknownKeyId => Err(keys_unavailable(issuer, unavailable)),
        // Without `kid`, a wrong signature is more likely than a new key.
        Ok(None) | Err(_) => Err(rejection.into()),
    }
}

/// Error while the keys of an issuer cannot be fetched.
fn keys_unavailable(issuer: &Issuer, unavailable: KeysUnavailable) -> Error {
    let reason = format!("the keys of the issuer `{}` cannot be fetched at the moment", issuer.config.issuer);
    retry_error(&reason, unavailable.retry_after)
}

/// Error of a token that may be valid. The client keeps it and tries again.
fn retry_error(reason: &str, retry_after: Duration) -> Error {
    // Rounded up: a client that follows it is not too early.
    let retry_after_ms = u64::try_from(retry_after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let details = json!({ "retry_after_ms": retry_after_ms });
    Error::new(Code::Unauthorized, format!("{reason}; try again")).with_retryable(true).with_details(details)
}
