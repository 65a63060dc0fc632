//! A certificate authority, and directories with its certificates.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::RootCertStore;

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Valid until the beginning of a year.
    pub(crate) fn issue(&self, names: &[&str], until: i32) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        Issued { chain, key: key.serialize_pem() }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

impl Issued {
    pub(crate) fn write(&self, directory: &Path, name: &str) {
        std::fs::write(directory.join(format!("{name}.key")), &self.key).unwrap();
        std::fs::write(directory.join(format!("{name}.crt")), &self.chain).unwrap();
    }
}
