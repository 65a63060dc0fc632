//! Recorded pods: records, slots of their services, and why they fit no node.

use std::collections::HashMap;

use redis::{Value, cmd};

use crate::loaded::{Loaded, all_fields, fields};
use crate::reply::{HashFields, RawFields, corrupt, names, parse, read};
use crate::{RedisKey, Store, StoreError, keys};
use model::RedisMillis;
use model::broken_key::BrokenKey;
use model::ids::{AssignmentId, PodId, ServiceName};
use model::network::ports_from_json;
use model::node::{ResourceIds, Resources};
use model::pod::image::{self, ImageContent};
use model::pod::lifecycle::Phase;
use model::pod::payload::Payload;
use model::pod::slot::Slot;
use model::pod::{EndedRun, PodRecord, Refusal};
use model::spec::MAX_MEMORY_BYTES;

impl Store {
    pub async fn has_owner(&self, pod: &PodRecord) -> Result<bool, StoreError> {
        let question = match &pod.service {
            Some(service) => cmd("EXISTS").arg(keys::service(service)).to_owned(),
            None => cmd("SISMEMBER").arg(keys::PUSHED).arg(pod.id.as_str()).to_owned(),
        };
        self.link.query(&question).await
    }

    /// Returns them sorted, without invalid entries. Read in pages: not a snapshot.
    pub async fn slots(&self, service: &ServiceName) -> Result<Vec<(Slot, PodId)>, StoreError> {
        Ok(self.slots_and_broken(service).await?.0)
    }

