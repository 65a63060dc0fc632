//! Services: their desired state. Writes wait for the replicas before they are acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::{Value, cmd};

use crate::json::to_json;
use crate::loaded::{Loaded, all_fields};
use crate::pod::reconciling::{CreateOutcome, ReplicaPlace, create_call, read_created};
use crate::reply::{HashFields, corrupt, read, sorted_names, unexpected, verdict, word};
use crate::scripts::{Call, service_delete, service_forget, service_put, service_restart, service_scale};
use crate::service::confirm::WriteReceipt;
use crate::service::jobs::{cron_progress, job_progress};
use crate::service::rollout_marks::rollout_marks;
use crate::service::service_fields;
use crate::service::stored_spec::SpecFile;
use crate::value::value_rollouts::ValueRollout;
use crate::{FormerGeneration, Store, StoreError, keys};
use model::RedisMillis;
use model::ids::{ServiceName, SpecId, WriteId};
use model::network::ingress::{IngressRule, alias_lines, callers_line};
use model::pod::image::{self, ImageContent};
use model::service::members::Members;
use model::service::moves::Moves;
use model::service::{CronProgress, JobProgress, PODS_CREATED_INLINE, Service, ServiceState};
use model::spec::{CronPolicy, DesiredService, Kind, MAX_REPLICAS, Mode, PodSpec, ServiceFields};

