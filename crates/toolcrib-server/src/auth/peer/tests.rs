#![expect(clippy::unwrap_used, reason = "code shared by tests")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use toolcrib_testkit::observe::wait_until_blocking;

use super::*;

fn connect_pair(listen: SocketAddr, connect: impl Fn(u16) -> SocketAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(listen).unwrap();
    let client = TcpStream::connect(connect(listener.local_addr().unwrap().port())).unwrap();
    (client, listener.accept().unwrap().0)
}

fn look_up(server: &TcpStream) -> io::Result<PeerSocket> {
    PeerSocket::from_connection(server.peer_addr().unwrap(), server.local_addr().unwrap())
}

#[test]
fn a_connection_is_found_over_ipv4_and_ipv6_and_mapped_addresses() {
    let v4 = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = |port| SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let mapped = |port| SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port));
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    for (client, server) in [
        connect_pair(v4(0), v4),
        connect_pair(v6(0), v6),
        // A dual-stack listener with an IPv4 client, and IPv6 clients with mapped addresses.
        connect_pair(both, v4),
        connect_pair(v4(0), mapped),
        connect_pair(both, mapped),
    ] {
        let peer = look_up(&server).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.is_same_user_or_root());
        // Only the client's own socket has that inode.
        let inode = |stream: &TcpStream| {
            use std::os::fd::AsRawFd;
            std::fs::read_link(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap()
        };
        assert_eq!(inode(&client).to_str().unwrap(), format!("socket:[{}]", peer.inode));
    }
}

#[test]
fn a_client_that_closed_its_socket_is_not_taken_for_root() {
    let (client, server) = connect_pair((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let ends = (server.peer_addr().unwrap(), server.local_addr().unwrap());
    drop(client);
    assert!(PeerSocket::from_connection(ends.0, ends.1).is_err());
    drop(server);
    assert!(PeerSocket::from_connection(ends.0, ends.1).is_err());
    // A socket that listens on the client's port is not the client.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    assert!(PeerSocket::from_connection(listener.local_addr().unwrap(), elsewhere).is_err());
}

#[test]
fn the_owner_of_a_socket_is_found_and_a_socket_without_owner_is_an_error() {
    let (client, server) = connect_pair((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let peer = look_up(&server).unwrap();
    let mut search = PeerSearch::default();
    let mut find_owner = || search.find_owners(&[peer]).remove(0);
    assert_eq!(find_owner().unwrap(), SocketOwner::ThisProcess);
    assert_eq!(find_owner().unwrap(), SocketOwner::ThisProcess, "it is looked at first");
    drop(client);
    assert_eq!(find_owner().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(search.recent, [i32::try_from(std::process::id()).unwrap()]);
}

#[test]
fn one_search_finds_the_owners_of_several_sockets() {
    let connect = || connect_pair((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let (own_client, own_server) = connect();
    let (closed_client, closed_server) = connect();
    let (other_client, other_server) = connect();
    let peers = [&own_server, &closed_server, &other_server].map(|server| look_up(server).unwrap());
    drop(closed_client);
    let mut other = Command::new("sleep").arg("600").stdin(std::os::fd::OwnedFd::from(other_client)).spawn().unwrap();
    let mut search = PeerSearch::default();
    wait_until_blocking("the socket to be inherited", || {
        search.find_owners(&peers[2..]).remove(0).is_ok_and(|owner| owner == SocketOwner::Other)
    });
    let owners = search.find_owners(&peers).into_iter().map(|owner| owner.map_err(|error| error.kind()));
    let expected = [Ok(SocketOwner::ThisProcess), Err(io::ErrorKind::NotFound), Ok(SocketOwner::Other)];
    assert_eq!(owners.collect::<Vec<_>>(), expected);
    drop(own_client);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_process_that_lost_the_socket_is_not_classified() {
    let (client, server) = connect_pair((Ipv4Addr::LOCALHOST, 0).into(), |port| (Ipv4Addr::LOCALHOST, port).into());
    let inode = look_up(&server).unwrap().inode;
    let sockets = HashSet::from([inode]);
    let classify = |child: &Child| {
        let owners = classify_owners(&SocketOwnerSearch::start(), child_pid(child), &sockets);
        owners.unwrap().get(&inode).copied()
    };
    // Stands for a process that reuses the pid of the one that was found.
    let start = |input: Stdio| Command::new("sleep").arg("600").stdin(input).spawn().unwrap();
    let mut other = start(Stdio::null());
    assert_eq!(classify(&other), Some(SocketOwner::ThisProcess), "its parent may share the socket");
    let mut heir = start(std::os::fd::OwnedFd::from(client).into());
    wait_until_blocking("the sockets to be inherited", || {
        let search = SocketOwnerSearch::start();
        let holds_socket = |child: &Child| search.owned_sockets(child_pid(child), &sockets).unwrap() == sockets;
        holds_socket(&heir) && !holds_socket(&other)
    });
    assert_eq!(classify(&other), None);
    assert_eq!(classify(&heir), Some(SocketOwner::Other));
    for child in [&mut other, &mut heir] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn child_pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}
