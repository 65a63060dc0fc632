//! A runtime's access to the cluster's registry credentials.

use futures_util::future::BoxFuture;
use model::ids::RegistryHost;
use model::value::registry::RegistryLogin;

pub trait RegistryLogins: Send + Sync {
    /// # Errors
    /// For people, without any part of the password.
    fn login<'a>(&'a self, host: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>>;
}

#[derive(Debug, Clone, Copy)]
pub struct NoLogins;

impl RegistryLogins for NoLogins {
    fn login<'a>(&'a self, _host: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
