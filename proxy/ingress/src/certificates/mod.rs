//! The certificates of ingress, from files. Ordered certificates serve names without a valid file.

mod choose;
mod files;
mod known;
mod parse;
pub mod stored;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::measure;
use choose::NameTable;
use known::{KnownCertificates, News};
use stored::StoredCertificates;

pub use choose::{ChoiceSubject, Validity};
pub use parse::{Certificate, CertificateError, parse};

pub(super) struct Certificates {
    directory: Option<PathBuf>,
    stored: Option<Arc<StoredCertificates>>,
    reading: Mutex<CertificateReading>,
    served: RwLock<ServedCertificates>,
}

#[derive(Default)]
struct CertificateReading {
    known: KnownCertificates,
    problem: Option<String>,
}

#[derive(Default)]
struct ServedCertificates {
    names: NameTable,
    files: Vec<FromFile>,
}

struct FromFile {
    key: Arc<CertifiedKey>,
    is_valid: bool,
}

impl Certificates {
    pub(super) fn new(directory: Option<PathBuf>, stored: Option<Arc<StoredCertificates>>) -> Self {
        Self { directory, stored, reading: Mutex::default(), served: RwLock::default() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) async fn look(self: &Arc<Self>) {
        let this = self.clone();
        if tokio::task::spawn_blocking(move || this.look_now()).await.is_err() {
            tracing::error!("reading the certificates panicked; the former ones are served");
        }
    }

    pub(super) async fn follow(self: &Arc<Self>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            self.look().await;
        }
    }

    fn look_now(&self) {
        let Some(directory) = &self.directory else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut reading = self.reading.lock();
        let found = match files::read(directory) {
            // Usually a missing mount.
            Ok(found) if found.is_empty() => {
                Err("it has no NAME.crt with NAME.key, and no NAME/fullchain.pem with NAME/privkey.pem"
                    .to_owned())
            }
            Ok(found) => Ok(found),
            Err(error) => Err(error.to_string()),
        };
        match found {
            Ok(found) => {
                reading.problem = None;
                for news in reading.known.update(found, now) {
                    tell(directory, news);
                }
            }
            Err(problem) => {
                if reading.problem.as_ref() != Some(&problem) {
                    let directory = directory.display();
                    tracing::warn!(
                        "no certificates in {directory} (KUBELEET_CERTIFICATES): {problem}; those that were \
                         read before are served"
                    );
                }
                reading.problem = Some(problem);
            }
        }
        self.serve(&reading.known, now);
    }

    fn serve(&self, known: &KnownCertificates, now: u64) {
        let certificates = known.certificates();
        for certificate in &certificates {
            let subject = &certificate.subject;
            measure::certificate_expires(&subject.file, subject.validity.seconds_left(now) as f64);
        }
        let names = NameTable::new(&known::subjects(&certificates), now);
        let files = certificates.iter().map(|certificate| FromFile {
            key: certificate.key.clone(),
            is_valid: certificate.subject.validity.is_valid(now),
        });
        let files = files.collect();
        *self.served.write() = ServedCertificates { names, files };
    }

    fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let served = self.served.read();
        let from_file = served.names.find(name).map(|index| &served.files[index]);
        let valid = from_file.filter(|file| file.is_valid).map(|file| file.key.clone());
        // An expired certificate tells a client more than none.
        valid.or_else(|| self.stored.as_ref()?.find(name)).or_else(|| from_file.map(|file| file.key.clone()))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({:?}, {:?})", self.directory, self.stored)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let Some(name) = client_hello.server_name() else {
            tracing::debug!(
                "TLS handshake refused: the client names no host, as if it had used an IP address"
            );
            return None;
        };
        let found = self.find(name);
        if found.is_none() {
            tracing::debug!(name, "TLS handshake refused: no certificate is for this name");
        }
        found
    }
}

fn tell(directory: &Path, news: News) {
    let path = |file: &str| directory.join(file).display().to_string();
    match news {
        News::Read { file, names, seconds_left } => {
            let (file, names, days) = (path(&file), names.join(", "), seconds_left / 86_400);
            tracing::info!("certificate {file} is read; it is for {names} and expires in {days} days");
        }
        News::Faulty { file, error, is_kept } => {
            let then = if is_kept { "the one before is served" } else { "it is not served" };
            tracing::warn!("certificate {}: {error}. Until then {then}", path(&file));
        }
        News::KeyExposed { key_file } => {
            tracing::warn!("{0} is readable for all users of this machine: chmod o-r {0}", path(&key_file));
        }
        News::Gone { file } => {
            measure::certificate_expires(&file, f64::NAN);
            tracing::info!("certificate {} is gone, and not served any more", path(&file));
        }
        News::Expires { file, seconds_left } if seconds_left < 0 => {
            tracing::warn!("certificate {} has expired: clients refuse it. Renew it", path(&file));
        }
        News::Expires { file, seconds_left } => {
            let days = seconds_left / 86_400;
            tracing::warn!("certificate {} expires in {days} days: renew it", path(&file));
        }
    }
}
