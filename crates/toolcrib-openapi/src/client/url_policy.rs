//! Decides which addresses requests of a source may reach, depending on the author of the URL: the configuration may
//! name any, a local document any that is not link-local, a remote document only public ones, unless `allow_private` is
//! set.
//!
//! ```text
//! author of the URL                       may be
//! configuration (document, base_url)      any address
//! document in a local file                any but link-local addresses and metadata services
//! document fetched from a server          public addresses, and the origin of the document itself
//! response (redirect to another origin)   public addresses
//! any, with `allow_private: true`         any address
//! ```

use toolcrib_connector::address_policy::{BlockedAddress, NetworkScope, check_url};
use toolcrib_core::source::OpenApiSource;
use url::{Origin, Url};

/// Address rules of one source.
#[derive(Debug)]
pub(super) struct UrlPolicy {
    /// Origins named in the configuration; these may be private.
    configured_origins: Vec<Origin>,
    /// Whether a remote document names the servers.
    has_remote_document: bool,
    /// `allow_private` of the source lifts all restrictions but that to http and https.
    allow_private: bool,
}

impl UrlPolicy {
    /// `openapi` must be resolved. `document` is the URL of a remote document.
    pub(super) fn new(openapi: &OpenApiSource, document: Option<&Url>, base_url: Option<&Url>) -> UrlPolicy {
        let configured_origins = [document, base_url].into_iter().flatten().map(Url::origin).collect();
        UrlPolicy { configured_origins, has_remote_document: document.is_some(), allow_private: openapi.allow_private }
    }

    /// Scope for a request to a declared server, or why it is blocked.
    pub(super) fn scope_for(&self, url: &Url) -> Result<NetworkScope, BlockedAddress> {
        let scope = if self.allow_private || self.configured_origins.contains(&url.origin()) {
            NetworkScope::Anywhere
        } else if self.has_remote_document {
            NetworkScope::PublicOnly
        } else {
            NetworkScope::NotLinkLocal
        };
        check_url(url, scope).map(|()| scope)
    }

    /// Scope for a redirect to another server, or why it is blocked. A response is trusted less than the document.
    pub(super) fn scope_for_redirect(&self, url: &Url) -> Result<NetworkScope, BlockedAddress> {
        let scope = if self.allow_private { NetworkScope::Anywhere } else { NetworkScope::PublicOnly };
        check_url(url, scope).map(|()| scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_document_may_name_public_addresses_only() {
        let check = |document: Option<&str>, base_url: Option<&str>, allow_private: bool, to: &str| {
            let [document, base_url] = [document, base_url].map(|text| text.map(|text| Url::parse(text).unwrap()));
            let openapi = OpenApiSource { allow_private, ..OpenApiSource::default() };
            let policy = UrlPolicy::new(&openapi, document.as_ref(), base_url.as_ref());
            policy.scope_for(&Url::parse(to).unwrap()).ok()
        };
        let remote = Some("http://docs.example.com/openapi.json");
        let anywhere = Some(NetworkScope::Anywhere);
        let public_only = Some(NetworkScope::PublicOnly);
        let not_link_local = Some(NetworkScope::NotLinkLocal);
        let metadata = "http://169.254.169.254/latest/meta-data";
        for (document, base_url, allow_private, to, expected) in [
            (None, None, false, "http://127.0.0.1:8080/x", not_link_local),
            (None, None, false, "http://api.example.com/x", not_link_local),
            (None, None, false, metadata, None),
            (None, None, false, "http://metadata.google.internal/x", None),
            (None, None, false, "http://[fe80::1]/x", None),
            (None, None, true, metadata, anywhere),
            (None, Some("http://169.254.1.1/"), false, "http://169.254.1.1/x", anywhere),
            (remote, None, false, "http://127.0.0.1:8080/x", None),
            (remote, None, false, "http://[::1]/x", None),
            (remote, None, false, "http://169.254.169.254/x", None),
            (remote, None, false, "http://api.example.com/x", public_only),
            (remote, None, false, "http://docs.example.com/x", anywhere),
            (remote, None, false, "https://docs.example.com/x", public_only),
            (remote, None, true, "http://127.0.0.1:8080/x", anywhere),
            (remote, Some("http://127.0.0.1:8080/api"), false, "http://127.0.0.1:8080/x", anywhere),
            (remote, Some("http://127.0.0.1:8080/api"), false, "http://127.0.0.1:9090/x", None),
            (Some("http://127.0.0.1:1/openapi.json"), None, false, "http://127.0.0.1:1/x", anywhere),
            (Some("http://127.0.0.1:1/openapi.json"), None, false, "http://127.0.0.1:2/x", None),
            (None, None, true, "file:///etc/passwd", None),
        ] {
            assert_eq!(check(document, base_url, allow_private, to), expected, "{document:?} {base_url:?} {to}");
        }
        let file = UrlPolicy::new(&OpenApiSource::default(), None, None);
        assert!(file.scope_for_redirect(&Url::parse("http://127.0.0.1/").unwrap()).is_err());
    }
}
