//! Images: lookup, pulls with registry credentials, and health checks.

mod credential_helper;
pub(crate) mod credentials;
pub(crate) mod image;
mod image_check;
pub(crate) mod import;
mod login;
pub(crate) mod login_check;