const SPECS_PER_READ: usize = 250;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutMode {
    Create,
    Replace,
    Upsert,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PutOutcome {
    Created(Box<Service>),
    Replaced {
        generation: u64,
    },
    /// Another field than the pod specification changed.
    Scaled {
        generation: u64,
    },
    Unchanged {
        generation: u64,
    },
    Exists,
    Missing,
    Deleting,
    Conflict {
        revision: u64,
    },
    OtherKind {
        kind: Kind,
    },
    /// Of the same kind.
    OtherMode {
        mode: Mode,
    },
    Immutable,
    RouteTaken {
        /// `<host><path>`, or `tcp:<port>`.
        route: String,
        service: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOutcome {
    Scaled {
        before: u32,
    },
    Missing,
    Deleting,
    Conflict {
        revision: u64,
    },
    OtherKind {
        kind: Kind,
    },
    /// It has one pod on each eligible node.
    Global,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartOutcome {
    Restarted {
        generation: u64,
    },
    Missing,
    Deleting,
    Conflict {
        revision: u64,
    },
    OtherKind {
        kind: Kind,
    },
    /// It was created or restarted after the change that triggered this.
    DoneBefore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    Deleted,
    Missing,
    Conflict { revision: u64 },
}

impl Store {
    /// Overwrites, unless an `expected` revision is given.
    ///
    /// # Errors
    /// An unconfirmed write is not an error: see [`WriteReceipt::durability`].
    pub async fn put_service(
        &self,
        desired: &DesiredService,
        mode: PutMode,
        expected: Option<u64>,
    ) -> Result<(PutOutcome, WriteReceipt), StoreError> {
        self.put(desired, mode, expected, PutCause::User).await
    }

    /// Returns a service to a former generation for a user, who can undo that, too. Ends a manual pause.
    pub async fn undo_service(
        &self,
        service: &Service,
        to: &FormerGeneration,
        expected: Option<u64>,
    ) -> Result<(PutOutcome, WriteReceipt), StoreError> {
        let cause = PutCause::Undo(to.spec.as_ref());
        self.put(&to.desired(service), PutMode::Replace, expected, cause).await
    }

    /// Returns false if the service has changed since it was read.
    pub async fn roll_back(
        &self,
        service: &Service,
        to: &FormerGeneration,
        why: &str,
    ) -> Result<bool, StoreError> {
        let (cause, revision) = (PutCause::Failure(to.spec.as_ref(), why), Some(service.revision));
        let (outcome, _) = self.put(&to.desired(service), PutMode::Replace, revision, cause).await?;
        Ok(matches!(outcome, PutOutcome::Replaced { .. }))
    }

    async fn put(
        &self,
        desired: &DesiredService,
        mode: PutMode,
        expected: Option<u64>,
        cause: PutCause<'_>,
    ) -> Result<(PutOutcome, WriteReceipt), StoreError> {
        let mut get = cmd("HGET");
        get.arg(keys::service(&desired.name)).arg("fields");
        loop {
            let seen: Option<Vec<u8>> = self.link.query(&get).await?;
            let write = WriteId::random();
            let put = put_call(desired, mode, expected, cause, &seen.unwrap_or_default(), &write);
            let (reply, receipt) = self.write_service(&desired.name, write, &put).await?;
            // `change` must be computed again.
            if let Some(outcome) = read_put(desired, reply)? {
                return Ok((outcome, receipt));
            }
        }
    }

    /// Also creates up to [`PODS_CREATED_INLINE`] pods, and returns their number.
    pub async fn create_service(
        &self,
        desired: &DesiredService,
    ) -> Result<(PutOutcome, usize, WriteReceipt), StoreError> {
        let write = WriteId::random();
        let put = put_call(desired, PutMode::Create, None, PutCause::User, &[], &write);
        // The id of the write is fresh, so the second script creates nothing if the first one refuses.
        let service = just_created(desired, 0);
        let first = service.first_replicas();
        let pods = (first.len() <= PODS_CREATED_INLINE as usize)
            .then(|| create_call(&service, &first, ReplicaPlace::First, Some(&write)));
        let (reply, created, receipt) =
            self.write_service_and(&desired.name, write, &put, pods.as_ref()).await?;
        let created = match created.map(read_created) {
            Some(Ok(CreateOutcome::Created(count))) => count,
            Some(Ok(CreateOutcome::Changed | CreateOutcome::Unconfirmed) | Err(_)) | None => 0,
        };
        let outcome = read_put(desired, reply)?;
        Ok((outcome.ok_or_else(|| unexpected("creating a service", "CHANGED"))?, created, receipt))
    }

    pub async fn scale_service(
        &self,
        name: &ServiceName,
        replicas: u32,
    ) -> Result<(ScaleOutcome, WriteReceipt), StoreError> {
        self.scale_service_if(name, replicas, None).await
    }

    pub async fn scale_service_if(
        &self,
        name: &ServiceName,
        replicas: u32,
        expected: Option<u64>,
    ) -> Result<(ScaleOutcome, WriteReceipt), StoreError> {
        let what = "scaling a service";
        let write = WriteId::random();
        let scale = service_scale::Head {
            service_key: keys::service(name),
            unconfirmed: keys::UNCONFIRMED,
            service: name,
            replicas,
            expected_revision: expected,
            write: &write,
        }
        .call();
        let (reply, receipt) = self.write_service(name, write, &scale).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(before)) => ScaleOutcome::Scaled { before: read(what, before)? },
            ("CONFLICT", Some(revision)) => ScaleOutcome::Conflict { revision: read(what, revision)? },
            ("KIND", Some(kind)) => match kind_of(kind)? {
                (_, Mode::Global) => ScaleOutcome::Global,
                (kind, Mode::Replicated) => ScaleOutcome::OtherKind { kind },
            },
            ("MISSING", _) => ScaleOutcome::Missing,
            ("DELETING", _) => ScaleOutcome::Deleting,
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, receipt))
    }

    /// Not idempotent.
    pub async fn restart_service(
        &self,
        name: &ServiceName,
        expected: Option<u64>,
    ) -> Result<(RestartOutcome, WriteReceipt), StoreError> {
        self.restart(name, expected, None).await
    }

    /// Does nothing if it was created or restarted since the change.
    pub async fn restart_for(
        &self,
        name: &ServiceName,
        rollout: &ValueRollout,
    ) -> Result<RestartOutcome, StoreError> {
        Ok(self.restart(name, None, Some(rollout)).await?.0)
    }

    async fn restart(
        &self,
        name: &ServiceName,
        expected: Option<u64>,
        rollout: Option<&ValueRollout>,
    ) -> Result<(RestartOutcome, WriteReceipt), StoreError> {
        let what = "restarting a service";
        let cause = rollout.map(|ValueRollout { kind, name, version, .. }| {
            format!(", because {kind} {name} has version {version}")
        });
        // Not a hash of the content: pods with the old id must be replaced.
        let (spec, write) = (SpecId::random(), WriteId::random());
        let restart = service_restart::Head {
            service_key: keys::service(name),
            spec_key: keys::spec(&spec),
            unconfirmed: keys::UNCONFIRMED,
            former_specs: keys::FORMER_SPECS,
            history: keys::history(name),
            service: name,
            spec: &spec,
            expected_revision: expected,
            write: &write,
            since: rollout.map(|rollout| rollout.at),
            cause,
        }
        .call();
        let (reply, receipt) = self.write_service(name, write, &restart).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", Some(generation)) => RestartOutcome::Restarted { generation: read(what, generation)? },
            ("DONE", _) => RestartOutcome::DoneBefore,
            ("CONFLICT", Some(revision)) => RestartOutcome::Conflict { revision: read(what, revision)? },
            ("KIND", Some(kind)) => RestartOutcome::OtherKind { kind: kind_of(kind)?.0 },
            ("MISSING", _) => RestartOutcome::Missing,
            ("DELETING", _) => RestartOutcome::Deleting,
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, receipt))
    }

    /// Returns false if it does not exist.
    pub async fn delete_service(&self, name: &ServiceName) -> Result<(bool, WriteReceipt), StoreError> {
        let (outcome, receipt) = self.delete_service_if(name, None).await?;
        Ok((outcome == DeleteOutcome::Deleted, receipt))
    }

    pub async fn delete_service_if(
        &self,
        name: &ServiceName,
        expected: Option<u64>,
    ) -> Result<(DeleteOutcome, WriteReceipt), StoreError> {
        let what = "deleting a service";
        let write = WriteId::random();
        let delete = service_delete::Head {
            service_key: keys::service(name),
            unconfirmed: keys::UNCONFIRMED,
            deleted: keys::DELETED_SERVICES,
            service: name,
            expected_revision: expected,
            write: &write,
        }
        .call();
        let (reply, receipt) = self.write_service(name, write, &delete).await?;
        let (answer, rest) = verdict(what, reply)?;
        let outcome = match (answer.as_str(), rest.into_iter().next()) {
            ("OK", _) => DeleteOutcome::Deleted,
            ("MISSING", _) => DeleteOutcome::Missing,
            ("CONFLICT", Some(revision)) => DeleteOutcome::Conflict { revision: read(what, revision)? },
            (other, _) => return Err(unexpected(what, other)),
        };
        Ok((outcome, receipt))
    }

    /// Returns false if it still has pods or is not being deleted.
    pub async fn forget_service(&self, service: &Service) -> Result<bool, StoreError> {
        let forget = service_forget::Head {
            service_key: keys::service(&service.name),
            services: keys::SERVICES,
            slots: keys::slots(&service.name),
            spec_key: keys::spec(&service.spec_id),
            routes: keys::ROUTES,
            relations: keys::RELATIONS,
            ep_key: keys::endpoints(&service.name),
            history: keys::history(&service.name),
            done: keys::done(&service.name),
            tries: keys::tries(&service.name),
            runs: keys::runs(&service.name),
            runs_of_cron: match &service.progress.of_cron {
                Some((cron, _)) => keys::runs(cron),
                None => "runs:".to_owned(),
            },
            service: &service.name,
        };
        Ok(word("forgetting a service", self.link.script(&forget.call()).await?)? == "OK")
    }

    pub async fn service_names(&self) -> Result<Vec<ServiceName>, StoreError> {
        Ok(sorted_names(self.members_or_records(keys::SERVICES, "service:").await?))
    }

    pub async fn service(&self, name: &ServiceName) -> Result<Option<Service>, StoreError> {
        self.services(std::slice::from_ref(name)).await?.only()
    }

    pub async fn services(&self, names: &[ServiceName]) -> Result<Loaded<Service>, StoreError> {
        self.load(names, |name| all_fields(keys::service(name)), read_service).await
    }

    /// Returns the numbers of created and desired pods; 0 are desired during deletion. `None` if the service
    /// is missing or unreadable, a job with pods, which creates others as these end, or global: its members
    /// tell.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn creation_progress(
        &self,
        names: &[ServiceName],
    ) -> Result<Vec<Option<(u64, u64)>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipe = redis::pipe();
        for name in names {
            pipe.cmd("HLEN").arg(keys::slots(name));
            pipe.cmd("HMGET").arg(keys::service(name)).arg("replicas").arg("kind").arg("state");
        }
        type Fields = (u64, Option<Vec<u8>>, Option<Vec<u8>>);
        let mut replies = self.link.pipeline_each(pipe).await?.into_iter();
        let progress = |_| {
            let what = "reading the number of pods";
            let (created, service) = (replies.next()?, replies.next()?);
            let created: u64 = read(what, created.ok()?).ok()?;
            let (desired, kind, state): Fields = read(what, service.ok()?).ok()?;
            let is_deleting = state.is_some_and(|state| state == b"deleting");
            let desired = if is_deleting { 0 } else { desired };
            let has_numbers = kind.as_ref().is_none_or(|kind| created == 0 && kind != b"global");
            has_numbers.then_some((created, desired))
        };
        Ok(names.iter().map(progress).collect())
    }

    /// Cached, since a specification never changes.
    pub async fn pod_spec(&self, id: &SpecId) -> Result<Option<Arc<PodSpec>>, StoreError> {
        if let Some(spec) = self.specs.get(id) {
            return Ok(Some(spec));
        }
        let text: Option<Vec<u8>> = self.link.query(cmd("GET").arg(keys::spec(id))).await?;
        text.map(|text| self.remember_spec(id, &text)).transpose()
    }

    /// Fills the cache of [`Store::pod_spec`], which also reports missing or unreadable ones.
    pub async fn read_pod_specs(&self, ids: impl IntoIterator<Item = &SpecId>) -> Result<(), StoreError> {
        let unknown: BTreeSet<&SpecId> = ids.into_iter().filter(|id| self.specs.get(id).is_none()).collect();
        if unknown.len() < 2 {
            return Ok(());
        }
        for (id, text) in self.spec_texts(unknown).await? {
            let _unreadable = self.remember_spec(&id, text.as_bytes()).is_err();
        }
        Ok(())
    }

    pub async fn pinned_images(
        &self,
        service: &ServiceName,
        spec: &SpecId,
    ) -> Result<Vec<ImageContent>, StoreError> {
        let mut get = cmd("HGET");
        get.arg(keys::service(service)).arg(format!("images:{spec}"));
        let text: Option<Vec<u8>> = self.link.query(&get).await?;
        Ok(image::from_text(&String::from_utf8_lossy(&text.unwrap_or_default())))
    }

    /// Leaves out missing ones and invalid UTF-8.
    pub async fn spec_texts(
        &self,
        ids: impl IntoIterator<Item = &SpecId>,
    ) -> Result<BTreeMap<SpecId, String>, StoreError> {
        let ids: Vec<&SpecId> = ids.into_iter().collect();
        let mut texts = BTreeMap::new();
        for chunk in ids.chunks(SPECS_PER_READ) {
            let mut get = cmd("MGET");
            for id in chunk {
                get.arg(keys::spec(id));
            }
            let found: Vec<Option<Vec<u8>>> = self.link.query(&get).await?;
            let found = chunk.iter().zip(found);
            texts
                .extend(found.filter_map(|(id, text)| Some(((*id).clone(), String::from_utf8(text?).ok()?))));
        }
        Ok(texts)
    }

    fn remember_spec(&self, id: &SpecId, text: &[u8]) -> Result<Arc<PodSpec>, StoreError> {
        let pod = SpecFile::read(text).map_err(|e| corrupt(&format!("reading spec {id}"), e))?;
        Ok(self.specs.insert(id.clone(), pod))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutCause<'a> {
    User,
    /// The former specification, if known.
    Undo(Option<&'a SpecId>),
    Failure(Option<&'a SpecId>, &'a str),
}

fn put_call(
    desired: &DesiredService,
    mode: PutMode,
    expected: Option<u64>,
    cause: PutCause<'_>,
    seen: &[u8],
    write: &WriteId,
) -> Call<'static> {
    let file = SpecFile::new(&desired.name, &desired.pod, &desired.fields);
    let id = match cause {
        PutCause::Undo(Some(id)) | PutCause::Failure(Some(id), _) => id.clone(),
        PutCause::User | PutCause::Undo(None) | PutCause::Failure(None, _) => file.id(),
    };
    let mode = match mode {
        PutMode::Create => "create",
        PutMode::Replace => "replace",
        PutMode::Upsert => "upsert",
    };
    let (fields, change) = service_fields::replace(seen, &desired.fields);
    let ServiceFields { app, cron, .. } = &desired.fields;
    service_put::Head {
        service_key: keys::service(&desired.name),
        services: keys::SERVICES,
        spec_key: keys::spec(&id),
        unconfirmed: keys::UNCONFIRMED,
        former_specs: keys::FORMER_SPECS,
        service: &desired.name,
        mode,
        spec: &id,
        spec_text: to_json(&file),
        fingerprint: file.fingerprint(),
        replicas: desired.replicas,
        fields,
        seen_fields: seen,
        change,
        app: app.as_ref(),
        routes: keys::ROUTES,
        relations: keys::RELATIONS,
        history: keys::history(&desired.name),
        done: keys::done(&desired.name),
        tries: keys::tries(&desired.name),
        kind: kind_word(&desired.pod),
        times: cron.as_ref().map(CronPolicy::times_text),
        failure: if let PutCause::Failure(_, why) = cause { why } else { "" },
        undone: if let PutCause::Undo(_) = cause { "1" } else { "" },
        routes_text: routes(&desired.name, &desired.fields).join("\n"),
        related: service_fields::related(&desired.fields, desired.pod.kind),
        expected_revision: expected,
        write,
    }
    .call()
}

