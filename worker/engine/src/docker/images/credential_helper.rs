//! Credential helpers: programs `docker-credential-NAME` that print the credentials of a registry.

use std::io::ErrorKind;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use model::ids::RegistryHost;
use model::value::ValueBytes;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use super::login::EngineLogin;

const DEADLINE: Duration = Duration::from_secs(20);
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
const NOT_FOUND: &str = "credentials not found";
const TOKEN_USER: &str = "<token>";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    #[serde(default)]
    username: String,
    secret: String,
}

/// # Errors
/// Without any of the helper's output, which may be a password.
pub(crate) async fn ask(helper: &str, host: &RegistryHost) -> Result<Option<EngineLogin>, String> {
    let program = format!("docker-credential-{helper}");
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !helper.chars().all(is_name) {
        return Err(format!("{program:?} is not the name of a credential helper"));
    }
    match tokio::time::timeout(DEADLINE, run(&program, host)).await {
        Ok(Ok((status, printed))) => read(&program, status, &printed),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
            Err(format!("the credential helper {program} is not in the PATH of the worker"))
        }
        Ok(Err(error)) => Err(format!("the credential helper {program} cannot be run: {error}")),
        Err(_) => Err(format!("the credential helper {program} took more than {} s", DEADLINE.as_secs())),
    }
}

async fn run(program: &str, host: &RegistryHost) -> std::io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = Command::new(program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        let _unread = input.write_all(host.server().as_bytes()).await;
    }
    let mut printed = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(MAX_ANSWER_BYTES).read_to_end(&mut printed).await?;
    }
    Ok((child.wait().await?, printed))
}

fn read(program: &str, status: ExitStatus, printed: &[u8]) -> Result<Option<EngineLogin>, String> {
    if !status.success() {
        let is_unknown = String::from_utf8_lossy(printed).to_ascii_lowercase().contains(NOT_FOUND);
        return if is_unknown {
            Ok(None)
        } else {
            Err(format!("the credential helper {program} failed: {status}"))
        };
    }
    // The parser's error could quote the password.
    let HelperAnswer { username, secret } = serde_json::from_slice(printed)
        .map_err(|_| format!("the answer of the credential helper {program} cannot be read"))?;
    let secret = ValueBytes::new(secret.into_bytes());
    Ok(Some(if username == TOKEN_USER {
        EngineLogin::Token(secret)
    } else {
        EngineLogin::Password { user: username, password: secret }
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn answers_are_read_by_the_protocol_and_never_quoted() {
        let ended = |code: i32| ExitStatus::from_raw(code << 8);
        let read = |code, printed: &str| read("docker-credential-x", ended(code), printed.as_bytes());
        let secret = |text: &str| ValueBytes::new(text.as_bytes().to_vec());
        let bob = EngineLogin::Password { user: "bob".to_owned(), password: secret("hunter2") };
        assert_eq!(read(0, r#"{"ServerURL":"a","Username":"bob","Secret":"hunter2"}"#), Ok(Some(bob)));
        let token = EngineLogin::Token(secret("hunter2"));
        assert_eq!(read(0, r#"{"Username":"<token>","Secret":"hunter2"}"#), Ok(Some(token)));
        assert_eq!(read(1, "credentials not found in native keychain\n"), Ok(None));
        for (code, printed) in [(0, "hunter2"), (0, r#"{"Secret":["hunter2"]}"#), (1, "hunter2")] {
            let error = read(code, printed).unwrap_err();
            assert!(error.contains("docker-credential-x") && !error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_helper_that_is_missing_or_no_name_is_an_error() {
        let host = RegistryHost::new("reg.example").unwrap();
        let missing = ask("kubeleet-none", &host).await.unwrap_err();
        assert!(missing.contains("is not in the PATH"), "{missing}");
        assert!(ask("../../bin/sh", &host).await.unwrap_err().contains("not the name"));
    }
}
