//! Users and passwords for image registries. Passwords arrive here encrypted.

use redis::{Value, cmd};

use crate::loaded::{Loaded, fields};
use crate::reply::{corrupt, parse, read, sorted_names, unexpected, verdict, word};
use crate::scripts::{registry_delete, registry_put};
use crate::service::confirm::CONFIRM_TIMEOUT;
use crate::{Store, StoreError, keys};
use model::ids::RegistryHost;
use model::value::registry::{RegistryInfo, StoredLogin};
use redis_link::Durability;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutLoginOutcome {
    Stored,
    /// Refused: the maximum number of logins exists.
    Full {
        count: u64,
    },
}

impl Store {
    /// # Errors
    /// An unconfirmed write is not an error: see the durability.
    pub async fn put_login(
        &self,
        login: &StoredLogin,
        max_count: u64,
    ) -> Result<(PutLoginOutcome, Durability), StoreError> {
        let what = "storing the login for a registry";
        let put = registry_put::Head {
            registry_key: keys::registry(login.host()),
            registries: keys::REGISTRIES,
            host: login.host(),
            user: login.user(),
            password: login.password(),
            max_count,
        };
        let (reply, _, durability) = self.link.durable_scripts(&put.call(), None, CONFIRM_TIMEOUT).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", _) => PutLoginOutcome::Stored,
            ("FULL", Some(count)) => PutLoginOutcome::Full { count: read(what, count)? },
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, durability))
    }

    pub async fn delete_login(&self, host: &RegistryHost) -> Result<(bool, Durability), StoreError> {
        let delete =
            registry_delete::Head { registry_key: keys::registry(host), registries: keys::REGISTRIES, host };
        let (reply, _, durability) = self.link.durable_scripts(&delete.call(), None, CONFIRM_TIMEOUT).await?;
        Ok((word("deleting the login for a registry", reply)? == "OK", durability))
    }

    pub async fn registries(&self) -> Result<Vec<RegistryHost>, StoreError> {
        Ok(sorted_names(self.members_or_records(keys::REGISTRIES, "registry:").await?))
    }

    /// Leaves the passwords out.
    pub async fn registry_infos(&self, hosts: &[RegistryHost]) -> Result<Loaded<RegistryInfo>, StoreError> {
        let get = |host: &RegistryHost| fields(keys::registry(host), &["user", "updated_at"]);
        self.load(hosts, get, read_info).await
    }

    /// Leaves the password out.
    pub async fn registry_info(&self, host: &RegistryHost) -> Result<Option<RegistryInfo>, StoreError> {
        self.registry_infos(std::slice::from_ref(host)).await?.only()
    }

    pub async fn login(&self, host: &RegistryHost) -> Result<Option<StoredLogin>, StoreError> {
        let mut get = cmd("HMGET");
        get.arg(keys::registry(host)).arg("user").arg("password");
        let (user, password): (Option<Vec<u8>>, Option<Vec<u8>>) = self.link.query(&get).await?;
        let Some((user, password)) = user.zip(password) else { return Ok(None) };
        Ok(Some(StoredLogin::new(host.clone(), user_name(host, user)?, password)))
    }
}

fn read_info(host: &RegistryHost, reply: Value) -> Result<Option<RegistryInfo>, StoreError> {
    let what = format!("the login for {host}");
    let (user, updated_at): (Option<Vec<u8>>, Option<Vec<u8>>) = read(&what, reply)?;
    let Some(user) = user else { return Ok(None) };
    let updated_at = match updated_at {
        Some(text) => parse(&text).ok_or_else(|| corrupt(&what, "updated_at is not a number"))?,
        None => 0,
    };
    Ok(Some(RegistryInfo { host: host.clone(), user: user_name(host, user)?, updated_at }))
}

fn user_name(host: &RegistryHost, user: Vec<u8>) -> Result<String, StoreError> {
    String::from_utf8(user).map_err(|_| corrupt(&format!("the login for {host}"), "user is no text"))
}