/// Returns lines `<route> <service> <port>`, then further ingress rules, restricted callers, and aliases.
fn routes(name: &ServiceName, fields: &ServiceFields) -> Vec<String> {
    let ServiceFields { app, ingress, allow_from, aliases, .. } = fields;
    let line = |rule: &IngressRule| format!("{} {}", rule.route(), rule.target(name));
    let callers = allow_from.as_ref().map(|allowed| callers_line(name, allowed));
    let aliases = app.iter().flat_map(|app| alias_lines(app, name, aliases));
    let options = ingress.iter().filter_map(|rule| rule.options(name));
    let options = options.map(|(route, words)| format!("{route} {words}"));
    ingress.iter().map(line).chain(options).chain(callers).chain(aliases).collect()
}

/// Returns `None` if the fields have changed since they were read.
fn read_put(desired: &DesiredService, reply: Value) -> Result<Option<PutOutcome>, StoreError> {
    let what = "storing a service";
    let (answer, rest) = verdict(what, reply)?;
    if answer == "ROUTE" {
        let (route, service) = read(what, Value::Array(rest))?;
        return Ok(Some(PutOutcome::RouteTaken { route, service }));
    }
    Ok(Some(match (answer.as_str(), rest.into_iter().next()) {
        ("CREATED", Some(now)) => PutOutcome::Created(Box::new(just_created(desired, read(what, now)?))),
        ("REPLACED", Some(generation)) => PutOutcome::Replaced { generation: read(what, generation)? },
        ("SCALED", Some(generation)) => PutOutcome::Scaled { generation: read(what, generation)? },
        ("UNCHANGED", Some(generation)) => PutOutcome::Unchanged { generation: read(what, generation)? },
        ("CONFLICT", Some(revision)) => PutOutcome::Conflict { revision: read(what, revision)? },
        ("KIND", Some(kind)) => match kind_of(kind)? {
            (kind, _) if kind != desired.pod.kind => PutOutcome::OtherKind { kind },
            (_, mode) => PutOutcome::OtherMode { mode },
        },
        ("EXISTS", _) => PutOutcome::Exists,
        ("MISSING", _) => PutOutcome::Missing,
        ("DELETING", _) => PutOutcome::Deleting,
        ("IMMUTABLE", _) => PutOutcome::Immutable,
        ("CHANGED", _) => return Ok(None),
        (other, _) => return Err(unexpected(what, other)),
    }))
}

