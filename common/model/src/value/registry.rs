//! Image registries, and their credentials.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::ids::{InvalidName, RegistryHost};
use crate::value::secret_key::SecretKey;
use crate::value::{ReadError, ValueBytes};

const DOCKER_HUB: &str = "docker.io";
/// In the file of `docker login` and in credential helpers.
const DOCKER_HUB_SERVER: &str = "https://index.docker.io/v1/";

/// Tokens of cloud registries have some thousand bytes.
pub const MAX_PASSWORD_BYTES: usize = 16 * 1024;
const MAX_USER_BYTES: usize = 255;

impl RegistryHost {
    /// `https://Registry.example:5000/v2/` is `registry.example:5000`. Docker Hub has several names.
    pub fn of_address(address: &str) -> Result<Self, InvalidName> {
        let host = address.split_once("://").map_or(address, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or_default().to_ascii_lowercase();
        match host.as_str() {
            "index.docker.io" | "registry-1.docker.io" => Self::new(DOCKER_HUB),
            _ => Self::new(host),
        }
    }

    pub fn of_image(image: &str) -> Option<Self> {
        let host = match image.split_once('/') {
            Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
            Some(_) | None => DOCKER_HUB,
        };
        Self::of_address(host).ok()
    }

    /// Its name in the file of `docker login`.
    pub fn server(&self) -> &str {
        if self.as_str() == DOCKER_HUB { DOCKER_HUB_SERVER } else { self.as_str() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryLogin {
    pub user: String,
    pub password: ValueBytes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryInfo {
    pub host: RegistryHost,
    pub user: String,
    pub updated_at: RedisMillis,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginVerdict {
    /// Or the registry needs no login.
    Accepted,
    Denied(String),
    Unknown(String),
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLogin {
    host: RegistryHost,
    user: String,
    password: Vec<u8>,
}

impl StoredLogin {
    pub fn new(host: RegistryHost, user: String, password: Vec<u8>) -> Self {
        Self { host, user, password }
    }

    pub fn seal(host: RegistryHost, login: &RegistryLogin, key: &SecretKey) -> Result<Self, String> {
        let password =
            key.encrypt(&associated_data(&host, &login.user), login.password.expose())?.into_bytes();
        Ok(Self { host, user: login.user.clone(), password })
    }

    pub fn open(&self, key: Option<&SecretKey>) -> Result<RegistryLogin, ReadError> {
        let text = String::from_utf8_lossy(&self.password);
        let password =
            key.ok_or(ReadError::NoKey)?.decrypt(&associated_data(&self.host, &self.user), &text)?;
        Ok(RegistryLogin { user: self.user.clone(), password: ValueBytes::new(password) })
    }

    pub fn host(&self) -> &RegistryHost {
        &self.host
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn password(&self) -> &[u8] {
        &self.password
    }
}

impl fmt::Debug for StoredLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "login of {} at {} ({} bytes)", self.user, self.host, self.password.len())
    }
}

/// A client with write access to Redis cannot have the password sent elsewhere.
fn associated_data(host: &RegistryHost, user: &str) -> String {
    format!("kubeleet registry {host} user {user}")
}

/// The error contains no part of the password.
pub fn check_login(user: &str, password: &ValueBytes) -> Result<(), String> {
    if user.is_empty() || user.len() > MAX_USER_BYTES || user.contains(|c: char| c == ':' || c.is_control()) {
        return Err(format!(
            "the user must have 1 to {MAX_USER_BYTES} characters, no ':' and no control characters"
        ));
    }
    let bytes = password.expose();
    match (bytes.len(), std::str::from_utf8(bytes)) {
        (0, _) => Err("the password is empty".to_owned()),
        (length, _) if length > MAX_PASSWORD_BYTES => {
            Err(format!("the password has {length} bytes, and at most {MAX_PASSWORD_BYTES} are allowed"))
        }
        (_, Err(_)) => Err("the password is no text".to_owned()),
        (_, Ok(text)) if text.chars().any(char::is_control) => {
            Err("the password has a line break or another control character".to_owned())
        }
        (_, Ok(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::secret_key::DecryptError;

    #[test]
    fn the_registry_of_an_image_is_the_host_in_its_name_or_docker_hub() {
        for (image, host) in [
            ("nginx", "docker.io"),
            ("library/nginx:1", "docker.io"),
            ("docker.io/library/nginx", "docker.io"),
            ("ghcr.io/team/web@sha256:0", "ghcr.io"),
            ("Registry.Example:5000/web:2", "registry.example:5000"),
            ("localhost/web", "localhost"),
            ("127.0.0.1:5000/web", "127.0.0.1:5000"),
        ] {
            assert_eq!(RegistryHost::of_image(image).unwrap().as_str(), host, "{image}");
        }
    }

    #[test]
    fn an_address_is_read_as_docker_login_writes_it() {
        for (address, host) in [
            ("https://index.docker.io/v1/", "docker.io"),
            ("registry-1.docker.io", "docker.io"),
            ("https://Ghcr.io", "ghcr.io"),
            ("http://localhost:5000/v2/", "localhost:5000"),
            ("[::1]:5000", "[::1]:5000"),
        ] {
            assert_eq!(RegistryHost::of_address(address).unwrap().as_str(), host, "{address}");
        }
        for bad in ["", "registry", "a b.c", "https://", "host.example:port", "a..b", ".a", "a.b:", "x_y.z"] {
            assert!(RegistryHost::of_address(bad).is_err(), "{bad}");
        }
        assert_eq!(RegistryHost::of_image("nginx").unwrap().server(), DOCKER_HUB_SERVER);
    }

    #[test]
    fn a_password_is_bound_to_its_registry_and_user_and_never_shown() {
        let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let host = |text: &str| RegistryHost::new(text).unwrap();
        let login = RegistryLogin { user: "bob".into(), password: ValueBytes::new(b"hunter2".to_vec()) };
        let stored = StoredLogin::seal(host("a.example"), &login, &key).unwrap();
        assert_eq!(stored.open(Some(&key)).unwrap(), login);
        assert_eq!(stored.open(None), Err(ReadError::NoKey));
        for (other, user) in [("b.example", "bob"), ("a.example", "eve")] {
            let moved = StoredLogin { host: host(other), user: user.to_owned(), ..stored.clone() };
            assert_eq!(moved.open(Some(&key)), Err(ReadError::Decrypt(DecryptError::Changed)));
        }
        assert!(!format!("{login:?} {stored:?}").contains("hunter2"));
    }

    #[test]
    fn a_login_that_no_registry_can_accept_is_refused_without_its_password() {
        let check = |user: &str, password: &str| check_login(user, &ValueBytes::new(password.into()));
        assert_eq!(check("bob", "hunter2"), Ok(()));
        let long = "hunter2".repeat(3000);
        for (user, password) in
            [("", "hunter2"), ("a:b", "hunter2"), ("bob", ""), ("bob", "hunter2\n"), ("bob", &long)]
        {
            let error = check(user, password).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
