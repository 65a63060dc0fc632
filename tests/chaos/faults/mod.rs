//! The faults, a file for each family. Each begins with a stack that is well and leaves one that can become well again.

pub mod disk;
pub mod engine;
pub mod master;
pub mod processes;
pub mod sentinels;
pub mod steps;
mod stir;
