//! Which addresses are out in the open, and a resolver that knows no others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolcrib_core::text::shown_short;
use url::Host;

/// Why a URL is not fetched, in words for the agent.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    pub(crate) fn new(reason: String) -> Refused {
        Refused(reason)
    }

    fn private(host: &str) -> Refused {
        Refused(format!("`{}` is not a public address; set `allow_private` to permit it", shown_short(host, 200)))
    }
}

/// The scheme, and the host where it is an address. The parser has brought `0x7f.1` and the like into their usual form.
pub(crate) fn check_url(url: &Url, allow_private: bool) -> Result<(), Refused> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refused(format!("`{}` URLs are not fetched, only http and https", shown_short(url.scheme(), 200))));
    }
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        // Names are the resolver's business.
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err(Refused("the URL has no host".into())),
    };
    if allow_private || is_public(address) { Ok(()) } else { Err(Refused::private(&address.to_string())) }
}

/// Resolves names to public addresses only.
#[derive(Debug)]
pub(crate) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found.into_iter().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(Refused::private(name.as_str()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is out in the open: not ours, not this network's, not a machine's metadata.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let refused = match address.octets() {
        // This host, private, loopback.
        [0 | 10 | 127, ..] => true,
        // Shared with a provider's other customers (RFC 6598).
        [100, 64..=127, ..] => true,
        // Link-local, where clouds keep their metadata.
        [169, 254, ..] => true,
        // Azure's own.
        [168, 63, 129, 16] => true,
        [172, 16..=31, ..] | [192, 168, ..] => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !refused
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // NAT64, which networks without IPv4 use for everything, and 6to4: as good as the address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments with Teredo, documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // What is given out for the open net; all else (mapped, local, multicast, unspecified) is not.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Our own refusal, however deep the client has wrapped it.
pub(crate) fn refusal(error: &reqwest::Error) -> Option<&Refused> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        for address in ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::808:808"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "2001:0:1::1",
            "2001:db8::1",
            "3fff::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn every_redirect_target_is_checked() {
        // This is the check that the redirect policy makes.
        for (url, passes) in [
            ("https://example.com/x", true),
            ("http://93.184.216.34/", true),
            ("http://127.0.0.1/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://0x7f000001/", false),
            ("http://2130706433/", false),
            ("http://0177.0.0.1/", false),
            ("http://127.1/", false),
            ("http://169.254.169.254/latest/meta-data/", false),
            ("file:///etc/passwd", false),
            ("ftp://example.com/", false),
            ("gopher://example.com/", false),
            ("data:text/plain,x", false),
        ] {
            assert_eq!(check_url(&Url::parse(url).unwrap(), false).is_ok(), passes, "{url}");
        }
        assert!(check_url(&Url::parse("http://127.0.0.1/").unwrap(), true).is_ok());
        assert!(check_url(&Url::parse("file:///etc/passwd").unwrap(), true).is_err());
    }
}
