//! The faults, one file for each family. Each fault begins with a healthy stack and leaves one that can
//! recover.

mod background_load;
pub mod data;
pub mod disk;
pub mod engine;
pub mod master;
pub mod processes;
pub mod sentinels;
pub mod steps;
