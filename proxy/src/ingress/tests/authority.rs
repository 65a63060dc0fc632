//! A certificate authority, and directories with its certificates.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;

/// An authority that clients of tests trust.
pub(in crate::ingress) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// The texts of a certificate and its key.
pub(in crate::ingress) struct Issued {
    pub(in crate::ingress) chain: String,
    pub(in crate::ingress) key: String,
}

impl Authority {
    pub(in crate::ingress) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Issues a certificate that is valid until the beginning of a year.
    pub(in crate::ingress) fn issue(&self, names: &[&str], until: i32) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        Issued { chain, key: key.serialize_pem() }
    }

    /// Returns what a client trusts.
    pub(in crate::ingress) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

impl Issued {
    /// Writes `NAME.crt` and `NAME.key`.
    pub(in crate::ingress) fn write(&self, directory: &Path, name: &str) {
        std::fs::write(directory.join(format!("{name}.key")), &self.key).unwrap();
        std::fs::write(directory.join(format!("{name}.crt")), &self.chain).unwrap();
    }
}
