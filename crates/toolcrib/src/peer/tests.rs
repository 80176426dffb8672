#![expect(clippy::unwrap_used, reason = "what the tests share is a test too")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use super::*;

fn connected(listen: SocketAddr, connect: impl Fn(u16) -> SocketAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(listen).unwrap();
    let client = TcpStream::connect(connect(listener.local_addr().unwrap().port())).unwrap();
    (client, listener.accept().unwrap().0)
}

fn look_up(server: &TcpStream) -> io::Result<Peer> {
    Peer::of_connection(server.peer_addr().unwrap(), server.local_addr().unwrap())
}

#[test]
fn a_connection_is_found_over_ipv4_and_ipv6_and_mapped_addresses() {
    let v4 = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let mapped = |port| SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    for (client, server) in [
        connected(v4(0), v4),
        connected(v6(0), v6),
        // A listener for both families and a client of IPv4, and a client of IPv6 with a mapped address.
        connected(both, v4),
        connected(v4(0), mapped),
        connected(both, mapped),
    ] {
        let peer = look_up(&server).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.is_same_user_or_root());
        // Only the client's own end has that inode.
        let inode = |stream: &TcpStream| {
            use std::os::fd::AsRawFd;
            std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap()
        };
        assert_eq!(inode(&client).to_str().unwrap(), format!("socket:[{}]", peer.inode));
    }
}

#[test]
fn a_client_that_closed_its_end_is_not_taken_for_root() {
    let (client, server) = connected((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let ends = (server.peer_addr().unwrap(), server.local_addr().unwrap());
    drop(client);
    assert!(Peer::of_connection(ends.0, ends.1).is_err());
    drop(server);
    assert!(Peer::of_connection(ends.0, ends.1).is_err());
    // A socket that listens on the client's port is not the client.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    assert!(Peer::of_connection(listener.local_addr().unwrap(), elsewhere).is_err());
}

#[test]
fn the_holder_of_a_socket_is_found_and_a_socket_that_is_held_by_none_is_an_error() {
    let (client, server) = connected((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let peer = look_up(&server).unwrap();
    let search = PeerSearch::default();
    assert!(!search.is_below_guard(peer).unwrap());
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(*search.recent(), [own]);
    assert!(!search.is_below_guard(peer).unwrap());
    drop(client);
    assert!(search.is_below_guard(peer).is_err());
}
