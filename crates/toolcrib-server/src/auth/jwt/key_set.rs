//! Public keys of an issuer, from a JSON Web Key Set (RFC 7517). No I/O.
//!
//! A key that cannot be used (another type or purpose, damaged) is skipped and does not affect the others.

use std::collections::HashSet;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use toolcrib::config::JwtAlgorithm;
use toolcrib::core::fingerprint::Fingerprint;

use super::rejection::JwtRejection;
use super::signature::is_signature_valid;
use super::token::UnverifiedJwt;

/// Maximum number of keys in a set. Providers have one to ten.
const MAX_KEYS: usize = 100;

/// Public keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<VerificationKey>,
    /// Fingerprints of all keys.
    fingerprints: HashSet<Fingerprint>,
}

/// A public key that may verify signatures.
#[derive(Debug)]
struct VerificationKey {
    id: Option<String>,
    key_type: PublicKeyType,
    /// The only algorithm that it may be used with, if the set names one.
    algorithm: Option<KeyAlgorithm>,
    key: DecodingKey,
    /// Hash of the key itself, which stays when the provider gives it another id.
    fingerprint: Fingerprint,
}

/// Type of a key, which determines the algorithms it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PublicKeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeySet {
    /// Parses a key set. The error says what is wrong with the document as a whole.
    pub(super) fn parse(document: &[u8]) -> Result<KeySet, &'static str> {
        let document: Value = serde_json::from_slice(document).map_err(|_| "the key set is not JSON")?;
        let keys = document.get("keys").and_then(Value::as_array).ok_or("the key set has no list `keys`")?;
        if keys.len() > MAX_KEYS {
            return Err("the key set has more than 100 keys");
        }
        let keys: Vec<VerificationKey> = keys.iter().filter_map(VerificationKey::parse).collect();
        let fingerprints = keys.iter().map(|key| key.fingerprint).collect();
        Ok(KeySet { keys, fingerprints })
    }

    /// Whether the set has a key.
    pub(super) fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.fingerprints.contains(fingerprint)
    }

    /// Verifies the signature of a token. Returns the fingerprint of the key that made it.
    pub(super) fn verify(&self, token: &UnverifiedJwt<'_>) -> Result<Fingerprint, JwtRejection> {
        let has_id = |key: &&VerificationKey| token.key_id.is_none() || key.id == token.key_id;
        let named: Vec<&VerificationKey> = self.keys.iter().filter(has_id).collect();
        let candidates: Vec<&VerificationKey> = named.iter().copied().filter(|key| key.fits(token.algorithm)).collect();
        // Trying all keys would let a token choose one by its signature.
        if token.key_id.is_none() && candidates.len() > 1 {
            return Err(JwtRejection::AmbiguousKey);
        }
        if candidates.is_empty() {
            let is_named = token.key_id.is_some() && !named.is_empty();
            return Err(if is_named { JwtRejection::WrongAlgorithm } else { JwtRejection::UnknownKey });
        }
        let algorithm = to_library_algorithm(token.algorithm);
        let is_signer =
            |key: &&&VerificationKey| is_signature_valid(token.signature, token.signed_part, &key.key, algorithm);
        let signer = candidates.iter().find(is_signer).ok_or(JwtRejection::WrongSignature)?;
        Ok(signer.fingerprint)
    }
}

impl VerificationKey {
    /// Reads a key; `None` for one that is not for signatures or cannot be used.
    fn parse(value: &Value) -> Option<VerificationKey> {
        let jwk = Jwk::deserialize(value).ok()?;
        let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let operations = jwk.common.key_operations.as_deref();
        let may_verify = operations.is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        if !is_for_signatures || !may_verify {
            return None;
        }
        let (key_type, material) = read_material(&jwk.algorithm)?;
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        let fingerprint = Fingerprint::digest(format!("{key_type:?} {material}"));
        // The name of EdDSA with this curve in RFC 9864, which `jsonwebtoken` does not know.
        let is_ed25519 = value.get("alg").and_then(Value::as_str) == Some("Ed25519");
        let algorithm = if is_ed25519 { Some(KeyAlgorithm::EdDSA) } else { jwk.common.key_algorithm };
        Some(VerificationKey { id: jwk.common.key_id, key_type, algorithm, key, fingerprint })
    }

    /// Whether the key can have made a signature of this algorithm.
    fn fits(&self, algorithm: JwtAlgorithm) -> bool {
        let key_type = match algorithm {
            JwtAlgorithm::Rs256
            | JwtAlgorithm::Rs384
            | JwtAlgorithm::Rs512
            | JwtAlgorithm::Ps256
            | JwtAlgorithm::Ps384
            | JwtAlgorithm::Ps512 => PublicKeyType::Rsa,
            JwtAlgorithm::Es256 => PublicKeyType::P256,
            JwtAlgorithm::Es384 => PublicKeyType::P384,
            JwtAlgorithm::EdDsa => PublicKeyType::Ed25519,
        };
        self.key_type == key_type && self.algorithm.is_none_or(|own| own == to_library_algorithm(algorithm).into())
    }
}

/// Returns the type of a key and what identifies it; `None` for a shared secret or a type that is not supported.
fn read_material(parameters: &AlgorithmParameters) -> Option<(PublicKeyType, String)> {
    if let AlgorithmParameters::RSA(rsa) = parameters {
        return Some((PublicKeyType::Rsa, format!("{} {}", rsa.n, rsa.e)));
    }
    if let AlgorithmParameters::EllipticCurve(point) = parameters {
        let curves = [(EllipticCurve::P256, PublicKeyType::P256), (EllipticCurve::P384, PublicKeyType::P384)];
        let (_, key_type) = curves.into_iter().find(|(curve, _)| *curve == point.curve)?;
        return Some((key_type, format!("{} {}", point.x, point.y)));
    }
    let AlgorithmParameters::OctetKeyPair(pair) = parameters else { return None };
    (pair.curve == EllipticCurve::Ed25519).then(|| (PublicKeyType::Ed25519, pair.x.clone()))
}

fn to_library_algorithm(algorithm: JwtAlgorithm) -> Algorithm {
    match algorithm {
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}
