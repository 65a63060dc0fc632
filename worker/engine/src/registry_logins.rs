//! What a runtime asks for the credentials that the cluster has stored.

use futures_util::future::BoxFuture;
use model::ids::RegistryHost;
use model::value::registry::RegistryLogin;

/// The credentials that `kubeleet registry login` has stored.
pub trait RegistryLogins: Send + Sync {
    /// Returns the current login for a registry; `None` if there is none.
    ///
    /// # Errors
    /// Why it cannot be read or decrypted, and what to do, without a part of the password.
    fn login<'a>(&'a self, host: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>>;
}

/// No logins: for runtimes and tests without a cluster.
#[derive(Debug, Clone, Copy)]
pub struct NoLogins;

impl RegistryLogins for NoLogins {
    fn login<'a>(&'a self, _host: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
