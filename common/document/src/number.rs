//! Numbers as documents write them.

/// Returns the whole number that was written as `3.0`; `None` if it has a fraction or is negative. JSON has
/// one type for both, and some writers choose that form.
pub fn whole(n: f64) -> Option<u64> {
    // Up to here a float holds each whole number.
    (n.fract() == 0.0 && (0.0..9e15).contains(&n)).then_some(n as u64)
}
