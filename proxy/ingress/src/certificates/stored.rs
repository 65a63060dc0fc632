//! The ordered certificates that this proxy serves, and the status of orders.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::network::certificate::{CertificateStatus, StoredCertificate};
use model::value::secret_key::SecretKey;
use parking_lot::RwLock;
use routing::route::host_name;
use rustls::sign::CertifiedKey;

use super::parse::{Certificate, parse};

#[derive(Debug, Clone)]
pub struct OrderStanding {
    pub status: CertificateStatus,
    pub read_at: Instant,
    /// Delay until the next order, at `read_at`.
    pub wait: Duration,
}

struct ServedHost {
    certificate: Certificate,
    stored: StoredCertificate,
}

#[derive(Default)]
struct KnownHosts {
    served: HashMap<String, ServedHost>,
    standings: HashMap<String, OrderStanding>,
}

pub struct StoredCertificates {
    key: SecretKey,
    known: RwLock<KnownHosts>,
}

impl StoredCertificates {
    pub fn new(key: SecretKey) -> Self {
        Self { key, known: RwLock::default() }
    }

    pub fn find(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        self.known.read().served.get(&*host_name(host)).map(|served| served.certificate.key.clone())
    }

    /// # Errors
    /// The previous certificate stays.
    pub fn serve(&self, stored: StoredCertificate) -> Result<(), String> {
        let certificate = open(&stored, &self.key)?;
        self.known.write().served.insert(stored.host.clone(), ServedHost { certificate, stored });
        Ok(())
    }

    pub fn id(&self, host: &str) -> Option<String> {
        self.known.read().served.get(host).map(|served| served.stored.id.clone())
    }

    pub fn all(&self) -> Vec<StoredCertificate> {
        let mut all: Vec<_> = self.known.read().served.values().map(|served| served.stored.clone()).collect();
        all.sort_by(|a, b| a.host.cmp(&b.host));
        all
    }

    pub fn stored(&self, host: &str) -> Option<StoredCertificate> {
        self.known.read().served.get(host).map(|served| served.stored.clone())
    }

    /// `hosts` are sorted. Returns the removed ones whose certificate was served.
    pub fn retain(&self, hosts: &[String]) -> Vec<String> {
        let is_gone = |host: &String| hosts.binary_search(host).is_err();
        let mut known = self.known.write();
        let gone: Vec<String> = known.served.keys().filter(|host| is_gone(host)).cloned().collect();
        known.served.retain(|host, _| !is_gone(host));
        known.standings.retain(|host, _| !is_gone(host));
        gone
    }

    pub fn set_standing(&self, host: &str, standing: OrderStanding) {
        self.known.write().standings.insert(host.to_owned(), standing);
    }

    pub(crate) fn why_none(&self, host: &str) -> String {
        match self.known.read().standings.get(host) {
            None => "Its certificate was not read from Redis yet.".to_owned(),
            Some(standing) => standing.why_none(),
        }
    }
}

impl OrderStanding {
    fn why_none(&self) -> String {
        let wait = self.wait.saturating_sub(self.read_at.elapsed());
        match &self.status.failure {
            _ if self.status.begun_at.is_some() => "Its certificate is being ordered.".to_owned(),
            Some(failure) if wait.is_zero() => {
                format!("The last order of its certificate failed: {}. It is tried again now.", failure.error)
            }
            Some(failure) => format!(
                "The last order of its certificate failed: {}. It is tried again in {} s.",
                failure.error,
                wait.as_secs() + 1
            ),
            None if self.status.certificate.is_some() => {
                "Its certificate cannot be read; the log of this proxy says why.".to_owned()
            }
            None => "Its certificate is to be ordered, by a proxy that has HTTPS and the key of secrets."
                .to_owned(),
        }
    }
}

/// # Errors
/// Contain nothing of the key.
pub fn open(stored: &StoredCertificate, key: &SecretKey) -> Result<Certificate, String> {
    let pem = stored.open(Some(key)).map_err(|error| format!("its key cannot be read: {error}"))?;
    let name = format!("certificate:{}", stored.host);
    let certificate = parse(&name, stored.chain.as_bytes(), "its key", pem.expose().as_bytes())
        .map_err(|error| error.to_string())?;
    if !certificate.subject.names.contains(&stored.host) {
        return Err(format!("it is for {}", certificate.subject.names.join(", ")));
    }
    Ok(certificate)
}

impl fmt::Debug for StoredCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.known.read().served.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use model::network::certificate::OrderFailure;

    use super::*;

    #[test]
    fn it_says_why_there_is_no_certificate_and_when_it_is_tried_again() {
        let failure = OrderFailure { error: "no address".to_owned(), at: 1, wait: Duration::from_secs(60) };
        let failed =
            CertificateStatus { attempts: 1, failure: Some(failure), ..CertificateStatus::default() };
        let ordering = CertificateStatus { begun_at: Some(1), ..failed.clone() };
        for (status, wait, expected) in [
            (CertificateStatus::default(), 0, "is to be ordered"),
            (ordering, 0, "is being ordered"),
            (failed.clone(), 0, "failed: no address. It is tried again now"),
            (failed, 30, "failed: no address. It is tried again in 30 s"),
        ] {
            let wait = Duration::from_secs(wait);
            let text = OrderStanding { status, read_at: Instant::now(), wait }.why_none();
            assert!(text.contains(expected), "{text}");
        }
    }
}
