//! When and how far pods that run are moved without being asked. Pure.
//!
//! Tests: beside the code, tests::rebalancing

mod budget;
mod joined;
mod pressure;

pub(crate) use budget::Budget;
pub(crate) use joined::JoinTrigger;
pub(crate) use pressure::{PressureWatch, sufferers};
