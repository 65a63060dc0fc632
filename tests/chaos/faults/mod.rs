//! The faults, one file for each part that fails. Each begins with a healthy stack and leaves one that can
//! recover. `steps` has no faults but their common parts, and `background_load` has what clients do
//! meanwhile.

mod background_load;
pub mod data;
pub mod disk;
pub mod engine;
pub mod master;
pub mod processes;
pub mod sentinels;
pub mod steps;
