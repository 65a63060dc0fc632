//! Stored ACME certificates, for hosts of rules with `tls: auto`.

use std::fmt;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::RedisMillis;
use crate::duration;
use crate::value::ReadError;
use crate::value::secret::Secret;
use crate::value::secret_key::SecretKey;

/// Doubles with each further failed order of a host.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// After an order; or half the lifetime, if shorter. Otherwise a wrong clock of Redis would cause order after
/// order.
const EARLIEST_RENEWAL: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCertificate {
    pub host: String,
    /// Distinguishes certificates of one host.
    pub id: String,
    /// PEM.
    pub chain: String,
    /// Encrypted PEM.
    #[serde(rename = "key")]
    pub sealed_key: String,
    /// Seconds since 1970.
    pub not_before: u64,
    pub not_after: u64,
    /// URL.
    pub directory: String,
}

impl StoredCertificate {
    /// `validity` is its start and its end, in seconds since 1970.
    pub fn seal(
        host: &str,
        directory: &str,
        chain: String,
        key: &Secret,
        validity: (u64, u64),
        secret_key: &SecretKey,
    ) -> Result<Self, String> {
        let sealed_key = secret_key.encrypt(&context(host), key.expose().as_bytes())?;
        let digest = digest(&SHA256, chain.as_bytes());
        let id = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let (not_before, not_after) = validity;
        let (host, directory) = (host.to_owned(), directory.to_owned());
        Ok(Self { host, id, chain, sealed_key, not_before, not_after, directory })
    }

    pub fn status(&self) -> CertificateStatus {
        let certificate = IssuedCertificate {
            id: self.id.clone(),
            not_before: self.not_before,
            not_after: self.not_after,
            stored_at: self.not_before.saturating_mul(1000),
            directory: self.directory.clone(),
        };
        CertificateStatus { certificate: Some(certificate), ..CertificateStatus::default() }
    }

    pub fn open(&self, key: Option<&SecretKey>) -> Result<Secret, ReadError> {
        let plain = key.ok_or(ReadError::NoKey)?.decrypt(&context(&self.host), &self.sealed_key)?;
        Ok(Secret::new(String::from_utf8_lossy(&plain)))
    }
}

impl fmt::Debug for StoredCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "certificate {} for {} until {}", self.id, self.host, self.not_after)
    }
}

/// Stored for another host, a key cannot be decrypted.
fn context(host: &str) -> String {
    format!("kubeleet certificate {host}")
}

pub fn seal_account(directory: &str, credentials: &str, key: &SecretKey) -> Result<String, String> {
    key.encrypt(&account_context(directory), credentials.as_bytes())
}

pub fn open_account(directory: &str, sealed: &str, key: &SecretKey) -> Result<Secret, ReadError> {
    let plain = key.decrypt(&account_context(directory), sealed)?;
    Ok(Secret::new(String::from_utf8_lossy(&plain)))
}

