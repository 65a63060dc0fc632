//! Ranges of IP addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A CIDR range such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    bits: u32,
}

impl AddressRange {
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, own_length) = number(self.first);
        let (other, other_length) = number(address.to_canonical());
        own_length == other_length && (self.bits == 0 || (own ^ other) >> (own_length - self.bits) == 0)
    }
}

/// The key for counting a client's connections: an IPv6 network has 2⁶⁴ addresses.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u32::from(address).into(), 32),
        IpAddr::V6(address) => (address.into(), 128),
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, length) = number(self.first);
        if self.bits == length { self.first.fmt(f) } else { write!(f, "{}/{}", self.first, self.bits) }
    }
}

impl FromStr for AddressRange {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither an address nor a range as 10.0.0.0/8");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let (_, length) = number(first);
        let bits = bits.map_or(Ok(length), str::parse).map_err(|_| wrong())?;
        if bits > length {
            return Err(wrong());
        }
        Ok(Self { first, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ipv6_addresses_of_one_network_are_one_client() {
        for (address, network) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::"),
            ("2001:db8:1:3::1", "2001:db8:1:3::"),
            ("::1", "::"),
        ] {
            assert_eq!(client_network(address.parse().unwrap()), network.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn a_range_contains_the_addresses_that_begin_alike() {
        for (range, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), expected, "{range} {address}");
            assert_eq!(range.to_string().parse(), Ok(range));
        }
        for text in ["", "a", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129"] {
            assert!(text.parse::<AddressRange>().is_err(), "{text}");
        }
    }
}
