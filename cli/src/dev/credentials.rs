//! Password and token of a `dev` cluster whose pods are plain processes: otherwise any user of the machine
//! could run commands as the user of `dev`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use daemon::config::{Config, RuntimeKind};
use daemon::state_file::{IfFound, StateFile};
use model::value::secret::Secret;
use model::value::secret_key::SecretKey;

use crate::dev_token::SavedToken;

#[derive(Default)]
pub(super) struct DevCredentials {
    redis: Option<(Secret, PathBuf)>,
    /// With the file of the header that sends the token.
    api: Option<(Secret, PathBuf)>,
}

impl DevCredentials {
    /// Also writes a token set by the user, so that the printed commands work.
    pub(super) fn create(config: &mut Config, home: &Path) -> anyhow::Result<Self> {
        let write = |name: &str, text: &str| {
            let path = home.join(name);
            write_private(&path, text).map(|()| path)
        };
        let mut credentials = Self::default();
        if config.runtime == RuntimeKind::Process {
            let password = random_secret()?;
            credentials.redis = Some((password.clone(), write("redis-password", password.expose())?));
            if config.token.is_none() {
                config.token = Some(random_secret()?);
            }
        }
        if let Some(token) = config.token.clone() {
            let header = write("api-header", &format!("Authorization: Bearer {}\n", token.expose()))?;
            credentials.api = Some((token, header));
        }
        Ok(credentials)
    }

    pub(super) fn password(&self) -> Option<Secret> {
        self.redis.as_ref().map(|(password, _)| password.clone())
    }

    pub(super) fn save_token(&self, port: u16) -> anyhow::Result<Option<SavedToken>> {
        let Some((token, _)) = &self.api else { return Ok(None) };
        SavedToken::save(port, token).map(Some).context("cannot save the API's token for the user commands")
    }

    /// With a trailing space; empty if none is needed.
    pub(super) fn curl_option(&self) -> String {
        self.api.as_ref().map_or_else(String::new, |(_, file)| format!("-H @{} ", file.display()))
    }

    /// For redis-cli, with a trailing space; empty if none is needed.
    pub(super) fn redis_cli_prefix(&self) -> String {
        let Some((_, file)) = &self.redis else { return String::new() };
        format!("REDISCLI_AUTH=$(cat {}) ", file.display())
    }
}

/// Unless the user has set one: the previous `dev`'s key, or a new one in a file readable only by this user.
pub(super) fn set_secret_key(config: &mut Config, home: &Path) -> anyhow::Result<()> {
    if config.secret_key.is_some() {
        return Ok(());
    }
    let path = home.join("secret-key");
    let read = std::fs::read_to_string(&path).if_found();
    let text = match read.with_context(|| format!("cannot read {}", path.display()))? {
        Some(text) => text,
        None => {
            let text = SecretKey::generate().map_err(anyhow::Error::msg)?;
            write_private(&path, &text)?;
            text
        }
    };
    let key = SecretKey::parse(&text).map_err(anyhow::Error::msg);
    config.secret_key = Some(key.with_context(|| format!("cannot use {}", path.display()))?);
    Ok(())
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = StateFile::new(path).private().write(text.as_bytes());
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn random_secret() -> anyhow::Result<Secret> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .context("the system gives no random bytes")?;
    }
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}")?;
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::os::unix::fs::MetadataExt;

    use daemon::config::{Serves, Sources};

    use super::*;

    fn config(runtime: RuntimeKind) -> Config {
        let sources = Sources {
            flags: [("KUBELEET_NODE".to_owned(), "host".to_owned())].into(),
            environment: &|_| None,
            file: std::collections::BTreeMap::new(),
            read_file: &|path| Err(format!("{path} is not for tests")),
            host_name: "host".to_owned(),
        };
        Config { runtime, ..sources.config(Serves::Nothing).unwrap() }
    }

    #[test]
    fn plain_processes_have_secrets_that_only_their_user_can_read() {
        let home = tempfile::tempdir().unwrap();
        let mut config = config(RuntimeKind::Process);
        let credentials = DevCredentials::create(&mut config, home.path()).unwrap();
        let token = config.token.unwrap();
        let header = home.path().join("api-header");
        assert_eq!(
            std::fs::read_to_string(&header).unwrap(),
            format!("Authorization: Bearer {}\n", token.expose())
        );
        let (password, file) = credentials.redis.as_ref().unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), password.expose());
        assert!(password.expose().len() == 32 && password.expose() != token.expose());
        for path in [&header, file] {
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{path:?}");
        }
        assert_eq!(credentials.curl_option(), format!("-H @{} ", header.display()));
        assert_eq!(credentials.redis_cli_prefix(), format!("REDISCLI_AUTH=$(cat {}) ", file.display()));
    }

    #[test]
    fn a_token_that_the_user_has_set_stays() {
        let home = tempfile::tempdir().unwrap();
        let mut config = Config { token: Some(Secret::new("mine")), ..config(RuntimeKind::Process) };
        let credentials = DevCredentials::create(&mut config, home.path()).unwrap();
        assert_eq!(config.token.unwrap().expose(), "mine");
        assert!(credentials.redis.is_some());
        let header = home.path().join("api-header");
        assert_eq!(std::fs::read_to_string(&header).unwrap(), "Authorization: Bearer mine\n");
        assert_eq!(credentials.curl_option(), format!("-H @{} ", header.display()));
    }

    #[test]
    fn the_key_for_secrets_is_the_same_for_the_next_dev() {
        let home = tempfile::tempdir().unwrap();
        let mut ids = Vec::new();
        for _ in 0..2 {
            let mut config = config(RuntimeKind::Docker);
            set_secret_key(&mut config, home.path()).unwrap();
            ids.push(config.secret_key.unwrap().id().to_owned());
        }
        assert_eq!(ids[0], ids[1]);
        let mode = home.path().join("secret-key").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn on_an_engine_no_secret_is_needed() {
        let home = tempfile::tempdir().unwrap();
        let mut config = config(RuntimeKind::Docker);
        let credentials = DevCredentials::create(&mut config, home.path()).unwrap();
        assert!(config.token.is_none() && credentials.redis.is_none());
        assert_eq!(credentials.curl_option() + &credentials.redis_cli_prefix(), "");
    }
}
