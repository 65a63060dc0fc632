//! Virtual addresses of services and slots. Packets to them are redirected to the proxy of the sending host.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use crate::ids::ServiceName;

pub const DOMAIN: &str = "kubeleet";

/// 198.18.0.0/15, which RFC 2544 keeps out of the Internet.
const POOL: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// Redis stores its number: 198.18.0.7 is number 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolAddress(u32);

impl PoolAddress {
    pub const RESOLVER: Self = Self(1);
    pub const FIRST: u32 = 2;
    /// The pool but the first two and the last.
    pub const COUNT: u32 = (1 << 17) - 3;
    /// Further slots have no address.
    pub const SLOTS_OF_SERVICE: u32 = 1 << 14;

    /// `None` outside the range for services.
    pub fn from_number(number: u32) -> Option<Self> {
        (Self::FIRST..Self::FIRST + Self::COUNT).contains(&number).then_some(Self(number))
    }

    pub fn from_ip(ip: Ipv4Addr) -> Option<Self> {
        Self::from_number(ip.to_bits().checked_sub(POOL)?)
    }

    pub fn number(self) -> u32 {
        self.0
    }

    pub fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(POOL + self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressName {
    pub service: ServiceName,
    /// `None` for the service itself.
    pub slot: Option<u32>,
}

impl fmt::Display for AddressName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slot {
            Some(slot) => write!(f, "{slot}.{}", self.service),
            None => write!(f, "{}", self.service),
        }
    }
}

impl FromStr for AddressName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (slot, service) = match text.split_once('.') {
            None => (None, text),
            Some((slot, service)) => (Some(slot), service),
        };
        let number = slot.map(|slot| slot.parse::<u32>().map_err(|_| format!("{slot:?} is no slot")));
        let name = Self {
            service: ServiceName::new(service).map_err(|error| error.to_string())?,
            slot: number.transpose()?,
        };
        // Other spellings of slot 0, such as "00.web", are invalid.
        if name.to_string() == text { Ok(name) } else { Err(format!("{text:?} is no slot of a service")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_number_and_a_number_an_address() {
        let seventh = PoolAddress::from_number(7).unwrap();
        assert_eq!(seventh.ip(), Ipv4Addr::new(198, 18, 0, 7));
        let last = PoolAddress::from_ip(Ipv4Addr::new(198, 19, 255, 254)).unwrap();
        assert_eq!(PoolAddress::from_number(last.number()), Some(last));
        for other in
            [[198, 17, 255, 255], [198, 18, 0, 1], [198, 19, 255, 255], [198, 20, 0, 7], [10, 0, 0, 1]]
        {
            assert_eq!(PoolAddress::from_ip(Ipv4Addr::from(other)), None, "{other:?}");
        }
        assert_eq!(PoolAddress::RESOLVER.ip(), Ipv4Addr::new(198, 18, 0, 1));
    }

    #[test]
    fn a_name_is_that_of_a_service_or_of_a_slot_in_its_one_spelling() {
        for name in ["web", "0.web", "17.shop-db", "7"] {
            assert_eq!(name.parse::<AddressName>().unwrap().to_string(), name);
        }
        for other in ["", "Web", "x.web", "00.web", "+0.web", "0.0.web", ".web", "0.", "#7"] {
            assert!(other.parse::<AddressName>().is_err(), "{other:?}");
        }
    }
}
