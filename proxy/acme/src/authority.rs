//! The connection to the ACME server of an authority.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use daemon::config::AcmeSettings;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const REQUEST_WITHIN: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub(super) struct Authority {
    tls: TlsConnector,
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Authority {
    pub(super) fn new(settings: &AcmeSettings) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match &settings.ca_file {
            Some(file) => {
                let name = file.display();
                let problem = |error: &dyn std::fmt::Display| {
                    format!("{name} (KUBELEET_ACME_CA_FILE) has no certificates in PEM: {error}")
                };
                let certificates = CertificateDer::pem_file_iter(file).map_err(|error| problem(&error))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| problem(&error))?;
                    roots.add(certificate).map_err(|error| problem(&error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err("this machine trusts no authority: install its package ca-certificates, or set \
                        KUBELEET_ACME_CA_FILE"
                .to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
            .expect("ring has suites for both versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(config).into(), retry_after: Arc::default() })
    }

    pub(super) fn asked_wait(&self) -> Option<Duration> {
        *self.retry_after.lock()
    }

    async fn send(self, mut request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, AnyError> {
        let uri = std::mem::take(request.uri_mut());
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or("it is no URL with https")?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(HTTPS_PORT);
        let authority = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        request.headers_mut().insert(header::HOST, HeaderValue::from_str(&authority)?);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse::<Uri>()?;
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        let stream = self.tls.connect(ServerName::try_from(host)?, stream).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let (parts, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
            Ok::<_, AnyError>((parts, body))
        };
        let mut connection = std::pin::pin!(connection);
        let mut exchange = std::pin::pin!(exchange);
        let answered = tokio::select! {
            answered = exchange.as_mut() => answered,
            // The response may have arrived before the connection closed.
            _ended = connection.as_mut() => exchange.await,
        };
        let (parts, body) = answered?;
        if !parts.status.is_success()
            && let Some(wait) = parts.headers.get(header::RETRY_AFTER).and_then(asked_wait)
        {
            *self.retry_after.lock() = Some(wait);
        }
        Ok(BytesResponse { parts, body: Box::new(body) })
    }
}

impl HttpClient for Authority {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            match tokio::time::timeout(REQUEST_WITHIN, this.send(request)).await {
                Ok(answer) => answer.map_err(Error::Other),
                Err(_) => Err(Error::Other("it did not answer within 30 s".into())),
            }
        })
    }
}

fn asked_wait(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_that_a_server_asks_for_is_a_number_of_seconds_or_a_date() {
        let wait = |text: &str| asked_wait(&HeaderValue::from_str(text).unwrap());
        for (text, expected) in
            [("120", Some(120)), ("Fri, 31 Dec 1999 23:59:59 GMT", Some(0)), ("soon", None)]
        {
            assert_eq!(wait(text).map(|wait| wait.as_secs()), expected, "{text}");
        }
        let later = wait("Tue, 31 Dec 2999 23:59:59 GMT").unwrap();
        assert!(later > Duration::from_secs(86_400), "{later:?}");
    }
}
