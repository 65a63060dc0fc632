//! Replaces the C library's monotonic clock and randomness on threads that called [`make_deterministic`].
//!
//! This covers `Instant`, tokio's timers and its `select!`, the order of a `HashMap`, UUIDs and jitter.

#![allow(unsafe_code, reason = "these functions replace the C library's and have its signatures")]

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

thread_local! {
    static CLOCK: Cell<Option<Duration>> = const { Cell::new(None) };
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

pub(crate) fn make_deterministic(seed: u64) {
    SEED.set(Some(seed));
    CLOCK.set(Some(Duration::from_secs(1000)));
}

/// It must never go back.
pub(crate) fn set_clock(now: Duration) {
    CLOCK.set(Some(now));
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

const CLOCK_MONOTONIC: c_int = 1;

/// Replaces the function of the C library.
///
/// # Safety
///
/// As in C: `out` points to a writable `struct timespec`.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: c_int, out: *mut Timespec) -> c_int {
    let now = match (clock, CLOCK.get()) {
        (CLOCK_MONOTONIC, Some(now)) => {
            Timespec { seconds: now.as_secs() as i64, nanos: now.subsec_nanos().into() }
        }
        _ => {
            let id = match clock {
                0 => rustix::time::ClockId::Realtime,
                2 => rustix::time::ClockId::ProcessCPUTime,
                3 => rustix::time::ClockId::ThreadCPUTime,
                5 => rustix::time::ClockId::RealtimeCoarse,
                6 => rustix::time::ClockId::MonotonicCoarse,
                7 => rustix::time::ClockId::Boottime,
                _ => rustix::time::ClockId::Monotonic,
            };
            let now = rustix::time::clock_gettime(id);
            Timespec { seconds: now.tv_sec, nanos: now.tv_nsec }
        }
    };
    // SAFETY: the caller guarantees it.
    unsafe { out.write(now) };
    0
}

/// Replaces the function of the C library.
///
/// # Safety
///
/// As in C: `out` points to `length` writable bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(out: *mut c_void, length: usize, _flags: c_uint) -> isize {
    // SAFETY: the caller guarantees it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), length) };
    match SEED.get() {
        Some(mut seed) => {
            for chunk in bytes.chunks_mut(8) {
                seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = seed;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
            }
            SEED.set(Some(seed));
            length as isize
        }
        None => match rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => count as isize,
            Err(_) => -1,
        },
    }
}
