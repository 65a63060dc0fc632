//! Powers in whole numbers: those of floating point differ between machines.

/// 1 as a power.
pub(super) const ONE: u64 = 1 << 32;
/// 1 as an exponent.
const WHOLE: u64 = 1 << BITS;
const BITS: usize = 24;

/// Powers of one base with exponents from 0 to 1.
pub(super) struct Powers {
    base: u64,
    /// The square root of the base, the root of that, and so on.
    roots: [u64; BITS],
}

impl Powers {
    /// Of the root of this fraction.
    pub(super) const fn of_root(square: u64, divisor: u64) -> Self {
        let base = (((square as u128) << 64) / divisor as u128).isqrt() as u64;
        let mut roots = [base; BITS];
        let mut bit = 0;
        while bit < BITS {
            let previous = if bit == 0 { base } else { roots[bit - 1] };
            roots[bit] = ((previous as u128) << 32).isqrt() as u64;
            bit += 1;
        }
        Self { base, roots }
    }

    /// The base to the power of a share, as a multiple of 2^-32; a share of nothing or more than the whole is
    /// the whole.
    pub(super) fn at(&self, part: u64, whole: u64) -> u64 {
        if part >= whole {
            return self.base;
        }
        let exponent = (u128::from(part) * u128::from(WHOLE) / u128::from(whole)) as u64;
        let set = self.roots.iter().enumerate().filter(|(bit, _)| exponent & (WHOLE >> (bit + 1)) != 0);
        set.fold(ONE, |power, (_, root)| ((u128::from(power) * u128::from(*root)) >> 32) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_floating_point() {
        const TEN: Powers = Powers::of_root(100, 1);
        const THREE_HALVES: Powers = Powers::of_root(9, 4);
        for (powers, base) in [(TEN, 10.0f64), (THREE_HALVES, 1.5)] {
            for (part, whole) in
                [(0, 1), (1, 2), (1, 3), (1, 1), (7, 2), (0, 0), (1, 1_000_000), (999, 1_000)]
            {
                let exponent = if part >= whole { 1.0 } else { part as f64 / whole as f64 };
                let power = powers.at(part, whole) as f64 / ONE as f64;
                assert!((power - base.powf(exponent)).abs() < 1e-5, "{base} ^ ({part} / {whole}): {power}");
            }
        }
    }

    #[test]
    fn powers_rise_with_the_exponent() {
        const TEN: Powers = Powers::of_root(100, 1);
        assert!((0..=10_000).map(|part| TEN.at(part, 10_000)).is_sorted());
    }
}
