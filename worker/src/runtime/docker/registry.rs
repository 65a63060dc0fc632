//! Credentials of private registries, from the file that `docker login` writes.
//!
//! The file is read for each pull, so new credentials need no restart. Credentials go to the engine and nowhere
//! else: no log and no message has them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

/// The name of Docker Hub, whose entry has other names as well.
const DOCKER_HUB: &str = "docker.io";

/// Where credentials of registries are.
#[derive(Debug, Clone, Default)]
pub(super) struct RegistryConfig {
    /// `None` if there is no such file: everything is pulled without credentials.
    pub(super) path: Option<PathBuf>,
}

/// What the file says about one registry.
pub(super) enum Credentials {
    /// Nothing: the registry is asked without credentials.
    None,
    /// These.
    Known(Box<DockerCredentials>),
    /// They are with this credential helper, a program that is not run: the registry is asked without.
    Helper(String),
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    auths: HashMap<String, Entry>,
    creds_store: String,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl RegistryConfig {
    /// Returns the credentials for the registry of an image.
    ///
    /// # Errors
    /// If the file cannot be read or understood, as a sentence without its content.
    pub(super) fn credentials(&self, image: &str) -> Result<Credentials, String> {
        let Some(path) = &self.path else { return Ok(Credentials::None) };
        let text = std::fs::read_to_string(path).map_err(|error| cannot_read(path, &error.to_string()))?;
        // An error of the parser could quote a password.
        let file: ConfigFile = serde_json::from_str(&text)
            .map_err(|error| cannot_read(path, &format!("invalid JSON in line {}", error.line())))?;
        let registry = registry_of(image);
        let mut entries = file.auths.iter().filter(|(key, _)| registry_name(key) == registry);
        if let Some((key, entry)) = entries.find(|(_, entry)| entry.has_credentials()) {
            let known = entry.credentials(key).ok_or_else(|| {
                cannot_read(path, &format!("`auth` of {registry} is not base64 of `user:password`"))
            })?;
            return Ok(Credentials::Known(Box::new(known)));
        }
        let helper = file.cred_helpers.iter().find(|(key, _)| registry_name(key) == registry);
        let helper = helper.map_or(file.creds_store, |(_, helper)| helper.clone());
        Ok(if helper.is_empty() { Credentials::None } else { Credentials::Helper(helper) })
    }
}

impl Credentials {
    /// Returns a sentence to be added to the error of a pull, if it may explain it.
    pub(super) fn advice(&self, image: &str) -> Option<String> {
        let Credentials::Helper(helper) = self else { return None };
        let registry = registry_of(image);
        Some(format!(
            "the credentials of {registry} are with the credential helper {helper:?}, which kubeleet does not \
             run: put them under `auths` into a file and name it in KUBELEET_REGISTRY_CONFIG"
        ))
    }

    pub(super) fn into_known(self) -> Option<DockerCredentials> {
        match self {
            Credentials::Known(credentials) => Some(*credentials),
            Credentials::None | Credentials::Helper(_) => None,
        }
    }
}

impl Entry {
    fn has_credentials(&self) -> bool {
        !(self.auth.is_empty() && self.username.is_empty() && self.identitytoken.is_empty())
    }

    /// Returns `None` if `auth` is not valid.
    fn credentials(&self, server: &str) -> Option<DockerCredentials> {
        let (mut username, mut password) = (self.username.clone(), self.password.clone());
        if !self.auth.is_empty() {
            let decoded = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
            let (user, secret) = decoded.split_once(':')?;
            (username, password) = (user.to_owned(), secret.trim_end_matches('\0').to_owned());
        }
        let given = |text: String| (!text.is_empty()).then_some(text);
        Some(DockerCredentials {
            username: given(username),
            password: given(password),
            identitytoken: given(self.identitytoken.clone()),
            serveraddress: Some(server.to_owned()),
            ..DockerCredentials::default()
        })
    }
}

fn cannot_read(path: &Path, why: &str) -> String {
    format!(
        "the credentials of registries in {} cannot be read: {why}; correct the file, or name another one in \
         KUBELEET_REGISTRY_CONFIG",
        path.display()
    )
}

/// Returns the registry that an engine pulls an image from.
fn registry_of(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => registry_name(host),
        Some(_) | None => DOCKER_HUB,
    }
}

/// Returns the host and port of a key: `docker login` writes `https://index.docker.io/v1/` for Docker Hub.
fn registry_name(key: &str) -> &str {
    let host = key.split_once("://").map_or(key, |(_, rest)| rest).split('/').next().unwrap_or_default();
    match host {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        host => host,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn with(text: &str) -> (tempfile::TempDir, RegistryConfig) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        (directory, RegistryConfig { path: Some(path) })
    }

    #[test]
    fn credentials_are_those_of_the_registry_of_the_image() {
        let auth = |pair: &str| STANDARD.encode(pair);
        let (_directory, config) = with(&format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{}"}},"registry:5000":{{"auth":"{}"}},
               "https://ghcr.io":{{"username":"me","password":"pw"}},"empty.example":{{}}}}}}"#,
            auth("hub:one"),
            auth("user:a:b")
        ));
        let of = |image: &str| {
            let known = config.credentials(image).unwrap().into_known();
            known.map(|known| (known.username.unwrap(), known.password.unwrap()))
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        for image in ["nginx", "library/nginx", "docker.io/library/nginx:1"] {
            assert_eq!(of(image), pair("hub", "one"), "{image}");
        }
        assert_eq!(of("registry:5000/team/web:2"), pair("user", "a:b"));
        assert_eq!(of("ghcr.io/team/web"), pair("me", "pw"));
        assert_eq!(
            (of("empty.example/web"), of("registry:5001/web"), of("localhost/web")),
            (None, None, None)
        );
        assert!(RegistryConfig::default().credentials("nginx").unwrap().into_known().is_none());
    }

    #[test]
    fn a_credential_helper_is_named_and_not_run() {
        let (_directory, config) = with(r#"{"credsStore":"desktop","credHelpers":{"gcr.io":"gcloud"}}"#);
        for (image, helper) in [("gcr.io/web", "gcloud"), ("nginx", "desktop")] {
            let advice = config.credentials(image).unwrap().advice(image).unwrap();
            assert!(advice.contains(helper) && advice.contains("KUBELEET_REGISTRY_CONFIG"), "{advice}");
        }
    }

    #[test]
    fn an_error_never_has_the_content_of_the_file() {
        for text in ["{\"auths\": hunter2", r#"{"auths":{"docker.io":{"auth":"hunter2"}}}"#, "\"hunter2\""] {
            let (_directory, config) = with(text);
            let error = config.credentials("nginx").map(drop).unwrap_err();
            assert!(!error.contains("hunter2") && error.contains("config.json"), "{error}");
        }
    }
}
