//! Signature verification for `jsonwebtoken`, by `ring`, which TLS uses already. Both backends that `jsonwebtoken` has
//! would add another implementation of the same algorithms.

use std::sync::LazyLock;

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature as ring_signature;
use ring::signature::{RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm};
use signature::Verifier;

/// Whether the signature of a token is that of the key. `signature` is in base64url.
pub(super) fn is_signature_valid(signature: &str, signed_part: &str, key: &DecodingKey, algorithm: Algorithm) -> bool {
    LazyLock::force(&INSTALLED_PROVIDER);
    jsonwebtoken::crypto::verify(signature, signed_part.as_bytes(), key, algorithm).unwrap_or(false)
}

/// Makes [`RING_PROVIDER`] the one of this process, on first use.
static INSTALLED_PROVIDER: LazyLock<()> = LazyLock::new(|| {
    // Fails if the program has installed another provider, which serves as well.
    let _ = RING_PROVIDER.install_default();
});

static RING_PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: refuse_to_sign,
    verifier_factory: create_verifier,
    // For thumbprints and keys from PEM files, neither of which is used.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Toolcrib issues no tokens.
fn refuse_to_sign(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(new_error(ErrorKind::UnsupportedAlgorithm))
}

fn create_verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    // A public key must not be used as the secret of an HMAC, and no other key type for an algorithm.
    if key.family() != algorithm.family() {
        return Err(new_error(ErrorKind::InvalidKeyFormat));
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

/// A key, and the algorithm that it is used with.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => find_algorithm(&RSA_ALGORITHMS, self.algorithm)
                .map(|parameters| RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)),
            DecodingKeyKind::SecretOrDer(key) => find_algorithm(&CURVE_ALGORITHMS, self.algorithm)
                .map(|algorithm| UnparsedPublicKey::new(algorithm, key).verify(message, signature)),
        };
        verified.and_then(Result::ok).ok_or_else(signature::Error::new)
    }
}

/// RSA algorithms. Keys below 2,048 bits are refused.
static RSA_ALGORITHMS: [(Algorithm, &RsaParameters); 6] = [
    (Algorithm::RS256, &ring_signature::RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::RS384, &ring_signature::RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::RS512, &ring_signature::RSA_PKCS1_2048_8192_SHA512),
    (Algorithm::PS256, &ring_signature::RSA_PSS_2048_8192_SHA256),
    (Algorithm::PS384, &ring_signature::RSA_PSS_2048_8192_SHA384),
    (Algorithm::PS512, &ring_signature::RSA_PSS_2048_8192_SHA512),
];

/// Algorithms on a curve. Those with a shared secret are in neither table.
static CURVE_ALGORITHMS: [(Algorithm, &dyn VerificationAlgorithm); 3] = [
    (Algorithm::ES256, &ring_signature::ECDSA_P256_SHA256_FIXED),
    (Algorithm::ES384, &ring_signature::ECDSA_P384_SHA384_FIXED),
    (Algorithm::EdDSA, &ring_signature::ED25519),
];

fn find_algorithm<T: Copy>(table: &[(Algorithm, T)], algorithm: Algorithm) -> Option<T> {
    table.iter().find(|(known, _)| *known == algorithm).map(|(_, found)| *found)
}
