//! Credentials for pulls, read for each. `docker login` of the node wins over `kubeleet registry login`: the
//! node's operator decides. They go to the engine only, never into logs or messages.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use daemon::state_file::IfFound;
use model::ids::RegistryHost;
use model::value::ValueBytes;
use serde::Deserialize;

use super::credential_helper;
use super::login::EngineLogin;
use crate::RegistryLogins;

#[derive(Debug, Clone, Default)]
pub(crate) struct RegistryConfig {
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistryCredentials {
    login: EngineLogin,
    source: String,
}

#[derive(Debug, Default)]
pub(crate) struct FoundCredentials {
    credentials: Vec<RegistryCredentials>,
    problems: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    auths: HashMap<String, RegistryEntry>,
    creds_store: String,
    cred_helpers: HashMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RegistryEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

impl RegistryConfig {
    /// Skips unreadable sources: the image may need none.
    pub(crate) async fn find(&self, host: &RegistryHost, logins: &dyn RegistryLogins) -> FoundCredentials {
        let mut found = FoundCredentials::default();
        if let Some(path) = &self.path {
            match read_file(path) {
                Ok(file) => file.find(path, host, &mut found).await,
                Err(problem) => found.problems.push(problem),
            }
        }
        match logins.login(host).await {
            Ok(Some(login)) => found.credentials.push(RegistryCredentials {
                login: EngineLogin::Password { user: login.user, password: login.password },
                source: "`kubeleet registry login`".to_owned(),
            }),
            Ok(None) => {}
            Err(problem) => found.problems.push(problem),
        }
        found
    }
}

impl ConfigFile {
    async fn find(&self, path: &Path, host: &RegistryHost, found: &mut FoundCredentials) {
        let is_host = |key: &str| RegistryHost::of_address(key).is_ok_and(|key| key == *host);
        let helper = self.cred_helpers.iter().find(|(key, _)| is_host(key));
        let helper = helper.map_or(&self.creds_store, |(_, helper)| helper);
        if !helper.is_empty() {
            let source = format!("docker-credential-{helper}");
            match credential_helper::ask(helper, host).await {
                Ok(Some(login)) => found.credentials.push(RegistryCredentials { login, source }),
                Ok(None) => {}
                Err(problem) => found.problems.push(problem),
            }
        }
        // `docker login` with a helper leaves an empty entry.
        let mut entries = self.auths.iter().filter(|(key, _)| is_host(key)).map(|(_, entry)| entry);
        match entries.find(|entry| entry.has_credentials()).map(RegistryEntry::login) {
            Some(Some(login)) => {
                found.credentials.push(RegistryCredentials { login, source: path.display().to_string() });
            }
            Some(None) => {
                let why = format!("`auth` of {host} is not base64 of `user:password`");
                found.problems.push(cannot_read(path, &why));
            }
            None => {}
        }
    }
}

impl RegistryEntry {
    fn has_credentials(&self) -> bool {
        !(self.auth.is_empty() && self.username.is_empty() && self.identitytoken.is_empty())
    }

    fn login(&self) -> Option<EngineLogin> {
        let secret = |text: &str| ValueBytes::new(text.as_bytes().to_vec());
        if !self.identitytoken.is_empty() {
            return Some(EngineLogin::Token(secret(&self.identitytoken)));
        }
        if self.auth.is_empty() {
            return Some(EngineLogin::Password {
                user: self.username.clone(),
                password: secret(&self.password),
            });
        }
        let decoded = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        Some(EngineLogin::Password {
            user: user.to_owned(),
            password: secret(password.trim_end_matches('\0')),
        })
    }
}

impl FoundCredentials {
    pub(crate) fn first(&self) -> Option<&RegistryCredentials> {
        self.credentials.first()
    }

    pub(crate) fn other_than(&self, denied: Option<&RegistryCredentials>) -> Option<&RegistryCredentials> {
        let denied = denied.map(|denied| &denied.login);
        self.credentials.iter().find(|one| Some(&one.login) != denied)
    }

