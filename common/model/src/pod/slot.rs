//! Slots: the places of a service's pods.

use std::fmt;
use std::str::FromStr;

/// A replica has a second slot while its pod is being replaced by one that starts first. The new pod moves to
/// the first slot as soon as that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub replica: u32,
    pub is_second: bool,
}

impl Slot {
    pub fn first(replica: u32) -> Self {
        Self { replica, is_second: false }
    }

    pub fn second(replica: u32) -> Self {
        Self { replica, is_second: true }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.replica, if self.is_second { "+" } else { "" })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no slot: a slot is the index of a replica, with `+` after it for the second place")]
pub struct NoSlot;

impl FromStr for Slot {
    type Err = NoSlot;

    /// Scripts find a slot by its text: nothing could free `07` or `+7`.
    fn from_str(text: &str) -> Result<Self, NoSlot> {
        let (number, is_second) = text.strip_suffix('+').map_or((text, false), |number| (number, true));
        let slot = Self { replica: number.parse().map_err(|_| NoSlot)?, is_second };
        if slot.to_string() == text { Ok(slot) } else { Err(NoSlot) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_as_it_is_written() {
        for slot in [Slot::first(0), Slot::second(0), Slot::first(u32::MAX), Slot::second(7)] {
            assert_eq!(slot.to_string().parse(), Ok(slot));
        }
        for text in ["", "+", "+7", "07", "7++", "-1", "7 ", "4294967296", "seven"] {
            assert_eq!(text.parse::<Slot>(), Err(NoSlot), "{text:?}");
        }
        let mut slots = [Slot::first(1), Slot::second(0), Slot::first(0)];
        slots.sort_unstable();
        assert_eq!(slots, [Slot::first(0), Slot::second(0), Slot::first(1)]);
    }
}
