//! A small pseudo-random generator: the same seed yields the same numbers everywhere.

/// SplitMix64, see <https://prng.di.unimi.it/splitmix64.c>.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x6b75_6265_6c65_6574)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.next() % (last - first + 1)
    }

    pub(crate) fn per_mille(&mut self, times: u64) -> bool {
        self.next() % 1000 < times
    }

    /// Draws nothing if there are no elements.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.below(from.len())) }
    }

    pub(crate) fn shuffle<T>(&mut self, elements: &mut [T]) {
        for end in (1..elements.len()).rev() {
            elements.swap(end, self.below(end + 1));
        }
    }
}
