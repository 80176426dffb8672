//! Reasons why an access token is not accepted. Their texts go to clients and quote nothing of the token.

use toolcrib::{Code, Error};

/// Reason why an access token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JwtRejection {
    NoIssuers,
    TooLong,
    MalformedHeader,
    MalformedPayload,
    CriticalExtension,
    NotAnAccessToken,
    AlgorithmNotAccepted,
    MissingIssuer,
    UnknownIssuer,
    WrongAudience,
    MissingExpiry,
    Expired,
    NotYetValid,
    IssuedInFuture,
    MissingSubject,
    MalformedTime,
    UnknownKey,
    WrongAlgorithm,
    AmbiguousKey,
    WrongSignature,
}

impl JwtRejection {
    /// The reason, as it continues "invalid access token: …".
    pub(super) fn reason(self) -> &'static str {
        match self {
            JwtRejection::NoIssuers => {
                "this server accepts no tokens of identity providers; add one to `identity.issuers` in its configuration"
            }
            JwtRejection::TooLong => "it is longer than 16 KiB",
            JwtRejection::MalformedHeader => "its header is malformed",
            JwtRejection::MalformedPayload => "its payload is malformed",
            JwtRejection::CriticalExtension => "its header requires an extension (`crit`) that is not supported",
            JwtRejection::NotAnAccessToken => "it is another kind of token",
            JwtRejection::AlgorithmNotAccepted => "its signature algorithm is not accepted",
            JwtRejection::MissingIssuer => "it has no issuer (`iss`)",
            JwtRejection::UnknownIssuer => "unknown issuer",
            JwtRejection::WrongAudience => "it is for another audience (`aud`)",
            JwtRejection::MissingExpiry => "it has no expiry (`exp`)",
            JwtRejection::Expired => "expired",
            JwtRejection::NotYetValid => "not yet valid (`nbf`)",
            JwtRejection::IssuedInFuture => "it was issued in the future (`iat`)",
            JwtRejection::MissingSubject => "it has no subject (`sub`)",
            JwtRejection::MalformedTime => "one of its times is malformed",
            JwtRejection::UnknownKey => "the issuer has no such key",
            JwtRejection::WrongAlgorithm => "its key is for another algorithm",
            JwtRejection::AmbiguousKey => "it names no key (`kid`), and the issuer has several",
            JwtRejection::WrongSignature => "its signature is wrong",
        }
    }
}

impl From<JwtRejection> for Error {
    fn from(rejection: JwtRejection) -> Error {
        Error::new(Code::Unauthorized, format!("invalid access token: {}", rejection.reason()))
    }
}
