//! TLS between proxies: both ends present a raw public key (RFC 7250), and compare the other's with Redis.

use std::sync::Arc;

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::key::{Fingerprint, ProxyKey};
use super::peers::Peers;
use super::protocol::{AHEAD_PROTOCOL, KEPT_PROTOCOL, PROBE_PROTOCOL, SERVING_PROTOCOL};

pub(super) fn server_config(key: &ProxyKey, peers: Arc<Peers>) -> Result<ServerConfig, Error> {
    let provider = provider();
    let verifier = Arc::new(KnownPeer { peers, provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key.certified.clone())));
    config.alpn_protocols =
        [KEPT_PROTOCOL, AHEAD_PROTOCOL, PROBE_PROTOCOL, SERVING_PROTOCOL].map(<[u8]>::to_vec).into();
    // A resumed session would not present the peer's key again, which may have been removed.
    config.send_tls13_tickets = 0;
    Ok(config)
}

pub(super) fn client_config(
    key: &ProxyKey,
    expected: Fingerprint,
    protocol: &[u8],
) -> Result<ClientConfig, Error> {
    let provider = provider();
    let verifier = Arc::new(PinnedPeer { expected, provider: provider.clone() });
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.certified.clone())));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[derive(Debug)]
struct PinnedPeer {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct KnownPeer {
    peers: Arc<Peers>,
    provider: Arc<CryptoProvider>,
}

fn not_accepted() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

fn verify_signature(
    provider: &CryptoProvider,
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(key.as_ref());
    verify_tls13_signature_with_raw_key(message, &key, signature, &provider.signature_verification_algorithms)
}

impl ServerCertVerifier for PinnedPeer {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Fingerprint::of(key) == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(not_accepted()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(&self.provider, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for KnownPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.peers.knows(Fingerprint::of(key)) {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(not_accepted()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(not_accepted())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_signature(&self.provider, message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
