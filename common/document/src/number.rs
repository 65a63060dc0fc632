//! Numbers in documents.

/// Some writers choose `3.0`.
pub fn whole(n: f64) -> Option<u64> {
    // Floats are exact up to here.
    (n.fract() == 0.0 && (0.0..9e15).contains(&n)).then_some(n as u64)
}
