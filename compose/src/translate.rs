//! Translates a Compose service to one of kubeleet: a document whose values keep the places of the user's
//! file. Values are not checked here.

pub(crate) mod aliases;
mod draft;
mod environment;
pub(crate) mod files_beside;
mod local_mounts;
mod named_resources;
pub(crate) mod networks;
pub(crate) mod ports;
mod service_fields;
mod volumes;

pub(crate) use draft::{ServiceDraft, Translate};
pub(crate) use environment::{env_file, environment};
pub(crate) use named_resources::{device_requests, generic_resources, resources};
pub(crate) use ports::ports;
pub(crate) use service_fields::*;
pub(crate) use volumes::{common_volumes, note_uses, share_volumes, volumes};
