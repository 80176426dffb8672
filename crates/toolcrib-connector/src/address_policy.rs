//! Classifies IP addresses as public or link-local, checks URLs against that, and provides DNS resolvers that return
//! only permitted addresses. Protects against server-side request forgery.
//!
//! A URL is checked twice. `check_url` checks scheme and literal addresses before anything is sent; a host name
//! passes, because its addresses are not known yet. The resolvers check those when the connection itself resolves the
//! name, so that a name which changes its address between check and connection (DNS rebinding) gains nothing. Which
//! check applies to which URL is decided by the callers: `url_policy` of OpenAPI sources and the built-in tool
//! `url_fetch`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolcrib_core::text::sanitize_truncated;
use url::Host;

/// Time to resolve a name when a source is declared. A name that takes longer counts as not public.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Host names of cloud metadata services. Blocked by name, because a proxy would resolve them without our check.
const METADATA_HOSTS: [&str; 5] =
    ["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"];

/// Whether every address that a URL resolves to at this moment is public. Used when a source is declared over the
/// network. False if it cannot be parsed or resolved.
pub async fn is_public_url(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    if check_url(&url, NetworkScope::PublicOnly).is_err() {
        return false;
    }
    // A literal address was checked above; a name must resolve to public addresses only.
    let Some(Host::Domain(name)) = url.host() else { return true };
    let resolving = tokio::net::lookup_host((name, url.port_or_known_default().unwrap_or(443)));
    match tokio::time::timeout(RESOLVE_TIMEOUT, resolving).await {
        Ok(Ok(mut addresses)) => addresses.all(|address| is_public(address.ip())),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Reason why a URL is not fetched, for the agent.
#[derive(Debug)]
pub struct BlockedAddress(String);

impl BlockedAddress {
    /// Other reasons, such as too many redirects.
    pub fn new(reason: String) -> BlockedAddress {
        BlockedAddress(reason)
    }

    /// `host` is a name or an address that is not public.
    fn not_public(host: &str) -> BlockedAddress {
        BlockedAddress(format!(
            "`{}` is not a public address; set `allow_private` to permit it",
            sanitize_truncated(host, 200)
        ))
    }

    /// `host` is a name or an address that is link-local.
    fn link_local(host: &str) -> BlockedAddress {
        let host = sanitize_truncated(host, 200);
        BlockedAddress(format!(
            "`{host}` is a link-local address, where clouds offer credentials; set `allow_private` to permit it"
        ))
    }
}

/// Addresses that a request may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NetworkScope {
    /// No restriction.
    Anywhere,
    /// Names never resolve to link-local addresses. A proxy may resolve names itself, so well-known metadata host names
    /// are blocked beforehand.
    NotLinkLocal,
    /// Names resolve to public addresses only, checked by the connection's own resolver. No proxy: it would resolve
    /// names unchecked.
    PublicOnly,
}

/// Checks scheme and host of a URL. Host names are left to the resolver, but for some well-known ones. The URL parser has
/// already normalised spellings such as `0x7f.1`.
pub fn check_url(url: &Url, scope: NetworkScope) -> Result<(), BlockedAddress> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(BlockedAddress(format!(
            "`{}` URLs are not fetched, only http and https",
            sanitize_truncated(url.scheme(), 200)
        )));
    }
    let (name, address) = match url.host() {
        Some(Host::Domain(name)) => (name, None),
        Some(Host::Ipv4(address)) => ("", Some(IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => ("", Some(IpAddr::V6(address))),
        None => return Err(BlockedAddress("the URL has no host".into())),
    };
    let is_metadata_host = METADATA_HOSTS.contains(&name.trim_end_matches('.'));
    match scope {
        NetworkScope::NotLinkLocal if is_metadata_host || address.is_some_and(is_link_local) => {
            Err(BlockedAddress::link_local(url.host_str().unwrap_or_default()))
        }
        // `localhost` is loopback by definition (RFC 6761), whether or not the resolver knows it.
        NetworkScope::PublicOnly if is_localhost(name) || address.is_some_and(|address| !is_public(address)) => {
            Err(BlockedAddress::not_public(&address.map_or_else(|| name.to_owned(), |address| address.to_string())))
        }
        NetworkScope::Anywhere | NetworkScope::NotLinkLocal | NetworkScope::PublicOnly => Ok(()),
    }
}

/// DNS resolver that drops link-local addresses.
#[derive(Debug)]
pub struct NoLinkLocalResolver;

impl Resolve for NoLinkLocalResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                addresses.into_iter().filter(|address| !is_link_local(address.ip())).collect();
            if allowed.is_empty() {
                return Err(BlockedAddress::link_local(name.as_str()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Whether a name is `localhost` or below it.
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// DNS resolver that drops addresses that are not public.
#[derive(Debug)]
pub struct PublicOnlyResolver;

impl Resolve for PublicOnlyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0 is replaced by the connection. Other addresses of a name with some private ones remain usable.
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = addresses.into_iter().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err(BlockedAddress::not_public(name.as_str()).into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is globally reachable: not loopback, private, shared, link-local, reserved or a metadata service.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether an address is link-local or a cloud metadata service.
pub fn is_link_local(address: IpAddr) -> bool {
    let v4 = |address: Ipv4Addr| match address.octets() {
        [169, 254, ..] => true,
        // Metadata services of Azure, Alibaba and Oracle.
        [168, 63, 129, 16] | [100, 100, 100, 200] | [192, 0, 0, 192] => true,
        _ => false,
    };
    match address.to_canonical() {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => match address.segments() {
            // Metadata services of Amazon and Google.
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => true,
            // NAT64, 6to4 and IPv4-compatible addresses lead to the embedded IPv4 address.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] | [0, 0, 0, 0, 0, 0, high, low] => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                v4(Ipv4Addr::new(a, b, c, d))
            }
            // fe80::/10
            [first, ..] => first & 0xffc0 == 0xfe80,
        },
    }
}

/// Special-purpose ranges of IANA's registry are not public.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let blocked = match address.octets() {
        // 0.0.0.0/8 (this host), 10.0.0.0/8 (private use), 127.0.0.0/8 (loopback).
        [0 | 10 | 127, ..] => true,
        // Shared address space of carrier-grade NAT (RFC 6598).
        [100, 64..=127, ..] => true,
        // Link-local, with most metadata services.
        [169, 254, ..] => true,
        // Azure's metadata service.
        [168, 63, 129, 16] => true,
        [172, 16..=31, ..] | [192, 168, ..] => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarking.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !blocked
}

/// Only the global unicast range is public, apart from special-purpose ranges in it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let is_embedded_public = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // NAT64, which IPv6-only networks use for everything, and 6to4 lead to the embedded IPv4 address.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => is_embedded_public(high, low),
        // Protocol assignments including Teredo, documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Global unicast (2000::/3); everything else (mapped, local, multicast, unspecified) is not public.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Finds our own error in the source chain of a reqwest error.
pub fn find_blocked_address(error: &reqwest::Error) -> Option<&BlockedAddress> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(blocked) = error.downcast_ref() {
            return Some(blocked);
        }
        cause = error.source();
    }
    None
}

impl fmt::Display for BlockedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BlockedAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_permitted() {
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
    fn link_local_addresses_are_recognised_in_every_form() {
        for (url, passes) in [
            ("http://127.0.0.1/", true),
            ("http://10.0.0.1/", true),
            ("http://[fd00::1]/", true),
            ("http://[::1]/", true),
            ("http://api.example.com/", true),
            ("http://169.254.169.254/latest/meta-data/", false),
            ("http://169.254.0.1/", false),
            ("http://0xa9fea9fe/", false),
            ("http://2852039166/", false),
            ("http://168.63.129.16/", false),
            ("http://100.100.100.200/", false),
            ("http://192.0.0.192/", false),
            ("http://[fe80::1]/", false),
            ("http://[febf::1]/", false),
            ("http://[fd00:ec2::254]/", false),
            ("http://[fd20:ce::254]/", false),
            ("http://[::ffff:169.254.169.254]/", false),
            ("http://[::169.254.169.254]/", false),
            ("http://[64:ff9b::a9fe:a9fe]/", false),
            ("http://[2002:a9fe:a9fe::1]/", false),
            ("http://metadata.google.internal/", false),
            ("http://METADATA.google.internal./", false),
            ("file:///etc/passwd", false),
        ] {
            assert_eq!(check_url(&Url::parse(url).unwrap(), NetworkScope::NotLinkLocal).is_ok(), passes, "{url}");
        }
    }

    #[tokio::test]
    async fn a_url_is_public_if_all_its_addresses_are() {
        for (url, public) in [
            ("https://93.184.216.34/", true),
            ("http://127.0.0.1:1/", false),
            ("http://[fd00::1]/", false),
            ("http://localhost/", false),
            ("http://no-such-name.invalid/", false),
            ("https://${env:HOST}/", false),
            ("not an address", false),
        ] {
            assert_eq!(is_public_url(url).await, public, "{url}");
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
            assert_eq!(check_url(&Url::parse(url).unwrap(), NetworkScope::PublicOnly).is_ok(), passes, "{url}");
        }
        assert!(check_url(&Url::parse("http://127.0.0.1/").unwrap(), NetworkScope::Anywhere).is_ok());
        assert!(check_url(&Url::parse("file:///etc/passwd").unwrap(), NetworkScope::Anywhere).is_err());
    }
}
