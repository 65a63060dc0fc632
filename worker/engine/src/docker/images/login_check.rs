//! Verifies a registry login through the engine, as `docker login` does.

use std::time::Duration;

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use model::ids::RegistryHost;
use model::value::registry::{LoginVerdict, RegistryLogin};
use serde_json::json;

use super::credentials::is_denied;
use crate::docker::client::EngineClient;
use crate::docker::raw_request;

const LIMIT: Duration = Duration::from_secs(6);

pub(crate) async fn check(client: &EngineClient, host: &RegistryHost, login: &RegistryLogin) -> LoginVerdict {
    match tokio::time::timeout(LIMIT, ask(client, host, login)).await {
        Ok(Ok(())) => LoginVerdict::Accepted,
        Ok(Err(error)) => refused(&error),
        Err(_) => LoginVerdict::Unknown(format!("the registry did not answer within {LIMIT:?}")),
    }
}

async fn ask(client: &EngineClient, host: &RegistryHost, login: &RegistryLogin) -> Result<(), Error> {
    let body = json!({
        "username": login.user,
        "password": String::from_utf8_lossy(login.password.expose()),
        "serveraddress": host.server(),
    });
    let request = Request::post("/auth")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let response = raw_request::send(client, request).await?;
    raw_request::body(response).await.map(drop)
}

/// Unreachable registries and refusals differ only in the text.
fn refused(error: &Error) -> LoginVerdict {
    match error {
        Error::DockerResponseServerError { status_code, message }
            if *status_code == 401 || is_denied(message) =>
        {
            LoginVerdict::Denied(message.clone())
        }
        Error::DockerResponseServerError { message, .. } => LoginVerdict::Unknown(message.clone()),
        error => LoginVerdict::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_of_the_registry_says_that_a_login_is_wrong() {
        let answer = |status_code: u16, message: &str| {
            refused(&Error::DockerResponseServerError { status_code, message: message.to_owned() })
        };
        for (status, message) in [
            (401, "Get \"https://reg.example/v2/\": unauthorized: incorrect username or password"),
            (500, "login attempt to http://127.0.0.1:5000/v2/ failed with status: 401 Unauthorized"),
        ] {
            assert!(matches!(answer(status, message), LoginVerdict::Denied(_)), "{message}");
        }
        for (status, message) in [
            (500, "Get \"https://reg.example/v2/\": dial tcp: lookup reg.example: no such host"),
            (404, "page not found"),
        ] {
            assert_eq!(answer(status, message), LoginVerdict::Unknown(message.to_owned()));
        }
    }
}
