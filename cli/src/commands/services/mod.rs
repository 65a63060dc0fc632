//! Commands for services.

pub(crate) mod edit;
pub(crate) mod restart;
pub(crate) mod rollout;
pub(crate) mod scale;
pub(crate) mod service;
pub(crate) mod set;
