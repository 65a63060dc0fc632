//! The users of the cluster: clients, requests to pods, and pods that resolve names.

pub(crate) mod addresses;
pub(crate) mod clients;
pub(crate) mod expected_state;
pub(crate) mod images;
pub(crate) mod proxies;
