//! Loads ordered certificates, and saves them in a file for a restart without Redis.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use daemon::backoff::Backoff;
use daemon::state_file::StateFile;
use ingress::certificate_expires;
use ingress::certificates::stored::{OrderStanding, StoredCertificates};
use model::network::certificate::{CertificateStatus, StoredCertificate};
use store::{Store, StoreError, channel};
use tokio::time::sleep;

use super::auto_hosts::AutoHosts;

const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A fraction of the lifetime. Certificates should be renewed at a third.
const WARN_AT: u64 = 6;

pub(super) struct Follow {
    pub(super) store: Store,
    pub(super) stored: Arc<StoredCertificates>,
    pub(super) hosts: AutoHosts,
    pub(super) directory: String,
    pub(super) file: StateFile,
}

impl Follow {
    pub(super) fn read_file(&self) {
        let problem = match self.file.load::<Vec<StoredCertificate>>() {
            Ok(saved) => {
                let faults = saved.into_iter().flatten().filter_map(|saved| self.stored.serve(saved).err());
                faults.reduce(|first, _| first)
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            let file = self.file.path().display();
            tracing::warn!("certificates in {file} cannot be read: {problem}; they are read from Redis");
        }
    }

    pub(super) async fn run(mut self) {
        let mut messages = self.store.subscribe(channel::CERTIFICATES);
        let mut backoff = Backoff::starting_at(Duration::from_millis(100));
        let mut logged = Logged::default();
        // A message names one host. The others wait for the next check, so that many orders do not cause full
        // reads.
        let mut named = None;
        let mut check_at = Instant::now();
        loop {
            let hosts = self.hosts.hosts();
            let is_check = Instant::now() >= check_at;
            let named_now = named.take().filter(|host| !is_check && hosts.contains(host));
            let looked_at = named_now.map_or_else(|| hosts.clone(), |host| vec![host]);
            match self.look(&hosts, &looked_at, &mut logged).await {
                Ok(()) => {
                    backoff.reset();
                    if looked_at.len() == hosts.len() {
                        check_at = Instant::now() + CHECK_INTERVAL;
                    }
                    tokio::select! {
                        hint = messages.next() => named = String::from_utf8(hint.to_vec()).ok(),
                        () = self.hosts.changed() => {}
                        () = sleep(check_at.saturating_duration_since(Instant::now())) => {}
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "certificates cannot be read; the known ones are served");
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    async fn look(
        &self,
        hosts: &[String],
        looked_at: &[String],
        logged: &mut Logged,
    ) -> Result<(), StoreError> {
        let gone = self.stored.retain(hosts);
        for host in &gone {
            certificate_expires(&metric_name(host), f64::NAN);
            tracing::info!("no rule wants the certificate of {host} any more: it is not served");
        }
        logged.retain(hosts);
        let mut has_changed = !gone.is_empty();
        if !looked_at.is_empty() {
            let (now, statuses) = self.store.certificate_statuses(looked_at).await?;
            for (host, status) in looked_at.iter().zip(statuses) {
                match status {
                    Ok(status) => {
                        has_changed |= self.load(host, &status, logged).await?;
                        let (read_at, wait) = (Instant::now(), status.wait(&self.directory, now));
                        self.stored.set_standing(host, OrderStanding { status, read_at, wait });
                    }
                    Err(error) => logged.problem(host, &error.to_string()),
                }
            }
        }
        self.measure(logged);
        if has_changed {
            self.save().await;
        }
        Ok(())
    }

    /// A missing record removes nothing: the orderer restores it.
    async fn load(
        &self,
        host: &str,
        status: &CertificateStatus,
        logged: &mut Logged,
    ) -> Result<bool, StoreError> {
        let Some(issued) = &status.certificate else { return Ok(false) };
        if self.stored.id(host).as_ref() == Some(&issued.id) || logged.is_faulty(host, &issued.id) {
            return Ok(false);
        }
        let problem = match self.store.certificate(host).await {
            Ok(Some(certificate)) => {
                let (id, end) = (certificate.id.clone(), certificate.not_after);
                match self.stored.serve(certificate) {
                    Ok(()) => {
                        let days = seconds_left(end) / 86_400;
                        tracing::info!("the certificate of {host} is loaded; it expires in {days} days");
                        logged.loaded(host);
                        return Ok(true);
                    }
                    Err(problem) => {
                        logged.faulty(host, id);
                        problem
                    }
                }
            }
            Ok(None) => return Ok(false),
            Err(error) if error.is_broken_key() => error.to_string(),
            Err(error) => return Err(error),
        };
        logged.problem(host, &problem);
        Ok(false)
    }

    fn measure(&self, logged: &mut Logged) {
        for certificate in self.stored.all() {
            let left = seconds_left(certificate.not_after);
            certificate_expires(&metric_name(&certificate.host), left as f64);
            let life = certificate.not_after.saturating_sub(certificate.not_before);
            if left < (life / WARN_AT).cast_signed() && logged.note_warning(&certificate.host) {
                let (host, hours) = (&certificate.host, left / 3600);
                tracing::warn!(
                    "the certificate of {host} expires in {hours} h and was not renewed: see `kubeleet route ls`"
                );
            }
        }
    }

    async fn save(&self) {
        let text = serde_json::to_string(&self.stored.all()).expect("texts and numbers serialize");
        if let Err(error) = self.file.write_on_thread(text.into_bytes()).await {
            let file = self.file.path().display();
            tracing::warn!(
                "{file} cannot be written: {error}; a proxy that is restarted without Redis has no such certificates"
            );
        }
    }
}

fn metric_name(host: &str) -> String {
    format!("certificate:{host}")
}

fn seconds_left(end: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    end.cast_signed().saturating_sub(now.cast_signed())
}

#[derive(Default)]
struct Logged {
    problems: HashMap<String, String>,
    faulty: HashMap<String, String>,
    warned: HashMap<String, Instant>,
}

impl Logged {
    fn retain(&mut self, hosts: &[String]) {
        let is_known = |host: &String| hosts.binary_search(host).is_ok();
        self.problems.retain(|host, _| is_known(host));
        self.faulty.retain(|host, _| is_known(host));
        self.warned.retain(|host, _| is_known(host));
    }

    fn problem(&mut self, host: &str, problem: &str) {
        if self.problems.get(host).is_none_or(|known| known != problem) {
            tracing::warn!(
                "the certificate of {host} is not served as it is in Redis (certificate:{host}): {problem}. \
                 DEL it to have it ordered again"
            );
            self.problems.insert(host.to_owned(), problem.to_owned());
        }
    }

    fn faulty(&mut self, host: &str, id: String) {
        self.faulty.insert(host.to_owned(), id);
    }

    fn is_faulty(&self, host: &str, id: &str) -> bool {
        self.faulty.get(host).is_some_and(|known| known == id)
    }

    fn loaded(&mut self, host: &str) {
        self.problems.remove(host);
        self.faulty.remove(host);
        self.warned.remove(host);
    }

    fn note_warning(&mut self, host: &str) -> bool {
        let is_due = self.warned.get(host).is_none_or(|at| at.elapsed() >= DAY);
        if is_due {
            self.warned.insert(host.to_owned(), Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use model::value::secret::Secret;
    use model::value::secret_key::SecretKey;
    use routing::snapshot::RoutingSnapshot;
    use store::LinkOptions;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn a_faulty_certificate_in_the_file_keeps_no_other_from_being_served() {
        let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
        let stored = |host: &str| {
            let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
            let pem = Secret::new(made.signing_key.serialize_pem());
            StoredCertificate::seal(host, "d", made.cert.pem(), &pem, (1, 2), &key).unwrap()
        };
        let faulty = StoredCertificate { chain: "none".to_owned(), ..stored("a.example") };
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::new(folder.path().join("certificates.json"));
        file.save(&[faulty, stored("b.example")]).unwrap();
        let snapshot = RoutingSnapshot::default();
        let follow = Follow {
            store: Store::new("redis://127.0.0.1:1".parse().unwrap(), LinkOptions::default()),
            stored: Arc::new(StoredCertificates::new(key.clone())),
            hosts: AutoHosts::new(watch::channel(Arc::new(snapshot)).1),
            directory: "d".to_owned(),
            file,
        };
        follow.read_file();
        assert_eq!(["a.example", "b.example"].map(|host| follow.stored.id(host).is_some()), [false, true]);
    }
}
