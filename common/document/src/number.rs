//! Numbers in documents.

/// Converts a float such as `3.0`; `None` for fractions and negative numbers. JSON has one type for both, and
/// some writers choose this form.
pub fn whole(n: f64) -> Option<u64> {
    // A float is exact for whole numbers up to here.
    (n.fract() == 0.0 && (0.0..9e15).contains(&n)).then_some(n as u64)
}
