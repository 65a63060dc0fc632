//! Images: which are here, pulls with the credentials of registries, and the health checks that images
//! describe.

mod credential_helper;
pub(crate) mod credentials;
pub(crate) mod image;
mod image_check;
pub(crate) mod import;
mod login;
pub(crate) mod login_check;
