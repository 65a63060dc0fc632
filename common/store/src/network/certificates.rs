//! Certificates that proxies order by ACME, and ACME accounts. Keys arrive here encrypted.

use std::time::Duration;

use redis::{Value, cmd};

use crate::loaded::fields;
use crate::reply::{HashFields, corrupt, read, unexpected, verdict, word};
use crate::scripts::{certificate_begin, certificate_challenge, certificate_fail, certificate_store};
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::network::certificate::{CertificateStatus, IssuedCertificate, OrderFailure, StoredCertificate};

const RECORDS_PER_READ: usize = 1000;
const STATUS_FIELDS: [&str; 10] = [
    "id",
    "not_before",
    "not_after",
    "stored_at",
    "directory",
    "attempts",
    "begun_at",
    "error",
    "failed_at",
    "wait_ms",
];

pub type CertificateStatuses = Vec<Result<CertificateStatus, StoreError>>;

/// The response to the authority's HTTP-01 check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// Last part of the requested path.
    pub token: String,
    pub authorization: String,
}

impl Store {
    /// Also returns the time of Redis.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn certificate_statuses(
        &self,
        hosts: &[String],
    ) -> Result<(RedisMillis, CertificateStatuses), StoreError> {
        let what = "reading certificates";
        let mut statuses = Vec::with_capacity(hosts.len());
        let mut now = 0;
        for chunk in hosts.chunks(RECORDS_PER_READ) {
            let mut pipe = redis::pipe();
            pipe.cmd("TIME");
            for host in chunk {
                pipe.cmd("HMGET").arg(keys::certificate(host)).arg(&STATUS_FIELDS);
            }
            let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
            let time = replies.next().ok_or_else(|| unexpected(what, "nothing"))??;
            let (seconds, micros): (u64, u64) = read(what, time)?;
            now = seconds * 1000 + micros / 1000;
            statuses.extend(
                chunk.iter().zip(replies).map(|(host, reply)| reply.and_then(|reply| status(host, reply))),
            );
        }
        Ok((now, statuses))
    }

    pub async fn certificate(&self, host: &str) -> Result<Option<StoredCertificate>, StoreError> {
        let what = format!("the certificate of {host}");
        let reply: Value = self.link.query(cmd("HGETALL").arg(keys::certificate(host))).await?;
        let Some(fields) = HashFields::read(&what, reply)? else { return Ok(None) };
        let certificate = StoredCertificate {
            host: host.to_owned(),
            id: fields.text("id"),
            chain: fields.text("chain"),
            sealed_key: fields.text("key"),
            not_before: fields.number("not_before")?,
            not_after: fields.number("not_after")?,
            directory: fields.text("directory"),
        };
        Ok((!certificate.id.is_empty()).then_some(certificate))
    }

    /// Returns the number of orders since the last success, with this one; `None` if `holder` lost the lease.
    pub async fn begin_certificate(
        &self,
        host: &str,
        lease: &str,
        holder: &str,
        attempt: &str,
    ) -> Result<Option<u32>, StoreError> {
        let what = "beginning the order of a certificate";
        let (certificate_key, lease_key) = (keys::certificate(host), keys::lease(lease));
        let begin = certificate_begin::Head { certificate_key, lease_key, host, caller: holder, attempt };
        let (answer, rest) = verdict(what, self.link.script(&begin.call()).await?)?;
        match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(attempts)) => Ok(Some(read(what, attempts)?)),
            ("LEASE", _) => Ok(None),
            (other, _) => Err(unexpected(what, other)),
        }
    }

    /// Returns false if another process has begun an order for the host.
    pub async fn put_challenge(
        &self,
        host: &str,
        attempt: &str,
        challenge: &Challenge,
    ) -> Result<bool, StoreError> {
        let put = certificate_challenge::Head {
            certificate_key: keys::certificate(host),
            host,
            attempt,
            token: &challenge.token,
            authorization: &challenge.authorization,
        };
        Ok(word("storing a challenge", self.link.script(&put.call()).await?)? == "OK")
    }

    /// Returns `None` for an unreadable record.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn challenges(&self, hosts: &[String]) -> Result<Vec<Option<Challenge>>, StoreError> {
        let get = |host: &String| fields(keys::certificate(host), &["token", "authorization"]);
        let challenge = |_: &String, reply| {
            let fields: (Option<String>, Option<String>) = read("reading a challenge", reply)?;
            Ok(fields.0.zip(fields.1).map(|(token, authorization)| Challenge { token, authorization }))
        };
        Ok(self.load(hosts, get, challenge).await?.options().collect())
    }

    /// Keeps a stored one that lasts longer.
    pub async fn put_certificate(&self, certificate: &StoredCertificate) -> Result<(), StoreError> {
        let StoredCertificate { host, id, chain, sealed_key, not_before, not_after, directory } = certificate;
        let put = certificate_store::Head {
            certificate_key: keys::certificate(host),
            host,
            id,
            chain,
            key: sealed_key,
            not_before: *not_before,
            not_after: *not_after,
            directory,
        };
        word("storing a certificate", self.link.script(&put.call()).await?)?;
        Ok(())
    }

    /// Returns false if another process has begun an order.
    pub async fn fail_certificate(
        &self,
        host: &str,
        attempt: &str,
        failure: &str,
        wait: Duration,
    ) -> Result<bool, StoreError> {
        let certificate_key = keys::certificate(host);
        let fail = certificate_fail::Head { certificate_key, host, attempt, failure, wait_ms: wait };
        Ok(word("noting why an order failed", self.link.script(&fail.call()).await?)? == "OK")
    }

    /// Returns it encrypted.
    pub async fn acme_account(&self, directory: &str) -> Result<Option<String>, StoreError> {
        let mut get = cmd("HGET");
        get.arg(keys::ACME_ACCOUNTS).arg(directory);
        let sealed: Option<Vec<u8>> = self.link.query(&get).await?;
        let text =
            |bytes| String::from_utf8(bytes).map_err(|_| corrupt("the account for ACME", "it is no text"));
        sealed.map(text).transpose()
    }

    /// Keeps an existing account.
    pub async fn put_acme_account(&self, directory: &str, sealed: &str) -> Result<(), StoreError> {
        let mut put = cmd("HSETNX");
        put.arg(keys::ACME_ACCOUNTS).arg(directory).arg(sealed);
        self.link.query(&put).await
    }

    /// The directory no longer knows it.
    pub async fn forget_acme_account(&self, directory: &str) -> Result<(), StoreError> {
        let mut forget = cmd("HDEL");
        forget.arg(keys::ACME_ACCOUNTS).arg(directory);
        self.link.query(&forget).await
    }
}

