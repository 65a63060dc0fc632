//! Timing of failure detection, as configured and as stored.

use std::fmt::Display;
use std::time::Duration;

/// `heartbeat < fence_after < dead_after`: the settings are checked for it (`check_timing` in `daemon`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Timing {
    pub heartbeat: Duration,
    /// Time since the last successful heartbeat; then a worker stops its pods with `on_disconnect: stop`.
    pub fence_after: Duration,
    /// Silence after which a node is dead.
    pub dead_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            fence_after: Duration::from_secs(15),
            dead_after: Duration::from_secs(20),
        }
    }
}

impl Timing {
    /// Caps what nodes register; `_prelude.lua` has the same number.
    pub const LONGEST_DEAD_AFTER: Duration = Duration::from_secs(3600);

    /// Milliseconds, with the owner: another session's times do not count.
    pub fn to_stored(&self, owner: impl Display) -> String {
        let [heartbeat, fence, dead] =
            [self.heartbeat, self.fence_after, self.dead_after].map(|time| time.as_millis());
        format!("{heartbeat} {fence} {dead} {owner}")
    }

    /// Caps the silence at [`Self::LONGEST_DEAD_AFTER`].
    pub fn from_stored(text: &str, owner: impl Display) -> Option<Self> {
        let mut words = text.split(' ');
        let mut time = || {
            let word = words.next().filter(|word| !word.is_empty())?;
            let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
            let millis = is_number.then(|| word.parse().unwrap_or(u64::MAX))?;
            Some(Duration::from_millis(millis).min(Self::LONGEST_DEAD_AFTER))
        };
        let timing = Self { heartbeat: time()?, fence_after: time()?, dead_after: time()? };
        (words.next() == Some(&owner.to_string()) && words.next().is_none()).then_some(timing)
    }

    /// Never before the node has stopped pods that must not run twice.
    pub fn dead_after_of(&self, registered: Option<&Self>) -> Duration {
        registered.map_or(self.dead_after, |times| self.dead_after.max(times.dead_after))
    }

    /// Workers with Sentinels must first find the new master; a single Redis needs no longer than any
    /// heartbeat.
    pub fn master_change_pause(&self, has_sentinels: bool) -> Duration {
        let longest = (self.dead_after * 3 / 2).min(Duration::from_secs(30));
        if has_sentinels { longest } else { longest.min(self.dead_after) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn stored_times_are_those_of_their_owner_and_bounded() {
        let times = Timing::default();
        assert_eq!(times.to_stored("a.b"), "5000 15000 20000 a.b");
        assert_eq!(Timing::from_stored("5000 15000 20000 a.b", "a.b"), Some(times));
        for wrong in [
            "",
            "5000",
            "5000 15000 20000",
            "5000 15000 20000 other",
            "5000 15000 20000 a.b more",
            "5000 15000 -1 a.b",
            "5000 15000 2e9 a.b",
            "5000  20000 a.b",
            "soon later never a.b",
        ] {
            assert_eq!(Timing::from_stored(wrong, "a.b"), None, "{wrong:?}");
        }
        for huge in ["3600001", "18446744073709551616", "999999999999999999999999999999"] {
            let read = Timing::from_stored(&format!("5000 15000 {huge} a.b"), "a.b").unwrap();
            assert_eq!(read.dead_after, Timing::LONGEST_DEAD_AFTER, "{huge}");
        }
    }

    #[test]
    fn no_node_dies_before_its_own_time_nor_before_the_schedulers() {
        let own = Timing::default();
        let with = |seconds| Timing { dead_after: Duration::from_secs(seconds), ..own };
        for (registered, expected) in [(None, 20), (Some(6), 20), (Some(20), 20), (Some(90), 90)] {
            let registered = registered.map(with);
            assert_eq!(own.dead_after_of(registered.as_ref()), Duration::from_secs(expected));
        }
    }
}
