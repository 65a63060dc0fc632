//! The key of a proxy, and its fingerprint.

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use daemon::state_file::StateFile;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// SHA-256 of a SubjectPublicKeyInfo, as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(public_key: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, public_key).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is not the fingerprint of a key: 64 hexadecimal digits");
        if text.len() != 64 || !text.is_ascii() {
            return Err(invalid());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }
}

pub struct ProxyKey {
    pub(super) certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for ProxyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyKey({})", self.fingerprint)
    }
}

impl ProxyKey {
    /// The file is readable only for this user.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        let file = StateFile::new(path).private();
        let pkcs8 = match file.read()? {
            Some(pkcs8) => pkcs8,
            None => {
                let pkcs8 = generate()?;
                // The first process to create the file decides the key.
                if file.create(&pkcs8)? { pkcs8 } else { std::fs::read(path)? }
            }
        };
        Self::from_pkcs8(pkcs8)
    }

    pub fn generate() -> io::Result<Self> {
        Self::from_pkcs8(generate()?)
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> io::Result<Self> {
        let invalid =
            |_| io::Error::new(io::ErrorKind::InvalidData, "the file has no key of a proxy; remove it");
        let key = rustls::crypto::ring::sign::any_ecdsa_type(&PrivatePkcs8KeyDer::from(pkcs8).into());
        let key = key.map_err(invalid)?;
        let public = key.public_key().ok_or_else(|| invalid(rustls::Error::General(String::new())))?.to_vec();
        let fingerprint = Fingerprint::of(&public);
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Ok(Self { certified, fingerprint })
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

fn generate() -> io::Result<Vec<u8>> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let made = made.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(made.as_ref().to_vec())
}
