//! The address of this machine in its network.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// An address that is reserved for documentation: a route to it is the default route.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The address from which this machine reaches `target`. Sends nothing.
pub(crate) fn towards(target: SocketAddr) -> Option<IpAddr> {
    let local: SocketAddr = match target {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(local).ok()?;
    socket.connect(target).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}

/// The address of the interface with the default route; loopback if there is none.
pub(crate) fn default() -> IpAddr {
    towards((ELSEWHERE, 9).into()).unwrap_or(Ipv4Addr::LOCALHOST.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_reached_from_loopback() {
        assert_eq!(towards(([127, 0, 0, 1], 9).into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
