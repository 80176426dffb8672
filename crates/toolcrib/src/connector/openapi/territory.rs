//! Where requests of a source may go. Who wrote an address matters: the configuration may name any, a document from
//! elsewhere only public ones, and a document in a file any that is not link-local, unless `allow_private` is set.

use toolcrib_core::source::OpenApi;
use url::{Origin, Url};

use super::clients::Reach;
use crate::network::{Refused, check_not_link_local, check_url};

#[derive(Debug)]
pub(super) struct Territory {
    /// Origins that the user wrote down.
    own: Vec<Origin>,
    /// Whether a document from elsewhere names the servers.
    foreign: bool,
    allow_private: bool,
}

impl Territory {
    /// Of a source whose texts are filled. `document` is its address, where it is no file.
    pub(super) fn new(openapi: &OpenApi, document: Option<&Url>, base: Option<&Url>) -> Territory {
        let own = [document, base].into_iter().flatten().map(Url::origin).collect();
        Territory { own, foreign: document.is_some(), allow_private: openapi.allow_private }
    }

    /// To a declared server.
    pub(super) fn reach(&self, url: &Url) -> Result<Reach, Refused> {
        if self.allow_private || self.own.contains(&url.origin()) {
            check_url(url, true)?;
            return Ok(Reach::Anywhere);
        }
        if self.foreign {
            return self.reach_beyond(url);
        }
        check_not_link_local(url)?;
        Ok(Reach::NotLinkLocal)
    }

    /// To where an answer points outside the declared server.
    pub(super) fn reach_beyond(&self, url: &Url) -> Result<Reach, Refused> {
        check_url(url, self.allow_private)?;
        Ok(if self.allow_private { Reach::Anywhere } else { Reach::PublicOnly })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_from_elsewhere_leads_to_public_addresses_only() {
        let check = |document: Option<&str>, base: Option<&str>, allow_private: bool, to: &str| {
            let [document, base] = [document, base].map(|text| text.map(|text| Url::parse(text).unwrap()));
            let openapi = OpenApi { allow_private, ..OpenApi::default() };
            let territory = Territory::new(&openapi, document.as_ref(), base.as_ref());
            territory.reach(&Url::parse(to).unwrap()).ok()
        };
        let remote = Some("http://docs.example.com/openapi.json");
        let (free, public) = (Some(Reach::Anywhere), Some(Reach::PublicOnly));
        let near = Some(Reach::NotLinkLocal);
        let metadata = "http://169.254.169.254/latest/meta-data";
        for (document, base, allow_private, to, expected) in [
            (None, None, false, "http://127.0.0.1:8080/x", near),
            (None, None, false, "http://api.example.com/x", near),
            (None, None, false, metadata, None),
            (None, None, false, "http://metadata.google.internal/x", None),
            (None, None, false, "http://[fe80::1]/x", None),
            (None, None, true, metadata, free),
            (None, Some("http://169.254.1.1/"), false, "http://169.254.1.1/x", free),
            (remote, None, false, "http://127.0.0.1:8080/x", None),
            (remote, None, false, "http://[::1]/x", None),
            (remote, None, false, "http://169.254.169.254/x", None),
            (remote, None, false, "http://api.example.com/x", public),
            (remote, None, false, "http://docs.example.com/x", free),
            (remote, None, false, "https://docs.example.com/x", public),
            (remote, None, true, "http://127.0.0.1:8080/x", free),
            (remote, Some("http://127.0.0.1:8080/api"), false, "http://127.0.0.1:8080/x", free),
            (remote, Some("http://127.0.0.1:8080/api"), false, "http://127.0.0.1:9090/x", None),
            (Some("http://127.0.0.1:1/openapi.json"), None, false, "http://127.0.0.1:1/x", free),
            (Some("http://127.0.0.1:1/openapi.json"), None, false, "http://127.0.0.1:2/x", None),
            (None, None, true, "file:///etc/passwd", None),
        ] {
            assert_eq!(check(document, base, allow_private, to), expected, "{document:?} {base:?} {to}");
        }
        let file = Territory::new(&OpenApi::default(), None, None);
        assert!(file.reach_beyond(&Url::parse("http://127.0.0.1/").unwrap()).is_err());
    }
}
