//! Parses certificates. Pure.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::{EndEntityCert, KeyUsage};

use super::choose::{ChoiceSubject, Validity};

pub struct Certificate {
    pub subject: ChoiceSubject,
    pub key: Arc<CertifiedKey>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.subject.fmt(f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error(
        "{file} cannot be read: {error}; it and the directories above it have to be readable for the proxy"
    )]
    Unreadable { file: String, error: String },
    #[error("its key is missing: put it into {key_file}, or take the certificate out of the directory")]
    NoKeyFile { key_file: String },
    #[error("it has no certificate in PEM, which begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("{key_file} has no private key in PEM, or one with a passphrase, which the proxy cannot read")]
    NoKey { key_file: String },
    #[error("it is not a certificate of X.509 version 3: {error}")]
    NotX509 { error: String },
    #[error("{key_file} has a key of an unknown kind: RSA, ECDSA with P-256 or P-384, and Ed25519 are known")]
    UnknownKey { key_file: String },
    #[error("{key_file} is the key of another certificate: put in the one that it was made with")]
    OtherKey { key_file: String },
    /// For instance only a common name.
    #[error("it is for no DNS name: make it with subjectAltName, as CN alone is not looked at")]
    NoNames,
    #[error("it has expired: renew it")]
    Expired,
}

/// `file` and `key_file` are names for messages.
///
/// # Errors
/// Contain nothing of the key.
pub fn parse(file: &str, chain: &[u8], key_file: &str, key: &[u8]) -> Result<Certificate, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(CertificateError::NoCertificate)?;
    let subject = subject(file, &chain[0])?;
    let key_file = key_file.to_owned();
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| CertificateError::NoKey { key_file: key_file.clone() })?;
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateError::OtherKey { key_file },
        _ => CertificateError::UnknownKey { key_file },
    })?;
    Ok(Certificate { subject, key: Arc::new(key) })
}

fn subject(file: &str, certificate: &CertificateDer<'_>) -> Result<ChoiceSubject, CertificateError> {
    let not_x509 = |error: webpki::Error| CertificateError::NotX509 { error: error.to_string() };
    let certificate = EndEntityCert::try_from(certificate).map_err(not_x509)?;
    let names: Vec<String> = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
    if names.is_empty() {
        return Err(CertificateError::NoNames);
    }
    let validity = validity(&certificate).map_err(not_x509)?;
    Ok(ChoiceSubject { file: file.to_owned(), names, validity })
}

/// Verifies at impossible times: webpki reveals a date only when it rejects it, before it looks for an
/// authority.
fn validity(certificate: &EndEntityCert<'_>) -> Result<Validity, webpki::Error> {
    let verified_at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        match certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None) {
            Ok(_) => webpki::Error::UnknownIssuer,
            Err(error) => error,
        }
    };
    let not_after = match verified_at(u64::MAX) {
        webpki::Error::CertExpired { not_after, .. } => not_after.as_secs(),
        error => return Err(error),
    };
    let not_before = match verified_at(0) {
        webpki::Error::CertNotValidYet { not_before, .. } => not_before.as_secs(),
        _ => 0,
    };
    Ok(Validity { not_before, not_after })
}