fn kind_of(value: Value) -> Result<(Kind, Mode), StoreError> {
    let word: String = read("reading the kind of a service", value)?;
    Ok(read_kind(&word).unwrap_or_default())
}

/// The field `kind`: a service stays what it is, also global.
fn kind_word(pod: &PodSpec) -> &'static str {
    match (pod.kind, pod.mode) {
        (Kind::Service, Mode::Replicated) => "",
        (Kind::Service, Mode::Global) => "global",
        (kind, _) => kind.as_str(),
    }
}

fn read_kind(word: &str) -> Option<(Kind, Mode)> {
    match word {
        "" => Some((Kind::Service, Mode::Replicated)),
        "global" => Some((Kind::Service, Mode::Global)),
        "job" => Some((Kind::Job, Mode::Replicated)),
        "cron" => Some((Kind::Cron, Mode::Replicated)),
        _ => None,
    }
}

fn just_created(desired: &DesiredService, now: RedisMillis) -> Service {
    Service::created(desired.clone(), SpecFile::new(&desired.name, &desired.pod, &desired.fields).id(), now)
}

pub(crate) fn read_service(name: &ServiceName, value: Value) -> Result<Option<Service>, StoreError> {
    let what = format!("reading service {name}");
    let Some(fields) = HashFields::read(&what, value)? else { return Ok(None) };
    let pod = SpecFile::read(fields.text("spec_text").as_bytes())
        .map_err(|e| corrupt(&what, format!("spec_text: {e}")))?;
    let generation: u64 = fields.number("generation")?;
    let state = fields.text("state");
    let replicas: u32 = fields.number("replicas")?;
    if replicas > MAX_REPLICAS {
        return Err(corrupt(&what, format!("replicas is {replicas}, more than any service can have")));
    }
    let kind = fields.text("kind");
    let (kind, mode) = read_kind(&kind).ok_or_else(|| corrupt(&what, format!("kind is {kind:?}")))?;
    if kind != pod.kind {
        return Err(corrupt(&what, format!("kind is {kind}, but its pods are those of a {}", pod.kind)));
    }
    if mode != pod.mode {
        return Err(corrupt(&what, "kind and specification disagree on whether it is global"));
    }
    let spec_id: SpecId = fields.parse("spec")?;
    Ok(Some(Service {
        name: name.clone(),
        state: match state.as_str() {
            "active" => ServiceState::Active,
            "deleting" => ServiceState::Deleting,
            other => return Err(corrupt(&what, format!("state is {other:?}"))),
        },
        generation,
        revision: fields.number("revision")?,
        images: image::from_text(&fields.text(&format!("images:{spec_id}"))),
        spec_id,
        replicas,
        fields: service_fields::read(&what, &fields.text("fields"), kind)?,
        progress: if kind == Kind::Job { job_progress(&fields) } else { JobProgress::default() },
        schedule: if kind == Kind::Cron { cron_progress(&fields) } else { CronProgress::default() },
        rollout: rollout_marks(&fields, generation),
        moves: Moves::from_stored(fields.text("moves")),
        members: Members::from_stored(fields.text("members")),
        created_at: fields.number("created_at")?,
        updated_at: fields.number("updated_at")?,
        scaled_at: fields.text("scaled_at").parse().ok(),
        pod,
    }))
}
