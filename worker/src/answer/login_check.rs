//! Checks registry logins for the API.

use model::value::registry::{LoginVerdict, StoredLogin};

use crate::worker::Worker;

pub(super) async fn verdict(worker: &Worker, stored: &StoredLogin) -> LoginVerdict {
    match stored.open(worker.config.secret_key.as_ref()) {
        Ok(login) => worker.runtime.check_login(stored.host(), &login).await,
        Err(error) => LoginVerdict::Unknown(error.to_string()),
    }
}
