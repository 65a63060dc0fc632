//! What a service lacks, and what it has too much of. Deciding is pure: [`plan`]. Carrying out is [`apply`].

pub(crate) mod apply;
#[cfg(test)]
mod model;
pub(crate) mod plan;
pub(crate) mod suspicion;
