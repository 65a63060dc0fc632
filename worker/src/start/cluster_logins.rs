//! Decrypts the registry credentials that `kubeleet registry login` stored in Redis.

use engine::RegistryLogins;
use futures_util::future::BoxFuture;
use model::ids::{NodeName, RegistryHost};
use model::value::ReadError;
use model::value::registry::RegistryLogin;
use model::value::secret_key::SecretKey;
use store::Store;

/// A changed password needs no restart.
pub(crate) struct ClusterLogins {
    pub(crate) store: Store,
    pub(crate) key: Option<SecretKey>,
    pub(crate) node: NodeName,
}

impl RegistryLogins for ClusterLogins {
    fn login<'a>(&'a self, host: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>> {
        Box::pin(self.read(host))
    }
}

impl ClusterLogins {
    async fn read(&self, host: &RegistryHost) -> Result<Option<RegistryLogin>, String> {
        let stored = self.store.login(host).await;
        let stored = stored.map_err(|error| {
            format!("the credentials of `kubeleet registry login {host}` cannot be read: {error}")
        })?;
        let Some(stored) = stored else { return Ok(None) };
        stored.open(self.key.as_ref()).map(Some).map_err(|error| match error {
            ReadError::NoKey => format!(
                "the worker of {} has no key for the credentials of `kubeleet registry login {host}`: set its \
                 KUBELEET_SECRET_KEY_FILE to a file with the cluster's key",
                self.node
            ),
            ReadError::Decrypt(error) => format!(
                "the credentials of `kubeleet registry login {host}` cannot be decrypted on {}: {error}; give all \
                 APIs and workers the same key, or log in again",
                self.node
            ),
        })
    }
}
