//! The owner of one socket, asked of the kernel by its two ends (`sock_diag`). A list of all sockets takes the longer the more there are, and
//! who has just closed thousands of connections would make every new one wait.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = 56;
/// What is asked for, and that it is asked.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const LISTENING: u8 = 10;
/// Where in the answer's body these stand.
const STATE: usize = 1;
const OWNER: usize = 64;
const INODE: usize = 68;

/// The owner of the socket from `near` to `far`; none if there is no such socket, or it was closed. An error where the kernel is not to be asked.
pub(super) fn owner(near: SocketAddr, far: SocketAddr) -> Result<Option<u32>, Errno> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    sendto(&socket, &question(near, far), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 512];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    Ok(read(&answer[..length]))
}

fn question(near: SocketAddr, far: SocketAddr) -> Vec<u8> {
    let family = if near.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + REQUEST_BYTES);
    bytes.extend(((HEADER_BYTES + REQUEST_BYTES) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family.as_raw() as u8, TCP, 0, 0]);
    // In whatever state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(near.port().to_be_bytes());
    bytes.extend(far.port().to_be_bytes());
    bytes.extend(address(near.ip()));
    bytes.extend(address(far.ip()));
    // On any interface, whatever its cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn read(answer: &[u8]) -> Option<u32> {
    let is_found = answer.get(4..6)? == SOCK_DIAG_BY_FAMILY.to_ne_bytes();
    let body = answer.get(HEADER_BYTES..).filter(|_| is_found)?;
    let number = |at: usize| body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let is_open = *body.get(STATE)? != LISTENING && number(INODE)? != 0;
    number(OWNER).filter(|_| is_open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_owner_of_a_connection_and_of_no_other() {
        for listening in ["127.0.0.1:0", "[::1]:0"] {
            let listener = std::net::TcpListener::bind(listening).unwrap();
            let far = listener.local_addr().unwrap();
            let client = std::net::TcpStream::connect(far).unwrap();
            let near = client.local_addr().unwrap();
            let user = rustix::process::geteuid().as_raw();
            assert_eq!(owner(near, far), Ok(Some(user)));
            assert_eq!(owner(far, near), Ok(None), "no one has taken it yet");
            let taken = listener.accept().unwrap();
            assert_eq!(owner(far, near), Ok(Some(user)));
            drop((client, taken));
            assert_eq!(owner(near, far), Ok(None), "it was closed");
            let mut other = near;
            other.set_port(1);
            assert_eq!(owner(other, far), Ok(None));
        }
    }

    #[test]
    fn what_is_no_answer_names_no_one() {
        for answer in [&[][..], &[0; 15], &[0; 200], &[20; 40]] {
            assert_eq!(read(answer), None);
        }
    }
}
