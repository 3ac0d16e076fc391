//! What differs between operating systems: who has made a connection.

#[cfg(target_os = "linux")]
mod socket;

use std::net::SocketAddr;

use crate::http::Peer;

/// Who is at the other end of a connection of this machine with itself. Linux names the owner of a socket; where it may not be asked, it still
/// lists them all.
#[cfg(target_os = "linux")]
pub(crate) fn peer(own: SocketAddr, peer: SocketAddr) -> Peer {
    match socket::owner(peer, own).unwrap_or_else(|_| listed_owner(peer, own)) {
        Some(user) if user == 0 || user == rustix::process::geteuid().as_raw() => Peer::Own,
        Some(_) => Peer::Other,
        None => Peer::Gone,
    }
}

/// A socket for both families is listed with the other one.
#[cfg(target_os = "linux")]
fn listed_owner(near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let listed = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    owner(&listed("/proc/net/tcp"), near, far).or_else(|| owner(&listed("/proc/net/tcp6"), near, far))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn peer(_: SocketAddr, _: SocketAddr) -> Peer {
    Peer::Own
}

/// The owner of the socket with these two ends, in a list as the kernel writes it. One that was closed has none: it is shown as if it were
/// root's.
#[cfg(target_os = "linux")]
fn owner(sockets: &str, near: SocketAddr, far: SocketAddr) -> Option<u32> {
    let ends = [false, true].map(|is_long| (shown(near, is_long), shown(far, is_long)));
    sockets.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&near, &far, &user, &inode) = (words.get(1)?, words.get(2)?, words.get(7)?, words.get(9)?);
        let is_it = ends.iter().any(|(a, b)| a == near && b == far);
        if is_it && inode != "0" { user.parse().ok() } else { None }
    })
}

/// An address and port as the kernel lists them: words of four bytes in the machine's own order.
#[cfg(target_os = "linux")]
fn shown(end: SocketAddr, is_long: bool) -> String {
    let bytes = match end.ip() {
        std::net::IpAddr::V4(address) if is_long => address.to_ipv6_mapped().octets().to_vec(),
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let address: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{address}:{:04X}", end.port())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_socket_is_found_among_all_and_one_that_was_closed_has_none() {
        let line = |near: &str, far: &str, user: u32, inode: u32| {
            format!(
                "   0: {near} {far} 01 00000000:00000000 00:00000000 00000000 {user:5} 0 {inode} 1 0 20 4 30 10 -1\n"
            )
        };
        let (client, server) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:3000".parse().unwrap());
        let [near, far] = [client, server].map(|end| shown(end, false));
        let other = line(&far, &near, 7, 9);
        let check = |lines: &str, expected: Option<u32>| {
            assert_eq!(owner(&format!("header\n{other}{lines}"), client, server), expected, "{lines}");
        };
        check("", None);
        check(&line(&near, &far, 1000, 5), Some(1000));
        check(&line(&near, &far, 0, 0), None);
        check(&line(&shown(client, true), &shown(server, true), 1000, 5), Some(1000));
        check("garbage\n", None);
        let (client, server) = ("[::1]:40000".parse().unwrap(), "[::1]:3000".parse().unwrap());
        let v6 = line(&shown(client, false), &shown(server, false), 12, 5);
        assert_eq!(owner(&format!("header\n{v6}"), client, server), Some(12));
    }

    #[test]
    fn a_connection_of_our_own_is_known_as_such() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(own).unwrap();
        assert_eq!(peer(own, client.local_addr().unwrap()), Peer::Own);
        assert_eq!(peer(own, "127.0.0.1:1".parse().unwrap()), Peer::Gone);
        let both = (socket::owner(client.local_addr().unwrap(), own), listed_owner(client.local_addr().unwrap(), own));
        assert_eq!(both.0, Ok(both.1));
    }
}
