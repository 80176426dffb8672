//! Queries user and inode of a TCP socket with one `inet_diag` request over `NETLINK_SOCK_DIAG` for the exact addresses
//! and ports. Reading `/proc/net/tcp` instead would take longer with every connection of the machine.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto, socket_with};

use super::PeerSocket;

/// The kernel responds while the request is being sent, so this only covers a kernel that does not respond at all.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);

// Messages are built and read by offset, in native byte order; ports and addresses are in network byte order.
// From `linux/netlink.h`, `linux/sock_diag.h` and `net/tcp_states.h`.
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const TCP_ESTABLISHED: u8 = 1;
/// Value of the cookie in a request for a socket whose cookie is not known.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Size of `struct nlmsghdr`.
const HEADER_LEN: usize = 16;
/// Size of `struct inet_diag_req_v2`.
const REQUEST_LEN: usize = 56;
/// Size of `struct inet_diag_msg`, without the attributes that may follow.
const RESPONSE_LEN: usize = 72;
/// Size of both ports and both addresses in a `struct inet_diag_sockid`.
const ADDRESSES_LEN: usize = 36;
/// Receive buffer; one response without attributes is much shorter.
const BUFFER_LEN: usize = 1024;

/// Asks the kernel for the client's socket of a connection.
pub(super) fn query_socket(client: SocketAddr, server: SocketAddr) -> io::Result<PeerSocket> {
    // One request and one response over a fresh netlink socket.
    let (family, addresses) = encode_addresses(client, server)?;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(RESPONSE_TIMEOUT))?;
    // Netlink port 0 is the kernel.
    sendto(&socket, &build_request(family, &addresses), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut buffer = [0; BUFFER_LEN];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    parse_response(&buffer[..length], &addresses)
}

/// Address family, and ports and addresses as the client's socket has them. An IPv6 socket that is connected to an IPv4
/// address is found by the IPv4 address.
fn encode_addresses(client: SocketAddr, server: SocketAddr) -> io::Result<(u8, [u8; ADDRESSES_LEN])> {
    let mut addresses = [0; ADDRESSES_LEN];
    addresses[0..2].copy_from_slice(&client.port().to_be_bytes());
    addresses[2..4].copy_from_slice(&server.port().to_be_bytes());
    let family = match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            addresses[4..8].copy_from_slice(&client.octets());
            addresses[20..24].copy_from_slice(&server.octets());
            AddressFamily::INET
        }
        (IpAddr::V6(client), IpAddr::V6(server)) => {
            addresses[4..20].copy_from_slice(&client.octets());
            addresses[20..36].copy_from_slice(&server.octets());
            AddressFamily::INET6
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            return Err(io::Error::other("the two ends of a connection have different address families"));
        }
    };
    let family = u8::try_from(family.as_raw()).map_err(io::Error::other)?;
    Ok((family, addresses))
}

/// Encodes the request for one exact socket.
fn build_request(family: u8, addresses: &[u8; ADDRESSES_LEN]) -> [u8; HEADER_LEN + REQUEST_LEN] {
    const MESSAGE_LEN: u32 = 72;
    let mut message = [0; HEADER_LEN + REQUEST_LEN];
    message[0..4].copy_from_slice(&MESSAGE_LEN.to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message[16] = family;
    message[17] = u8::try_from(ipproto::TCP.as_raw().get()).unwrap_or_default();
    // The kernel filters by state only when it lists sockets; the response is checked below.
    message[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    message[24..24 + ADDRESSES_LEN].copy_from_slice(addresses);
    message[64..72].copy_from_slice(&NO_COOKIE);
    message
}

/// Checks and parses the response. Without an established socket the kernel may return one that listens on the client's
/// port. A closed socket has lost its user and is reported as root's, without an inode.
fn parse_response(message: &[u8], addresses: &[u8; ADDRESSES_LEN]) -> io::Result<PeerSocket> {
    let truncated = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = u16::from_ne_bytes(read_field(message, 4).ok_or_else(truncated)?);
    if kind == NLMSG_ERROR {
        let code = i32::from_ne_bytes(read_field(message, HEADER_LEN).ok_or_else(truncated)?);
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    if kind != SOCK_DIAG_BY_FAMILY {
        return Err(io::Error::other("unexpected type of netlink response"));
    }
    let body = message.get(HEADER_LEN..HEADER_LEN + RESPONSE_LEN).ok_or_else(truncated)?;
    // `body[1]` is the state; ports and addresses follow as in the request.
    let found_addresses = &body[4..4 + ADDRESSES_LEN];
    if body[1] != TCP_ESTABLISHED || !has_same_addresses(found_addresses, addresses) {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the client is not connected any more"));
    }
    let uid = u32::from_ne_bytes(read_field(body, 64).ok_or_else(truncated)?);
    let inode = u32::from_ne_bytes(read_field(body, 68).ok_or_else(truncated)?);
    // A socket in TIME_WAIT has user 0 and inode 0, and must not be taken for one of root.
    if inode == 0 {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "the client has closed its socket"));
    }
    Ok(PeerSocket { uid, inode })
}

/// Compares ports and addresses. The kernel reports an IPv6 socket connected to an IPv4 address with mapped addresses.
fn has_same_addresses(found: &[u8], expected: &[u8; ADDRESSES_LEN]) -> bool {
    const MAPPED_PREFIX: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    let is_mapped = |at: usize| found[at..at + 12] == MAPPED_PREFIX && found[at + 12..at + 16] == expected[at..at + 4];
    found == expected || (found[0..4] == expected[0..4] && is_mapped(4) && is_mapped(20))
}

/// Bytes at an offset; `None` beyond the end.
fn read_field<const N: usize>(message: &[u8], at: usize) -> Option<[u8; N]> {
    message.get(at..at + N)?.try_into().ok()
}
