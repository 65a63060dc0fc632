//! Jobs and crons: counters, the end of a job, and the ticks of a cron.

use std::collections::{BTreeMap, BTreeSet};

use redis::cmd;

use crate::json::to_json;
use crate::loaded::fields;
use crate::reply::{HashFields, read, unexpected, word};
use crate::scripts::{cron_tick, job_count, job_end};
use crate::service::confirm::WriteReceipt;
use crate::service::service_fields;
use crate::service::stored_spec::SpecFile;
use crate::{Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{NodeName, PodId, ServiceName, WriteId};
use model::pod::EndedRun;
use model::service::{CronProgress, JobProgress, Service};
use model::spec::{Kind, PodSpec, ServiceFields};

const BATCH: usize = 250;

#[derive(Debug, Clone, PartialEq)]
pub struct IndexResult {
    pub failures: u32,
    pub at: RedisMillis,
    pub node: Option<NodeName>,
    pub exit_code: Option<i64>,
    pub run: Option<EndedRun>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobResults {
    pub done: BTreeMap<u32, IndexResult>,
    /// Contains also indices that are complete by now.
    pub failed: BTreeMap<u32, IndexResult>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobIndices {
    pub done: BTreeSet<u32>,
    /// Contains also indices that are complete by now.
    pub failed: BTreeMap<u32, IndexResult>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronTick {
    /// In seconds since 1970; 0 for a manual run.
    pub tick: i64,
    /// All taken ticks, in the format of [`model::service::cron::Ticks`].
    pub ticks: String,
    pub missed: usize,
    pub skipped: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TickOutcome {
    Taken(WriteReceipt),
    /// Read the cron again.
    Changed,
    NameTaken,
}

type IndexEntries = Vec<(String, Vec<u8>)>;
type IndexTexts = BTreeMap<String, String>;

impl Store {
    pub async fn job_results(&self, job: &ServiceName) -> Result<JobResults, StoreError> {
        let (done, failed) = self.result_entries(job).await?;
        Ok(JobResults { done: results(done), failed: results(failed) })
    }

    async fn result_entries(&self, job: &ServiceName) -> Result<(IndexEntries, IndexEntries), StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("HGETALL").arg(keys::done(job));
        pipe.cmd("HGETALL").arg(keys::tries(job));
        read("reading the results of a job", self.link.pipeline(&pipe).await?)
    }

    pub(crate) async fn saved_results(
        &self,
        job: &ServiceName,
    ) -> Result<(IndexTexts, IndexTexts), StoreError> {
        let (done, failed) = self.result_entries(job).await?;
        let text = |(index, value): (String, Vec<u8>)| (index, String::from_utf8_lossy(&value).into_owned());
        Ok((done.into_iter().map(text).collect(), failed.into_iter().map(text).collect()))
    }

    pub async fn job_indices(&self, job: &ServiceName) -> Result<JobIndices, StoreError> {
        let mut pipe = redis::pipe();
        pipe.cmd("HKEYS").arg(keys::done(job));
        pipe.cmd("HGETALL").arg(keys::tries(job));
        let what = "reading the indices of a job";
        let (done, failed): (Vec<String>, Vec<(String, Vec<u8>)>) =
            read(what, self.link.pipeline(&pipe).await?)?;
        let done = done.into_iter().filter_map(|index| index.parse().ok()).collect();
        Ok(JobIndices { done, failed: results(failed) })
    }

    pub async fn job_completions(&self, job: &ServiceName) -> Result<u64, StoreError> {
        self.link.query(cmd("HLEN").arg(keys::done(job))).await
    }

    /// `failure` is a word and a sentence. Returns false if the job has changed.
    pub async fn end_job(
        &self,
        job: &ServiceName,
        failure: Option<(&str, &str)>,
    ) -> Result<bool, StoreError> {
        let call = job_end::Head {
            service_key: keys::service(job),
            done: keys::done(job),
            service: job,
            failure: failure.map(|(reason, message)| format!("{reason} {message}")),
        }
        .call();
        match word("ending a job", self.link.script(&call).await?)?.as_str() {
            "OK" => Ok(true),
            "CHANGED" => Ok(false),
            other => Err(unexpected("ending a job", other)),
        }
    }

    /// Returns the number of newly complete indices.
    pub async fn count_job_pods(&self, job: &ServiceName, pods: &[PodId]) -> Result<usize, StoreError> {
        let mut counted = 0;
        for chunk in pods.chunks(BATCH) {
            let mut call = job_count::Head {
                service_key: keys::service(job),
                done: keys::done(job),
                tries: keys::tries(job),
                service: job,
            }
            .call();
            for pod in chunk {
                call.add(job_count::Pod { pod_key: keys::pod(pod), uuid: pod });
            }
            counted += read::<usize>("counting pods of a job", self.link.script(&call).await?)?;
        }
        Ok(counted)
    }

    /// Returns the crons among these services, and those of the jobs among them.
    pub async fn crons_among(&self, names: &[ServiceName]) -> Result<BTreeSet<ServiceName>, StoreError> {
        let get = |name: &ServiceName| fields(keys::service(name), &["kind", "of_cron"]);
        let cron = |name: &ServiceName, reply| {
            let (kind, of_cron): (Option<String>, Option<String>) = read("reading what services are", reply)?;
            let of = of_cron.and_then(|text| ServiceName::new(text.split(' ').next()?).ok());
            Ok(if kind.as_deref() == Some("cron") { Some(name.clone()) } else { of })
        };
        Ok(self.load(names, get, cron).await?.found().into_iter().collect())
    }

    /// Returns the jobs, oldest first, with tick or time of the manual run, in seconds since 1970.
    pub async fn runs_of(&self, cron: &ServiceName) -> Result<Vec<(ServiceName, i64)>, StoreError> {
        let mut range = cmd("ZRANGE");
        range.arg(keys::runs(cron)).arg(0).arg(-1).arg("WITHSCORES");
        let found: Vec<(String, f64)> = self.link.query(&range).await?;
        Ok(found
            .into_iter()
            .filter_map(|(name, at)| Some((ServiceName::new(&name).ok()?, at as i64)))
            .collect())
    }

    pub async fn forget_runs(&self, cron: &ServiceName, jobs: &[ServiceName]) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut remove = cmd("ZREM");
        remove.arg(keys::runs(cron));
        for job in jobs {
            remove.arg(job.as_str());
        }
        self.link.query(&remove).await
    }

    /// The cron must be unchanged since it was read.
    pub async fn take_tick(
        &self,
        cron: &Service,
        job: &ServiceName,
        tick: &CronTick,
    ) -> Result<TickOutcome, StoreError> {
        let what = "taking a tick";
        let write = WriteId::random();
        let pod = PodSpec { kind: Kind::Job, ..cron.pod.clone() };
        let file = SpecFile::new(job, &pod, &cron.fields);
        let (id, policy) = (file.id(), cron.fields.job.clone().unwrap_or_default());
        let completions = policy.completions;
        let fields = ServiceFields { update: None, cron: None, job: Some(policy), ..cron.fields.clone() };
        let call = cron_tick::Head {
            cron_key: keys::service(&cron.name),
            job_key: keys::service(job),
            services: keys::SERVICES,
            spec_key: keys::spec(&id),
            unconfirmed: keys::UNCONFIRMED,
            former_specs: keys::FORMER_SPECS,
            runs: keys::runs(&cron.name),
            done: keys::done(job),
            tries: keys::tries(job),
            relations: keys::RELATIONS,
            cron: &cron.name,
            seen_write: &cron.schedule.write,
            seen_ticks: &cron.schedule.ticks_text,
            ticks: &tick.ticks,
            tick: tick.tick,
            skipped: tick.skipped.as_deref(),
            missed: tick.missed,
            job,
            spec: &id,
            spec_text: to_json(&file),
            fingerprint: file.fingerprint(),
            completions,
            related: service_fields::related(&fields, pod.kind),
            fields: to_json(&fields),
            write: &write,
        }
        .call();
        let (reply, receipt) = self.write_service(job, write, &call).await?;
        match word(what, reply)?.as_str() {
            "OK" => Ok(TickOutcome::Taken(receipt)),
            "CHANGED" => Ok(TickOutcome::Changed),
            "EXISTS" => Ok(TickOutcome::NameTaken),
            other => Err(unexpected(what, other)),
        }
    }
}

fn results(fields: Vec<(String, Vec<u8>)>) -> BTreeMap<u32, IndexResult> {
    let result = |(index, value): (String, Vec<u8>)| Some((index.parse().ok()?, result(&value)));
    fields.into_iter().filter_map(result).collect()
}

/// Reads `<failures> <time> <node> <exit code> <run>`.
fn result(value: &[u8]) -> IndexResult {
    let text = String::from_utf8_lossy(value);
    let mut parts = text.splitn(5, ' ');
    let mut next = || parts.next().unwrap_or_default();
    IndexResult {
        failures: next().parse().unwrap_or_default(),
        at: next().parse().unwrap_or_default(),
        node: NodeName::new(next()).ok(),
        exit_code: next().parse().ok(),
        run: serde_json::from_str(next()).ok(),
    }
}

pub(crate) fn job_progress(fields: &HashFields<'_>) -> JobProgress {
    let words = |field: &str| {
        let text = fields.text(field);
        let (first, rest) = text.split_once(' ')?;
        Some((first.to_owned(), rest.to_owned()))
    };
    let number = |field: &str| fields.text(field).parse().ok();
    JobProgress {
        of_cron: words("of_cron")
            .and_then(|(cron, tick)| Some((ServiceName::new(&cron).ok()?, tick.parse().ok()?))),
        started_at: number("started_at"),
        ended_at: number("ended_at"),
        failure: words("failure"),
        failures: fields.text("failures").parse().unwrap_or_default(),
    }
}

pub(crate) fn cron_progress(fields: &HashFields<'_>) -> CronProgress {
    let ticks_text = fields.text("ticks");
    CronProgress {
        // The next tick overwrites invalid ticks.
        ticks: ticks_text.parse().unwrap_or_default(),
        ticks_text,
        since: fields.text("times_since").parse().unwrap_or_default(),
        write: fields.text("write"),
    }
}