    pub(crate) fn explain(&self, host: &RegistryHost, used: &[Option<&RegistryCredentials>]) -> String {
        let shown = |one: &Option<&RegistryCredentials>| one.map_or("none".to_owned(), ToString::to_string);
        let shown: Vec<String> = used.iter().map(shown).collect();
        let mut text = format!("credentials used for {host}: {}", shown.join(", then "));
        for problem in &self.problems {
            text = format!("{text}; {problem}");
        }
        let action = match used.iter().any(Option::is_some) {
            true => "check the name of the image, and if it is right replace them",
            false => "check the name of the image, and if it is right store some",
        };
        format!(
            "{text}; {action}: `kubeleet registry login {host} -u USER --password-stdin`, or `docker login {host}` on the node"
        )
    }
}

impl RegistryCredentials {
    pub(crate) fn for_engine(&self, host: &RegistryHost) -> DockerCredentials {
        let text = |bytes: &ValueBytes| Some(String::from_utf8_lossy(bytes.expose()).into_owned());
        let server = DockerCredentials {
            serveraddress: Some(host.server().to_owned()),
            ..DockerCredentials::default()
        };
        match &self.login {
            EngineLogin::Password { user, password } => {
                DockerCredentials { username: Some(user.clone()), password: text(password), ..server }
            }
            EngineLogin::Token(token) => DockerCredentials { identitytoken: text(token), ..server },
        }
    }
}

impl fmt::Display for RegistryCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.login {
            EngineLogin::Password { user, .. } => write!(f, "user {user} of {}", self.source),
            EngineLogin::Token(_) => write!(f, "a token of {}", self.source),
        }
    }
}

/// Engines only signal it by text.
pub(crate) fn is_denied(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let signs = [
        "unauthorized",
        "denied",
        "authentication required",
        "no basic auth credentials",
        "authorization failed",
        "failed to authorize",
        "403 forbidden",
        "invalid username/password",
    ];
    signs.iter().any(|sign| message.contains(sign))
}

fn read_file(path: &Path) -> Result<ConfigFile, String> {
    let read = std::fs::read_to_string(path).if_found();
    let read = read.map_err(|error| cannot_read(path, &error.to_string()))?;
    let Some(text) = read else { return Ok(ConfigFile::default()) };
    // The parser's error could quote a password.
    serde_json::from_str(&text)
        .map_err(|error| cannot_read(path, &format!("invalid JSON in line {}", error.line())))
}

