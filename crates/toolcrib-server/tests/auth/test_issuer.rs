//! An identity provider for tests: keys, tokens with any content, and an HTTP server for metadata and keys.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use serde_json::{Value, json};
use toolcrib::config::Config;
use toolcrib_testkit::http_server::{HttpReply, LoopbackServer};

/// Time at which the clock of [`AuthTestServer`](super::support::AuthTestServer) starts, in seconds.
pub(crate) const NOW: i64 = 1_794_700_800;
/// Audience of the tokens.
pub(crate) const AUDIENCE: &str = "https://tools.example/mcp";

/// A private key, with its id in the key set.
pub(crate) enum SigningKey {
    Ed25519(&'static str, Ed25519KeyPair),
    Es256(&'static str, EcdsaKeyPair),
    Rs256(&'static str, RsaKeyPair),
}

impl SigningKey {
    pub(crate) fn ed25519(id: &'static str) -> SigningKey {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        SigningKey::Ed25519(id, Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    pub(crate) fn es256(id: &'static str) -> SigningKey {
        let (algorithm, random) = (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        SigningKey::Es256(id, EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    /// `ring` cannot create RSA keys, so there is one in a file.
    pub(crate) fn rs256(id: &'static str) -> SigningKey {
        let text: String = include_str!("rsa_key.txt").split_whitespace().collect();
        SigningKey::Rs256(id, RsaKeyPair::from_pkcs8(&STANDARD.decode(text).unwrap()).unwrap())
    }

    fn id(&self) -> &'static str {
        match self {
            SigningKey::Ed25519(id, _) | SigningKey::Es256(id, _) | SigningKey::Rs256(id, _) => id,
        }
    }

    fn algorithm(&self) -> &'static str {
        match self {
            SigningKey::Ed25519(..) => "EdDSA",
            SigningKey::Es256(..) => "ES256",
            SigningKey::Rs256(..) => "RS256",
        }
    }

    /// The public key as an entry of a key set.
    pub(crate) fn to_jwk(&self) -> Value {
        match self {
            SigningKey::Ed25519(id, pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": encode(pair.public_key()) })
            }
            SigningKey::Es256(id, pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encode(x), "y": encode(y) })
            }
            SigningKey::Rs256(id, pair) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "alg": "RS256", "kid": id, "n": encode(n), "e": encode(e) })
            }
        }
    }

    /// The usual header for this key.
    pub(crate) fn header(&self) -> Value {
        json!({ "alg": self.algorithm(), "kid": self.id(), "typ": "at+jwt" })
    }

    /// Signs a token with any header and claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs texts that need not be JSON.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = match self {
            SigningKey::Ed25519(_, pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            SigningKey::Es256(_, pair) => pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            SigningKey::Rs256(_, pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", encode(signature))
    }

    /// A valid token of the issuer with these claims besides the registered ones.
    pub(crate) fn token(&self, issuer: &str, claims: Value) -> String {
        self.sign(&self.header(), &valid_claims(issuer, claims))
    }
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Claims of a valid token, valid for five minutes, changed and extended by others. `null` removes a claim.
pub(crate) fn valid_claims(issuer: &str, claims: Value) -> Value {
    let mut all = json!({
        "iss": issuer, "aud": AUDIENCE, "sub": "user-1", "iat": NOW, "nbf": NOW, "exp": NOW + 300, "roles": ["agents"],
    });
    let all_claims = all.as_object_mut().unwrap();
    for (name, value) in claims.as_object().unwrap() {
        all_claims.insert(name.clone(), value.clone());
    }
    all_claims.retain(|_, value| !value.is_null());
    all
}

/// A provider that serves metadata and keys.
pub(crate) struct TestIssuer {
    pub(crate) server: LoopbackServer,
    keys: Arc<Mutex<Option<Value>>>,
}

impl TestIssuer {
    /// Starts a provider with these keys.
    pub(crate) fn start(keys: &[&SigningKey]) -> TestIssuer {
        let issuer_keys = Arc::new(Mutex::new(Some(key_set(keys))));
        let served = issuer_keys.clone();
        let url = Arc::new(Mutex::new(String::new()));
        let own_url = url.clone();
        let server = LoopbackServer::start(move |request| {
            let url = own_url.lock();
            match (request.target.as_str(), &*served.lock()) {
                (_, None) => HttpReply::empty(503),
                ("/.well-known/openid-configuration", _) => {
                    HttpReply::json(200, json!({ "issuer": *url, "jwks_uri": format!("{url}/keys") }))
                }
                ("/keys", Some(keys)) => HttpReply::json(200, keys),
                _ => HttpReply::empty(404),
            }
        });
        server.url.clone_into(&mut url.lock());
        TestIssuer { server, keys: issuer_keys }
    }

    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    pub(crate) fn set_keys(&self, keys: &[&SigningKey]) {
        *self.keys.lock() = Some(key_set(keys));
    }

    /// Answers every request with an error from now on.
    pub(crate) fn fail(&self) {
        *self.keys.lock() = None;
    }

    /// How often the keys were fetched.
    pub(crate) fn key_fetches(&self) -> usize {
        self.server.request_lines().iter().filter(|line| *line == "GET /keys").count()
    }

    /// A configuration with this issuer.
    pub(crate) fn config(&self) -> Config {
        issuer_config(self.url(), "")
    }
}

pub(crate) fn key_set(keys: &[&SigningKey]) -> Value {
    json!({ "keys": keys.iter().map(|key| key.to_jwk()).collect::<Vec<_>>() })
}

/// A configuration with one issuer, and further keys of it.
pub(crate) fn issuer_config(issuer: &str, keys: &str) -> Config {
    let text = format!(
        "sources: {{ git: {{ command: x }} }}\nidentity:\n  issuers:\n    - {{ issuer: \"{issuer}\", audience: \"{AUDIENCE}\", \
         roles: {{ claim: roles, admin: admins, agent: agents, viewer: [viewers, readers] }}{keys} }}\n"
    );
    Config::read(&text, "toolcrib.yaml", std::path::Path::new("/")).unwrap()
}
