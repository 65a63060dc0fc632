//! The client: the address of the API, and the token.

use std::error::Error;
use std::time::Duration;

use model::value::secret::Secret;

use crate::endpoint::ApiUrl;
use crate::error::ClientError;
use crate::shorten::shorten;

/// A listening process accepts at once; a missing host never does.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_SHOWN_BODY: usize = 200;

#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) endpoint: ApiUrl,
    pub(crate) token: Option<Secret>,
    /// The API may start a service partially.
    pub(crate) allow_partial: bool,
}

impl Client {
    pub fn new(api: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        let endpoint = ApiUrl::parse(api)?;
        if let Some(token) = &token
            && reqwest::header::HeaderValue::from_str(token.expose()).is_err()
        {
            return Err(ClientError::InvalidToken("an HTTP header cannot contain its characters".to_owned()));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("kubeleet/", env!("CARGO_PKG_VERSION")))
            // The token is for the given address only.
            .redirect(reqwest::redirect::Policy::none());
        if endpoint.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|e| ClientError::RequestFailed {
            operation: "preparing the HTTP client".to_owned(),
            address: endpoint.to_string(),
            cause: root_cause(&e),
            may_have_changed: false,
        })?;
        Ok(Self { http, endpoint, token, allow_partial: false })
    }

    pub fn allowing_partial(&self, allow_partial: bool) -> Self {
        Self { allow_partial, ..self.clone() }
    }

    pub(crate) fn request_failed(
        &self,
        operation: &str,
        error: &reqwest::Error,
        is_write: bool,
    ) -> ClientError {
        let cause = if error.is_timeout() { "timed out".to_owned() } else { root_cause(error) };
        self.connection_lost(operation, cause, is_write)
    }

    pub(crate) fn stream_ended(&self, operation: &str, cause: String) -> ClientError {
        self.connection_lost(operation, cause, false)
    }

    fn connection_lost(&self, operation: &str, cause: String, may_have_changed: bool) -> ClientError {
        let (operation, address) = (operation.to_owned(), self.endpoint.to_string());
        ClientError::RequestFailed { operation, address, cause, may_have_changed }
    }

    pub(crate) fn not_kubeleet(&self, operation: &str, status: u16, body: &[u8]) -> ClientError {
        let text = shorten(&String::from_utf8_lossy(body), MAX_SHOWN_BODY);
        ClientError::NotKubeleet {
            operation: operation.to_owned(),
            address: self.endpoint.to_string(),
            status,
            body: if text.is_empty() { "an empty body".to_owned() } else { format!("body: {text}") },
        }
    }
}

/// `Connection refused` rather than `error sending request`.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    daemon::system_error(cause)
}
