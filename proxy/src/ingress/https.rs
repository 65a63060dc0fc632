//! HTTPS: the handshake with a client, and what becomes of plain HTTP where a route wants HTTPS.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::{self, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Response, StatusCode};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::answer::{Answer, Problem};
use super::certificates::Certificates;
use crate::route::host_name;

/// The name of HTTP/2 in ALPN.
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// The port that a URL with `https` has if it names none.
const DEFAULT_PORT: u16 = 443;

/// Where HTTPS is taken, and with which certificates.
#[derive(Debug, Clone)]
pub struct HttpsConfig {
    /// Address for HTTPS.
    pub listen: SocketAddr,
    /// Directory with the certificates and their keys.
    pub certificates: PathBuf,
    /// How often the directory is read again.
    pub look_every: Duration,
}

impl HttpsConfig {
    /// Reads the directory every 10 s.
    pub fn new(listen: SocketAddr, certificates: PathBuf) -> Self {
        Self { listen, certificates, look_every: Duration::from_secs(10) }
    }
}

/// What all connections by HTTPS share.
pub(super) struct Https {
    pub(super) config: HttpsConfig,
    pub(super) certificates: Arc<Certificates>,
    acceptor: TlsAcceptor,
    /// The port that was bound, once it is.
    port: OnceLock<u16>,
}

impl Https {
    pub(super) fn new(config: HttpsConfig) -> Self {
        let certificates = Arc::new(Certificates::new(config.certificates.clone()));
        let acceptor = Arc::new(server_config(certificates.clone())).into();
        Self { config, certificates, acceptor, port: OnceLock::new() }
    }

    /// Notes where clients find HTTPS.
    pub(super) fn listens_on(&self, address: SocketAddr) {
        let _ = self.port.set(address.port());
    }

    /// Makes TLS of a client's connection. Also returns whether HTTP/2 is spoken.
    ///
    /// # Errors
    /// If the client ends it, breaks the protocol, or names a host for which there is no certificate.
    pub(super) async fn handshake(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, bool)> {
        let stream = self.acceptor.accept(stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        Ok((stream, is_http2))
    }

    fn port(&self) -> u16 {
        self.port.get().copied().unwrap_or(self.config.listen.port())
    }
}

fn server_config(certificates: Arc<Certificates>) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .expect("ring has suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    config
}

/// Returns the answer to a request by plain HTTP for what is served by HTTPS only: 308 to the same URL by HTTPS.
///
/// # Errors
/// If this node does not serve the host by HTTPS.
pub(super) fn redirect(
    https: Option<&Https>,
    host: &str,
    target: Option<&PathAndQuery>,
) -> Result<Response<Answer>, Problem> {
    let host = host_name(host);
    let Some(https) = https else {
        return Err(Problem::no_https(
            &host,
            "It has no certificates: set KUBELEET_CERTIFICATES to their directory.",
        ));
    };
    if !https.certificates.has(&host) {
        let advice = "No certificate in the directory KUBELEET_CERTIFICATES is for this name.";
        return Err(Problem::no_https(&host, advice));
    }
    let location = HeaderValue::try_from(url(&host, https.port(), target));
    let location = location.map_err(|_| Problem::bad_request("The Host or the path is not of a URL."))?;
    let mut response = Response::new(Answer::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn url(host: &str, port: u16, target: Option<&PathAndQuery>) -> String {
    let mut url = format!("https://{host}");
    if port != DEFAULT_PORT {
        let _ = write!(url, ":{port}");
    }
    url.push_str(target.map_or("/", PathAndQuery::as_str));
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_path_and_query_and_names_the_port_unless_it_is_the_usual_one() {
        for (port, target, expected) in [
            (443, "/", "https://web.example/"),
            (443, "/a/b?c=d&e", "https://web.example/a/b?c=d&e"),
            (8443, "/a?b", "https://web.example:8443/a?b"),
        ] {
            let target = PathAndQuery::from_static(target);
            assert_eq!(url("web.example", port, Some(&target)), expected);
        }
        assert_eq!(url("web.example", 443, None), "https://web.example/");
    }
}