fn cannot_read(path: &Path, why: &str) -> String {
    format!(
        "the credentials of registries in {} cannot be read: {why}; correct the file, or name another one in \
         KUBELEET_REGISTRY_CONFIG",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use futures_util::future::BoxFuture;
    use model::value::registry::RegistryLogin;

    use super::*;
    use crate::NoLogins;

    struct OneLogin;

    impl RegistryLogins for OneLogin {
        fn login<'a>(&'a self, _: &'a RegistryHost) -> BoxFuture<'a, Result<Option<RegistryLogin>, String>> {
            let password = ValueBytes::new(b"hunter3".to_vec());
            Box::pin(std::future::ready(Ok(Some(RegistryLogin { user: "ann".into(), password }))))
        }
    }

    fn with(text: &str) -> (tempfile::TempDir, RegistryConfig) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        (directory, RegistryConfig { path: Some(path) })
    }

    fn host(text: &str) -> RegistryHost {
        RegistryHost::new(text).unwrap()
    }

    #[tokio::test]
    async fn credentials_are_those_of_the_registry_of_the_image() {
        let auth = |pair: &str| STANDARD.encode(pair);
        let (_directory, config) = with(&format!(
            r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{}"}},"registry:5000":{{"auth":"{}"}},
               "https://ghcr.io":{{"username":"me","password":"pw"}},"empty.example":{{}}}}}}"#,
            auth("hub:one"),
            auth("user:a:b")
        ));
        let of = async |image: &str| {
            let found = config.find(&RegistryHost::of_image(image).unwrap(), &NoLogins).await;
            found.first().map(|one| match &one.login {
                EngineLogin::Password { user, password } => {
                    format!("{user} {}", String::from_utf8_lossy(password.expose()))
                }
                EngineLogin::Token(_) => "token".to_owned(),
            })
        };
        for image in ["nginx", "library/nginx", "docker.io/library/nginx:1"] {
            assert_eq!(of(image).await.as_deref(), Some("hub one"), "{image}");
        }
        assert_eq!(of("registry:5000/team/web:2").await.as_deref(), Some("user a:b"));
        assert_eq!(of("ghcr.io/team/web").await.as_deref(), Some("me pw"));
        for image in ["empty.example/web", "registry:5001/web", "localhost/web"] {
            assert_eq!(of(image).await, None, "{image}");
        }
    }

    #[tokio::test]
    async fn the_workers_own_credentials_come_first_and_those_of_the_cluster_next() {
        let (_directory, config) =
            with(r#"{"auths":{"reg.example":{"username":"bob","password":"hunter2"}}}"#);
        let found = config.find(&host("reg.example"), &OneLogin).await;
        let first = found.first().unwrap();
        let next = found.other_than(Some(first)).unwrap();
        assert!(
            first.to_string().starts_with("user bob of /")
                && next.to_string().starts_with("user ann of `kubeleet")
        );
        assert!(found.other_than(None).is_some_and(|one| one == first), "none were used, now there are some");
        let only = config.find(&host("other.example"), &OneLogin).await;
        assert_eq!(only.first(), Some(next));
        assert_eq!(only.other_than(Some(next)), None, "those that were refused are not used again");
        let text = found.explain(&host("reg.example"), &[Some(first), Some(next)]);
        assert!(text.contains("config.json, then user ann of `kubeleet registry login`"), "{text}");
        assert!(!text.contains("hunter"), "{text}");
    }

    #[tokio::test]
    async fn a_missing_file_has_no_credentials() {
        let missing = RegistryConfig { path: Some("/nowhere/config.json".into()) };
        for config in [missing, RegistryConfig::default()] {
            let found = config.find(&host("reg.example"), &NoLogins).await;
            assert!(found.first().is_none() && found.problems.is_empty(), "{found:?}");
            let text = found.explain(&host("reg.example"), &[None]);
            assert!(text.starts_with("credentials used for reg.example: none; "), "{text}");
        }
    }

    #[tokio::test]
    async fn a_helper_that_cannot_be_run_leaves_the_other_credentials_and_is_named() {
        let (_directory, config) = with(
            r#"{"credsStore":"kubeleet-none","credHelpers":{"gcr.io":"kubeleet-none-too"},
               "auths":{"reg.example":{"username":"bob","password":"hunter2"}}}"#,
        );
        for (image, helper) in
            [("gcr.io", "credential-kubeleet-none-too"), ("reg.example", "credential-kubeleet-none ")]
        {
            let found = config.find(&host(image), &NoLogins).await;
            assert_eq!(found.first().is_some(), image == "reg.example");
            let text = found.explain(&host(image), &[found.first()]);
            assert!(text.contains(helper) && text.contains("is not in the PATH"), "{text}");
        }
    }

    #[tokio::test]
    async fn an_error_never_has_the_content_of_the_file() {
        for text in ["{\"auths\": hunter2", r#"{"auths":{"docker.io":{"auth":"hunter2"}}}"#, "\"hunter2\""] {
            let (_directory, config) = with(text);
            let found = config.find(&host("docker.io"), &NoLogins).await;
            let [problem] = &found.problems[..] else { panic!("{found:?}") };
            assert!(!problem.contains("hunter2") && problem.contains("config.json"), "{problem}");
        }
    }

    #[test]
    fn a_refusal_is_told_from_other_errors_of_a_registry() {
        for denied in [
            "Head \"http://127.0.0.1:5000/v2/x/manifests/1\": no basic auth credentials",
            "Get \"http://reg/v2/\": unauthorized: incorrect username or password",
            "pull access denied for x, repository does not exist or may require 'docker login'",
            "failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized",
            "initializing source docker://x: reading manifest: authentication required",
        ] {
            assert!(is_denied(denied), "{denied}");
        }
        for other in
            ["dial tcp: lookup registry: no such host", "manifest for x:1 not found: manifest unknown"]
        {
            assert!(!is_denied(other), "{other}");
        }
    }
}
