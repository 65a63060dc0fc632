//! The faults, one file for each part that fails: processes, the master, Sentinels, engines, disks, data.
//! Each fault begins with a healthy stack and leaves one that can recover. No faults are in `steps`, their
//! common parts, and in `background_load`, what clients do meanwhile.

mod background_load;
pub mod data;
pub mod disk;
pub mod engine;
pub mod master;
pub mod processes;
pub mod sentinels;
pub mod steps;
