//! Creates an image from a tar. bollard sends all instructions as one multi-line parameter, which Podman
//! takes for one instruction, and the tag apart, which Podman 4 drops.

use bollard::errors::Error;
use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt};
use http_body_util::StreamBody;
use hyper::Request;
use hyper::body::Frame;
use hyper::header::CONTENT_TYPE;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::image;
use crate::RuntimeError;
use crate::docker::client::EngineClient;
use crate::docker::deadlines::IMPORT;
use crate::docker::errors::EngineCall;
use crate::docker::raw_request::{body, send};

/// `changes` are lines of a Dockerfile, without `FROM`.
pub(crate) async fn import(
    client: &EngineClient,
    name: &str,
    changes: &[String],
    tar: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
) -> Result<(), RuntimeError> {
    image::check_path(name)?;
    let call = async {
        let request = Request::post(path(name, changes))
            .header(CONTENT_TYPE, "application/x-tar")
            .body(StreamBody::new(tar.map_ok(Frame::data)))?;
        reported_error(&body(send(client, request).await?).await?)
    };
    Ok(client.within(EngineCall::Import, IMPORT, call).await?)
}

fn path(name: &str, changes: &[String]) -> String {
    let (repo, tag) = image::split(name);
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let changes: String = changes.iter().map(|change| format!("&changes={}", encode(change))).collect();
    format!("/images/create?fromSrc=-&repo={}{changes}", encode(&format!("{repo}:{tag}")))
}

/// A late failure still has a success status.
fn reported_error(progress: &[u8]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Progress {
        error: Option<String>,
    }
    let lines = serde_json::Deserializer::from_slice(progress).into_iter::<Progress>();
    match lines.flatten().find_map(|line| line.error) {
        Some(error) => Err(Error::DockerStreamError { error }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_is_a_parameter_and_the_tag_is_in_the_name() {
        let changes = ["LABEL a=b".to_owned(), "CMD [\"/x\",\"&\"]".to_owned()];
        assert_eq!(
            path("kubeleet/hello:dev", &changes),
            "/images/create?fromSrc=-&repo=kubeleet%2Fhello%3Adev&changes=LABEL%20a%3Db\
             &changes=CMD%20%5B%22%2Fx%22%2C%22%26%22%5D"
        );
        assert_eq!(
            path("registry:5000/x", &[]),
            "/images/create?fromSrc=-&repo=registry%3A5000%2Fx%3Alatest"
        );
    }

    #[test]
    fn a_failure_in_the_progress_is_one() {
        let failed = br#"{"status":"Importing"}{"errorDetail":{"message":"no space"},"error":"no space"}"#;
        let error = reported_error(failed).expect_err("it failed");
        assert!(error.to_string().contains("no space"), "{error}");
        assert!(reported_error(b"{\"status\":\"sha256:0\"}\r\n").is_ok());
    }
}