fn status(host: &str, reply: Value) -> Result<CertificateStatus, StoreError> {
    let what = format!("the certificate of {host}");
    let values: Vec<Option<Vec<u8>>> = read(&what, reply)?;
    let fields = STATUS_FIELDS.iter().zip(values);
    let pairs = fields.filter_map(|(field, value)| Some([field.as_bytes().to_vec(), value?]));
    let pairs = pairs.flatten().map(Value::BulkString).collect();
    let Some(fields) = HashFields::read(&what, Value::Array(pairs))? else {
        return Ok(CertificateStatus::default());
    };
    let issued = IssuedCertificate {
        id: fields.text("id"),
        not_before: fields.number("not_before")?,
        not_after: fields.number("not_after")?,
        stored_at: fields.number("stored_at")?,
        directory: fields.text("directory"),
    };
    let failure = OrderFailure {
        error: fields.text("error"),
        at: fields.number("failed_at")?,
        wait: Duration::from_millis(fields.number("wait_ms")?),
    };
    let begun_at: u64 = fields.number("begun_at")?;
    Ok(CertificateStatus {
        certificate: (!issued.id.is_empty()).then_some(issued),
        attempts: fields.number("attempts")?,
        begun_at: (begun_at > 0).then_some(begun_at),
        failure: (!failure.error.is_empty()).then_some(failure),
    })
}
