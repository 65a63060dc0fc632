//! Images: which are here, pulling them with the credentials of their registries, and what they say of health.

mod credential_helper;
pub(crate) mod credentials;
pub(crate) mod image;
mod image_check;
pub(crate) mod import;
mod login;
pub(crate) mod login_check;
