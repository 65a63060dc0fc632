//! What every request and answer has: parameters, bodies, access control, problems, and the layers around all
//! routes.

pub(crate) mod auth;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod middleware;
pub(crate) mod params;
pub(crate) mod patch;
pub(crate) mod problem;
