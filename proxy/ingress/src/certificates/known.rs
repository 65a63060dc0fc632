//! The certificates of the directory, and their updates. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ring::digest::{Context, SHA256};

use super::choose::NameTable;
use super::files::{CertificateTexts, FoundCertificate};
use super::parse::{Certificate, CertificateError, parse};

const WARN_EVERY_SECONDS: u64 = 86_400;

#[derive(Default)]
pub(super) struct KnownCertificates(BTreeMap<String, KnownCertificate>);

#[derive(Default)]
struct KnownCertificate {
    digest: Option<Vec<u8>>,
    /// From earlier contents if the last ones are faulty.
    certificate: Option<Arc<Certificate>>,
    error: Option<CertificateError>,
    warned_at: Option<u64>,
}

/// With `is_kept`, the earlier certificate of a faulty file is still served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Read { file: String, names: Vec<String>, seconds_left: i64 },
    Faulty { file: String, error: CertificateError, is_kept: bool },
    KeyExposed { key_file: String },
    Gone { file: String },
    Expires { file: String, seconds_left: i64 },
}

impl KnownCertificates {
    /// Faulty files keep the previous certificate. Returns the events to log: each fault once, each expiry
    /// once a day.
    pub(super) fn update(&mut self, found: Vec<FoundCertificate>, now: u64) -> Vec<News> {
        let mut news = Vec::new();
        self.0.retain(|file, _| {
            let is_there = found.iter().any(|one| one.file == *file);
            if !is_there {
                news.push(News::Gone { file: file.clone() });
            }
            is_there
        });
        for one in found {
            let held = self.0.entry(one.file.clone()).or_default();
            held.update(one, now, &mut news);
        }
        self.warn_of_expiry(now, &mut news);
        news
    }

    pub(super) fn certificates(&self) -> Vec<Arc<Certificate>> {
        self.0.values().filter_map(|held| held.certificate.clone()).collect()
    }

    fn warn_of_expiry(&mut self, now: u64, news: &mut Vec<News>) {
        let certificates = self.certificates();
        let table = NameTable::new(&subjects(&certificates), now);
        for index in table.in_use() {
            let subject = &certificates[index].subject;
            let Some(held) = self.0.get_mut(&subject.file) else { continue };
            let is_due = held.warned_at.is_none_or(|at| now >= at + WARN_EVERY_SECONDS);
            if subject.validity.expires_soon(now) && is_due {
                held.warned_at = Some(now);
                let seconds_left = subject.validity.seconds_left(now);
                news.push(News::Expires { file: subject.file.clone(), seconds_left });
            }
        }
    }
}

pub(super) fn subjects(certificates: &[Arc<Certificate>]) -> Vec<&super::choose::ChoiceSubject> {
    certificates.iter().map(|certificate| &certificate.subject).collect()
}

impl KnownCertificate {
    fn update(&mut self, found: FoundCertificate, now: u64, news: &mut Vec<News>) {
        let FoundCertificate { file, key_file, texts } = found;
        let digest = texts.as_ref().ok().map(digest);
        if digest.is_some() && digest == self.digest {
            return;
        }
        self.digest = digest;
        let certificate = texts.and_then(|texts| {
            if texts.is_key_exposed {
                news.push(News::KeyExposed { key_file: key_file.clone() });
            }
            parse(&file, &texts.chain, &key_file, &texts.key)
        });
        match certificate.and_then(|certificate| self.unless_worse(certificate, now)) {
            Ok(certificate) => {
                let (names, validity) = (certificate.subject.names.clone(), certificate.subject.validity);
                news.push(News::Read { file, names, seconds_left: validity.seconds_left(now) });
                *self = Self {
                    digest: self.digest.take(),
                    certificate: Some(certificate.into()),
                    ..Self::default()
                };
            }
            Err(error) => {
                if self.error.as_ref() != Some(&error) {
                    let is_kept = self.certificate.is_some();
                    news.push(News::Faulty { file, error: error.clone(), is_kept });
                }
                self.error = Some(error);
            }
        }
    }

    fn unless_worse(&self, certificate: Certificate, now: u64) -> Result<Certificate, CertificateError> {
        let is_valid = |certificate: &Certificate| !certificate.subject.validity.is_expired(now);
        match !is_valid(&certificate) && self.certificate.as_deref().is_some_and(is_valid) {
            true => Err(CertificateError::Expired),
            false => Ok(certificate),
        }
    }
}

fn digest(texts: &CertificateTexts) -> Vec<u8> {
    let mut context = Context::new(&SHA256);
    // The length separates the two texts.
    context.update(&texts.chain.len().to_le_bytes());
    context.update(&texts.chain);
    context.update(&texts.key);
    context.finish().as_ref().to_vec()
}