fn account_context(directory: &str) -> String {
    format!("kubeleet acme account {directory}")
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateStatus {
    pub certificate: Option<IssuedCertificate>,
    /// Orders since the last success.
    pub attempts: u32,
    /// The order in progress.
    pub begun_at: Option<RedisMillis>,
    /// Since the last success.
    pub failure: Option<OrderFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub id: String,
    /// Seconds since 1970.
    pub not_before: u64,
    pub not_after: u64,
    pub stored_at: RedisMillis,
    pub directory: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderFailure {
    pub error: String,
    pub at: RedisMillis,
    pub wait: Duration,
}

impl CertificateStatus {
    /// Time until an order from this directory is due. A stored time in the future counts as now.
    pub fn wait(&self, directory: &str, now: RedisMillis) -> Duration {
        let due = |since: RedisMillis, wait: Duration| since.min(now).saturating_add(millis(wait));
        let renewal = self.certificate.as_ref().map_or(0, |certificate| {
            let life = certificate.not_after.saturating_sub(certificate.not_before);
            let earliest = due(certificate.stored_at, EARLIEST_RENEWAL.min(Duration::from_secs(life / 2)));
            // A certificate of another directory does not count, for example after a trial.
            let aged = certificate.not_before.saturating_add(life / 3 * 2 + life % 3).saturating_mul(1000);
            if certificate.directory == directory { aged.max(earliest) } else { 0 }
        });
        let failed = self.failure.as_ref().map_or(0, |failure| due(failure.at, failure.wait));
        // The process has ended. The first time this says nothing about the host.
        let interrupted =
            self.begun_at.map_or(0, |begun| due(begun, wait_after(self.attempts.saturating_sub(1), None)));
        Duration::from_millis(renewal.max(failed).max(interrupted).saturating_sub(now))
    }
}

fn millis(duration: Duration) -> RedisMillis {
    duration.as_millis().try_into().unwrap_or(RedisMillis::MAX)
}

pub fn wait_after(failures: u32, asked: Option<Duration>) -> Duration {
    let own = match failures {
        0 => Duration::ZERO,
        failures => duration::delay(FIRST_WAIT, LONGEST_WAIT, failures - 1),
    };
    own.max(asked.unwrap_or_default().min(LONGEST_ASKED_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::secret_key::DecryptError;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    const NOW: u64 = 100 * DAY;

    fn certificate(not_before: u64, life: u64) -> CertificateStatus {
        let certificate = IssuedCertificate {
            id: "1".to_owned(),
            not_before,
            not_after: not_before + life,
            stored_at: not_before * 1000,
            directory: "d".to_owned(),
        };
        CertificateStatus { certificate: Some(certificate), ..CertificateStatus::default() }
    }

    fn wait_seconds(status: &CertificateStatus) -> u64 {
        status.wait("d", NOW * 1000).as_secs()
    }

    #[test]
    fn a_certificate_is_renewed_when_two_thirds_of_its_life_are_over() {
        for (status, expected) in [
            (CertificateStatus::default(), 0),
            (certificate(NOW, 90 * DAY), 60 * DAY),
            (certificate(NOW - 59 * DAY, 90 * DAY), DAY),
            (certificate(NOW - 60 * DAY, 90 * DAY), 0),
            (certificate(NOW - 91 * DAY, 90 * DAY), 0),
            (certificate(NOW, 30), 20),
        ] {
            assert_eq!(wait_seconds(&status), expected, "{status:?}");
        }
        assert_eq!(certificate(NOW, 90 * DAY).wait("other", NOW * 1000), Duration::ZERO, "another directory");
    }

    #[test]
    fn a_wrong_clock_orders_at_most_once_a_day() {
        let mut status = certificate(NOW - 1000 * HOUR, 90 * HOUR);
        let issued = |status: &mut CertificateStatus, at: u64| {
            status.certificate.as_mut().unwrap().stored_at = at * 1000;
        };
        // Expired by Redis' clock, but ordered an hour ago.
        issued(&mut status, NOW - HOUR);
        assert_eq!(wait_seconds(&status), 23 * HOUR);
        // By a former master whose clock was ahead: counts as now.
        issued(&mut status, NOW + 1000 * DAY);
        assert_eq!(wait_seconds(&status), DAY);
    }

    #[test]
    fn a_failed_order_waits_and_an_interrupted_one_does_not_the_first_time() {
        let failed = |at: u64, wait: u64| {
            let (error, wait) = ("no".to_owned(), Duration::from_secs(wait));
            Some(OrderFailure { error, at: at * 1000, wait })
        };
        for (attempts, begun_at, failure, expected) in [
            (1, None, failed(NOW - 10, 60), 50),
            (1, None, failed(NOW - 60, 60), 0),
            (1, None, failed(NOW + DAY, 60), 60),
            (1, Some(NOW), None, 0),
            (2, Some(NOW - 10), None, 50),
            (3, Some(NOW - 10), None, 110),
            (2, Some(NOW + DAY), None, 60),
            (2, Some(NOW - 10), failed(NOW - 20, DAY), DAY - 20),
        ] {
            let begun_at = begun_at.map(|seconds| seconds * 1000);
            let status = CertificateStatus { certificate: None, attempts, begun_at, failure };
            assert_eq!(wait_seconds(&status), expected, "{status:?}");
        }
    }

    #[test]
    fn the_wait_doubles_from_a_minute_to_a_day_unless_the_server_asks_for_more() {
        let seconds =
            |failures, asked: Option<u64>| wait_after(failures, asked.map(Duration::from_secs)).as_secs();
        for (failures, asked, expected) in [
            (0, None, 0),
            (1, None, 60),
            (2, None, 120),
            (11, None, 61_440),
            (12, None, DAY),
            (u32::MAX, None, DAY),
            (1, Some(10), 60),
            (1, Some(3600), 3600),
            (1, Some(1000 * DAY), 7 * DAY),
        ] {
            assert_eq!(seconds(failures, asked), expected, "{failures} {asked:?}");
        }
    }

    #[test]
    fn a_key_is_bound_to_its_host_and_an_account_to_its_directory() {
        let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let pem = Secret::new("-----BEGIN PRIVATE KEY-----");
        let stored = StoredCertificate::seal("a.example", "d", "chain".into(), &pem, (1, 2), &key).unwrap();
        assert_eq!(stored.open(Some(&key)).unwrap(), pem);
        assert_eq!(stored.open(None), Err(ReadError::NoKey));
        let moved = StoredCertificate { host: "b.example".to_owned(), ..stored.clone() };
        assert_eq!(moved.open(Some(&key)), Err(ReadError::Decrypt(DecryptError::Changed)));
        assert!(!format!("{stored:?}").contains(&stored.sealed_key));
        let account = seal_account("d", "{}", &key).unwrap();
        assert_eq!(open_account("d", &account, &key).unwrap().expose(), "{}");
        assert!(open_account("e", &account, &key).is_err());
    }
}
