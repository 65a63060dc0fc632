//! HTTPS: the handshake with a client, and the redirect from plain HTTP.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper::header::{self, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Response, StatusCode};
use model::network::ingress::Tls;
use routing::route::{RouteTable, host_name};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::answer::{AnswerBody, OwnAnswer};
use super::certificates::Certificates;
use crate::certificates::stored::StoredCertificates;
use crate::challenges::Challenges;

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
pub(super) const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";
const DEFAULT_PORT: u16 = 443;

#[derive(Debug, Clone)]
pub struct HttpsConfig {
    pub listen: SocketAddr,
    pub certificates: Option<PathBuf>,
    pub stored: Option<Arc<StoredCertificates>>,
    pub look_every: Duration,
}

impl HttpsConfig {
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, certificates: None, stored: None, look_every: Duration::from_secs(10) }
    }
}

pub(super) struct Https {
    pub(super) config: HttpsConfig,
    pub(super) certificates: Arc<Certificates>,
    acceptor: TlsAcceptor,
    port: OnceLock<u16>,
}

impl Https {
    pub(super) fn new(config: HttpsConfig) -> Self {
        let certificates = Arc::new(Certificates::new(config.certificates.clone(), config.stored.clone()));
        let acceptor = Arc::new(server_config(certificates.clone())).into();
        Self { config, certificates, acceptor, port: OnceLock::new() }
    }

    pub(super) fn listens_on(&self, address: SocketAddr) {
        let _ = self.port.set(address.port());
    }

    /// Also returns true if HTTP/2 was negotiated.
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

pub(super) fn redirect(
    https: Option<&Https>,
    tls: Tls,
    host: &str,
    target: Option<&PathAndQuery>,
) -> Result<Response<AnswerBody>, OwnAnswer> {
    let host = host_name(host);
    let https = match https {
        Some(https) if https.certificates.has(&host) => https,
        https => return Err(OwnAnswer::no_https(&host, &why_none(https, tls, &host))),
    };
    let location = HeaderValue::try_from(url(&host, https.port(), target));
    let location = location.map_err(|_| OwnAnswer::bad_request("The Host or the path is not of a URL."))?;
    let mut response = Response::new(AnswerBody::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

fn why_none(https: Option<&Https>, tls: Tls, host: &str) -> String {
    let text = match (tls, https) {
        (Tls::Files, Some(Https { config: HttpsConfig { certificates: Some(_), .. }, .. })) => {
            "No certificate in the directory KUBELEET_CERTIFICATES is for this name."
        }
        (Tls::Files, _) => "It has no certificates: set KUBELEET_CERTIFICATES to their directory.",
        (Tls::Auto, None) => "It takes no HTTPS: set KUBELEET_INGRESS_TLS_LISTEN to an address.",
        (Tls::Auto, Some(https)) => match &https.config.stored {
            Some(stored) => return stored.why_none(host),
            None => "It cannot read certificates that were ordered: set KUBELEET_SECRET_KEY_FILE.",
        },
    };
    text.to_owned()
}

pub(super) async fn challenge(
    challenges: Option<&Challenges>,
    routes: &RouteTable,
    host: &str,
    token: &str,
) -> Option<Response<AnswerBody>> {
    if !routes.is_auto(host) {
        return None;
    }
    let authorization = challenges?.authorization(&host_name(host), token).await?;
    let mut response = Response::new(AnswerBody::text(authorization));
    let media_type = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, media_type);
    Some(response)
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
    fn a_node_without_a_certificate_says_what_it_lacks() {
        let config = HttpsConfig::new(([127, 0, 0, 1], 0).into());
        let without_files = Https::new(config.clone());
        let with_files = Https::new(HttpsConfig { certificates: Some("/nowhere".into()), ..config });
        for (https, tls, expected) in [
            (None, Tls::Files, "set KUBELEET_CERTIFICATES"),
            (Some(&without_files), Tls::Files, "set KUBELEET_CERTIFICATES"),
            (Some(&with_files), Tls::Files, "No certificate in the directory KUBELEET_CERTIFICATES"),
            (None, Tls::Auto, "set KUBELEET_INGRESS_TLS_LISTEN"),
            (Some(&with_files), Tls::Auto, "set KUBELEET_SECRET_KEY_FILE"),
        ] {
            let text = why_none(https, tls, "web.example");
            assert!(text.contains(expected), "{text}");
        }
    }

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