    /// Also returns an invalid entry, if there is one. An unreadable hash is an error.
    pub async fn slots_and_broken(
        &self,
        service: &ServiceName,
    ) -> Result<(Vec<(Slot, PodId)>, Option<BrokenKey>), StoreError> {
        let mut slots = HashMap::new();
        let mut broken = None;
        let mut cursor = 0u64;
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(keys::slots(service)).arg(cursor).arg("COUNT").arg(1000);
            let (next, page): (u64, RawFields) = self.link.query(&scan).await?;
            for (field, value) in page {
                match read_slot(&field, &value) {
                    Some((slot, id)) => drop(slots.insert(slot, id)),
                    None => {
                        let why = format!("{:?} is no slot", String::from_utf8_lossy(&field));
                        broken = Some(RedisKey::Slots(service).broken(&corrupt("reading slots", why)));
                    }
                }
            }
            if next == 0 {
                break;
            }
            cursor = next;
        }
        let mut slots: Vec<_> = slots.into_iter().collect();
        slots.sort_unstable_by_key(|(slot, _)| *slot);
        Ok((slots, broken))
    }

    pub async fn pushed_pods(&self) -> Result<Vec<PodId>, StoreError> {
        Ok(names(self.link.query(cmd("SMEMBERS").arg(keys::PUSHED)).await?))
    }

    pub async fn pod(&self, id: &PodId) -> Result<Option<PodRecord>, StoreError> {
        self.pods(std::slice::from_ref(id)).await?.only()
    }

    pub async fn pods(&self, ids: &[PodId]) -> Result<Loaded<PodRecord>, StoreError> {
        self.load(ids, |id| all_fields(keys::pod(id)), read_pod).await
    }

    /// Returns each assignment with a time within it; `None` without a readable record.
    ///
    /// # Errors
    /// Broken keys cause none.
    pub async fn assignments(
        &self,
        ids: &[PodId],
    ) -> Result<Vec<Option<(Option<AssignmentId>, RedisMillis)>>, StoreError> {
        type Fields = (Option<String>, Option<RedisMillis>);
        let parse = |_: &PodId, reply| {
            let (assignment, since): Fields = read("reading an assignment", reply)?;
            let assignment = assignment.and_then(|id| AssignmentId::new(id).ok());
            Ok(since.map(|since| (assignment, since)))
        };
        let get = |id: &PodId| fields(keys::pod(id), &["assignment", "since"]);
        Ok(self.load(ids, get, parse).await?.options().collect())
    }

    pub async fn payload_of(&self, pod: &PodRecord) -> Result<Option<Payload>, StoreError> {
        match (&pod.service, &pod.spec) {
            (Some(_), Some(spec)) => {
                let name = pod.name.clone();
                Ok(Some(Payload::for_service(name, pod.id.clone(), &pod.image, pod.replica, spec.clone())))
            }
            _ => {
                let raw: Option<Vec<u8>> =
                    self.link.query(cmd("HGET").arg(keys::pod(&pod.id)).arg("payload")).await?;
                Ok(raw.and_then(|raw| Payload::parse(raw.into()).ok()))
            }
        }
    }

    pub async fn refusals(&self, id: &PodId) -> Result<Option<Vec<Refusal>>, StoreError> {
        let text: Option<String> = self.link.query(cmd("HGET").arg(keys::UQ_WHY).arg(id.as_str())).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

pub(crate) fn read_slot(field: &[u8], value: &[u8]) -> Option<(Slot, PodId)> {
    Some((parse(field)?, parse(value)?))
}

pub(crate) fn read_pod(id: &PodId, value: Value) -> Result<Option<PodRecord>, StoreError> {
    let what = format!("reading pod {id}");
    let Some(fields) = HashFields::read(&what, value)? else { return Ok(None) };
    let phase = fields.text("phase");
    let phase = Phase::parse(&phase).ok_or_else(|| corrupt(&what, format!("phase is {phase:?}")))?;
    let exit_code = fields.text("exit_code");
    let assignment = fields.parse_opt("assignment")?;
    // An ended container has no ports, but the field stays.
    let is_placed = matches!(phase, Phase::Assigned | Phase::Running | Phase::Stopping);
    let container = assignment.as_ref().filter(|_| is_placed);
    // Before the first report they are of an earlier assignment.
    let containers = match phase {
        Phase::Pending | Phase::Assigned => Vec::new(),
        _ => serde_json::from_str(&fields.text("containers")).unwrap_or_default(),
    };
    let (since, reason) = (fields.number("since")?, fields.text("reason"));
    // Without a time of its own, it was ready as soon as it ran.
    let is_ready = phase == Phase::Running && reason.is_empty();
    let ready_since = is_ready.then(|| fields.text("ready_since").parse().unwrap_or(0).max(since));
    Ok(Some(PodRecord {
        id: id.clone(),
        name: fields.parse("name")?,
        phase,
        replica: fields.number("replica")?,
        image: fields.text("image"),
        service: fields.parse_opt("service")?,
        spec: fields.parse_opt("spec")?,
        generation: fields.number("generation")?,
        node: fields.parse_opt("node")?,
        published_ports: ports_from_json(&fields.text("published"), container),
        images: images_of(&fields.text("images"), assignment.as_ref()),
        assignment,
        attempts: fields.number("attempts")?,
        restarts: fields.number("restarts")?,
        // As `bounded` in the scripts, so that the sum matches the reservation.
        request: Resources::from_amounts(1, |resource| {
            Ok::<_, StoreError>(fields.number::<u64>(resource.field())?.min(MAX_MEMORY_BYTES))
        })?,
        host_ports: fields.text("ports"),
        resource_ids: match is_placed {
            true => ResourceIds::from_text(&fields.text("ids")),
            false => ResourceIds::default(),
        },
        created_at: fields.number("created_at")?,
        since,
        reason,
        ready_since,
        kept_at: fields.text("kept_at").parse().ok(),
        message: fields.text("message"),
        exit_code: exit_code.parse().ok(),
        address: fields.text("address"),
        containers,
        runs: read_runs(&fields.text("runs")),
    }))
}

/// Reads the text of `note_images.lua`: the assignment, and below it its images.
fn images_of(text: &str, assignment: Option<&AssignmentId>) -> Vec<ImageContent> {
    let (about, images) = text.split_once('\n').unwrap_or_default();
    if assignment.is_some_and(|assignment| assignment.as_str() == about) {
        image::from_text(images)
    } else {
        Vec::new()
    }
}

pub(crate) fn runs_text(runs: &[EndedRun]) -> String {
    runs.iter().map(|run| format!("{} {}\n", run.ended_at, crate::json::to_json(run))).collect()
}

/// Reads the lines of `report.lua`, `<time> <run>`. Skips broken ones: runs only inform.
fn read_runs(lines: &str) -> Vec<EndedRun> {
    let read = |line: &str| {
        let (at, json) = line.split_once(' ')?;
        let run: EndedRun = serde_json::from_str(json).ok()?;
        Some(EndedRun { ended_at: at.parse().ok()?, ..run })
    };
    lines.lines().filter_map(read).collect()
}
