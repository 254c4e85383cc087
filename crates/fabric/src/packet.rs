//! The binary form of packets. Integers are big-endian.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BufMut};
use foca::{Codec, Header, Member, Message, State};
use model::id::{Incarnation, NodeId};

use crate::identity::{Identity, Role};

const CONTROL: u8 = 1;
const LEAVING: u8 = 2;
const IPV6: u8 = 4;

/// Most bytes of a member: an IPv6 identity, its SWIM incarnation and its state.
const MEMBER_BYTES_MAX: usize = 8 + 8 + 4 + 1 + 2 + 16 + 2 + 1;

/// Most bytes of a header: two identities, a SWIM incarnation, a message with a third identity.
const HEADER_BYTES_MAX: usize = 3 * MEMBER_BYTES_MAX + 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PacketError {
    #[error("the packet is malformed")]
    Malformed,
    #[error("the packet is full")]
    Full,
}

/// A packet in full, to be examined before foca acts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub header: Header<Identity>,
    pub updates: Vec<Member<Identity>>,
}

impl Packet {
    pub fn decode(mut bytes: &[u8]) -> Result<Self, PacketError> {
        let header = decode_header(&mut bytes)?;
        let mut updates = Vec::new();
        if !bytes.is_empty() {
            for _ in 0..bytes.try_get_u16().map_err(malformed)? {
                updates.push(decode_member(&mut bytes)?);
            }
        }
        // Announcements have no updates in foca, and nobody sends custom broadcasts.
        let announcement_with_updates = header.message == Message::Announce && !updates.is_empty();
        if !bytes.is_empty() || announcement_with_updates || header.message == Message::Broadcast {
            return Err(PacketError::Malformed);
        }
        Ok(Self { header, updates })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES_MAX + self.updates.len() * MEMBER_BYTES_MAX);
        put_header(&self.header, &mut bytes);
        if !self.updates.is_empty() {
            bytes.put_u16(u16::try_from(self.updates.len()).unwrap_or(u16::MAX));
            for member in self.updates.iter().take(usize::from(u16::MAX)) {
                put_member(member, &mut bytes);
            }
        }
        bytes
    }
}

/// Foca's view of the format.
#[derive(Debug)]
pub(crate) struct PacketCodec;

impl Codec<Identity> for PacketCodec {
    type Error = PacketError;

    fn encode_header(&mut self, header: &Header<Identity>, buf: impl BufMut) -> Result<(), PacketError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES_MAX);
        put_header(header, &mut bytes);
        put_whole(&bytes, buf)
    }

    fn decode_header(&mut self, buf: impl Buf) -> Result<Header<Identity>, PacketError> {
        decode_header(buf)
    }

    fn encode_member(&mut self, member: &Member<Identity>, buf: impl BufMut) -> Result<(), PacketError> {
        let mut bytes = Vec::with_capacity(MEMBER_BYTES_MAX);
        put_member(member, &mut bytes);
        put_whole(&bytes, buf)
    }

    fn decode_member(&mut self, buf: impl Buf) -> Result<Member<Identity>, PacketError> {
        decode_member(buf)
    }
}

/// Writes all or nothing: foca requires a clean buffer after an error.
fn put_whole(bytes: &[u8], mut buf: impl BufMut) -> Result<(), PacketError> {
    if buf.remaining_mut() < bytes.len() {
        return Err(PacketError::Full);
    }
    buf.put_slice(bytes);
    Ok(())
}

fn malformed(_: bytes::TryGetError) -> PacketError {
    PacketError::Malformed
}

fn put_header(header: &Header<Identity>, buf: &mut Vec<u8>) {
    put_identity(&header.src, buf);
    buf.put_u16(header.src_incarnation);
    put_identity(&header.dst, buf);
    match &header.message {
        Message::Ping(number) => buf.put_slice(&[0, *number]),
        Message::Ack(number) => buf.put_slice(&[1, *number]),
        Message::PingReq { target, probe_number } => put_indirect(2, *probe_number, target, buf),
        Message::IndirectPing { origin, probe_number } => put_indirect(3, *probe_number, origin, buf),
        Message::IndirectAck { target, probe_number } => put_indirect(4, *probe_number, target, buf),
        Message::ForwardedAck { origin, probe_number } => put_indirect(5, *probe_number, origin, buf),
        Message::Announce => buf.put_u8(6),
        Message::Feed => buf.put_u8(7),
        Message::Gossip => buf.put_u8(8),
        Message::Broadcast => buf.put_u8(9),
        Message::TurnUndead => buf.put_u8(10),
    }
}

fn put_indirect(tag: u8, probe_number: u8, other: &Identity, buf: &mut Vec<u8>) {
    buf.put_slice(&[tag, probe_number]);
    put_identity(other, buf);
}

fn decode_header(mut buf: impl Buf) -> Result<Header<Identity>, PacketError> {
    let src = decode_identity(&mut buf)?;
    let src_incarnation = buf.try_get_u16().map_err(malformed)?;
    let dst = decode_identity(&mut buf)?;
    let tag = buf.try_get_u8().map_err(malformed)?;
    let probe_number = if tag <= 5 { buf.try_get_u8().map_err(malformed)? } else { 0 };
    let message = match tag {
        0 => Message::Ping(probe_number),
        1 => Message::Ack(probe_number),
        2 => Message::PingReq { target: decode_identity(&mut buf)?, probe_number },
        3 => Message::IndirectPing { origin: decode_identity(&mut buf)?, probe_number },
        4 => Message::IndirectAck { target: decode_identity(&mut buf)?, probe_number },
        5 => Message::ForwardedAck { origin: decode_identity(&mut buf)?, probe_number },
        6 => Message::Announce,
        7 => Message::Feed,
        8 => Message::Gossip,
        9 => Message::Broadcast,
        10 => Message::TurnUndead,
        _ => return Err(PacketError::Malformed),
    };
    Ok(Header { src, src_incarnation, dst, message })
}

