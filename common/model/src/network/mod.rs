//! The network of pods. The fields and checks of `ingress` are here and not in `spec/`; `handover` is the
//! protocol between worker and proxy.

pub mod address;
pub mod address_range;
pub mod certificate;
pub mod endpoint;
pub mod handover;
pub mod ingress;
mod published_port;

pub use published_port::{ContainerNetwork, PublishedPort, ports_from_json, ports_to_json, published_field};
