//! Durations and payloads in messages.

use std::time::Duration;

use sha2::{Digest, Sha256};

pub(crate) fn seconds(wait: Duration) -> String {
    let seconds = wait.as_secs_f64();
    if seconds >= 1.0 { format!("{seconds:.0} s") } else { format!("{seconds:.1} s") }
}

/// For messages that must not contain the bytes.
pub(crate) fn short_sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
