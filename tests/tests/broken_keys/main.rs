//! A broken key harms only its own object: every key with every wrong value, and random writes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints how far it is"
)]

mod explain;
mod fuzz;
mod rounds;
mod walk;
mod writes;
mod wrong_values;