fn put_member(member: &Member<Identity>, buf: &mut Vec<u8>) {
    put_identity(member.id(), buf);
    buf.put_u16(member.incarnation());
    buf.put_u8(match member.state() {
        State::Alive => 0,
        State::Suspect => 1,
        State::Down => 2,
    });
}

fn decode_member(mut buf: impl Buf) -> Result<Member<Identity>, PacketError> {
    let identity = decode_identity(&mut buf)?;
    let incarnation = buf.try_get_u16().map_err(malformed)?;
    let state = match buf.try_get_u8().map_err(malformed)? {
        0 => State::Alive,
        1 => State::Suspect,
        2 => State::Down,
        _ => return Err(PacketError::Malformed),
    };
    Ok(Member::new(identity, incarnation, state))
}

fn put_identity(identity: &Identity, buf: &mut Vec<u8>) {
    buf.put_u64(identity.node.0);
    buf.put_u64(identity.incarnation.0);
    buf.put_u32(identity.rejoins);
    let control = if identity.role == Role::Control { CONTROL } else { 0 };
    let leaving = if identity.leaving { LEAVING } else { 0 };
    let ipv6 = if identity.address.is_ipv6() { IPV6 } else { 0 };
    buf.put_u8(control | leaving | ipv6);
    buf.put_u16(identity.address.port());
    match identity.address.ip() {
        IpAddr::V4(ip) => buf.put_slice(&ip.octets()),
        IpAddr::V6(ip) => buf.put_slice(&ip.octets()),
    }
}

fn decode_identity(mut buf: impl Buf) -> Result<Identity, PacketError> {
    let node = NodeId(buf.try_get_u64().map_err(malformed)?);
    let incarnation = Incarnation(buf.try_get_u64().map_err(malformed)?);
    let rejoins = buf.try_get_u32().map_err(malformed)?;
    let flags = buf.try_get_u8().map_err(malformed)?;
    if flags & !(CONTROL | LEAVING | IPV6) != 0 {
        return Err(PacketError::Malformed);
    }
    let port = buf.try_get_u16().map_err(malformed)?;
    let ip: IpAddr = if flags & IPV6 == 0 {
        buf.try_get_u32().map_err(malformed)?.to_be_bytes().into()
    } else {
        buf.try_get_u128().map_err(malformed)?.to_be_bytes().into()
    };
    let role = if flags & CONTROL == 0 { Role::Runner } else { Role::Control };
    let address = SocketAddr::new(ip, port);
    Ok(Identity { node, incarnation, rejoins, leaving: flags & LEAVING != 0, address, role })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity() -> impl Strategy<Value = Identity> {
        let address = prop_oneof![
            (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
            (any::<[u8; 16]>(), any::<u16>()).prop_map(SocketAddr::from),
        ];
        (any::<(u64, u64, u32)>(), any::<(bool, bool)>(), address).prop_map(
            |((node, starts, rejoins), flags, address)| Identity {
                node: NodeId(node),
                incarnation: Incarnation(starts),
                rejoins,
                leaving: flags.0,
                address,
                role: if flags.1 { Role::Control } else { Role::Runner },
            },
        )
    }

    fn message() -> impl Strategy<Value = Message<Identity>> {
        (identity(), any::<u8>(), 0..9).prop_map(|(other, probe_number, kind)| match kind {
            0 => Message::Ping(probe_number),
            1 => Message::Ack(probe_number),
            2 => Message::PingReq { target: other, probe_number },
            3 => Message::IndirectPing { origin: other, probe_number },
            4 => Message::IndirectAck { target: other, probe_number },
            5 => Message::ForwardedAck { origin: other, probe_number },
            6 => Message::Feed,
            7 => Message::Gossip,
            _ => Message::TurnUndead,
        })
    }

    fn member() -> impl Strategy<Value = Member<Identity>> {
        let state = prop_oneof![Just(State::Alive), Just(State::Suspect), Just(State::Down)];
        (identity(), any::<u16>(), state).prop_map(|(id, incarnation, state)| Member::new(id, incarnation, state))
    }

    proptest! {
        #[test]
        fn packets_round_trip(
            src in identity(),
            src_incarnation: u16,
            dst in identity(),
            message in message(),
            updates in proptest::collection::vec(member(), 0..40),
        ) {
            let packet = Packet { header: Header { src, src_incarnation, dst, message }, updates };
            prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
        }

        #[test]
        fn any_bytes_are_rejected_or_mean_the_same_again(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
            }
        }

        #[test]
        fn a_truncated_packet_is_malformed(src in identity(), updates in proptest::collection::vec(member(), 1..9)) {
            let header = Header { src, src_incarnation: 0, dst: src, message: Message::Gossip };
            let bytes = Packet { header, updates }.encode();
            // Only the header is a whole packet of its own.
            let whole = (1..bytes.len()).filter(|len| Packet::decode(&bytes[..*len]).is_ok()).count();
            prop_assert_eq!(whole, 1);
        }
    }
}
