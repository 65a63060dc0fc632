//! The network of pods: ports, addresses, names, ingress rules and their certificates.

pub mod address;
pub mod address_range;
pub mod certificate;
pub mod endpoint;
pub mod handover;
pub mod ingress;
mod published_port;

pub use published_port::{ContainerNetwork, PublishedPort, ports_from_json, ports_to_json, published_field};
