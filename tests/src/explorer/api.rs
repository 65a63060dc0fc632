//! Those who want something of the cluster: users, who repeat a wish until it is answered, and the API that serves them,
//! call by call as its routes do. It makes the pods of a service after it was stored, and may die in between: reconcile
//! makes them then.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use common::ids::{NodeName, PodId, ServiceName};
use common::spec::{DesiredService, ServiceInput};
use common::store::{Durability, PutMode, PutOutcome, ScaleOutcome, StopOutcome, Store, StoreError, Written};
use tokio::time::sleep;

use super::random::Random;
use super::wishes::{Wanted, Wishes};

const SERVICES: [&str; 3] = ["a", "b", "c"];
/// The image says what its pods do when Redis is away.
const IMAGES: [&str; 4] = ["stop:1", "stop:2", "keep:1", "keep:2"];
const MOST_REPLICAS: u64 = 4;

/// A wish, until it is answered.
#[derive(Debug, Clone)]
enum Wish {
    Put(&'static str, Wanted),
    Scale(&'static str, u32),
    Delete(&'static str),
    Unpush(PodId),
}

/// What the users know. It outlives the API's process.
#[derive(Clone)]
pub(super) struct Desk(Arc<Mutex<State>>);

pub(super) struct State {
    random: Random,
    pub(super) now: u64,
    pub(super) wishes: Wishes,
    wish: Option<Wish>,
    /// Milliseconds between two wishes, more or less.
    idle: u64,
    /// They want nothing more.
    pub(super) content: bool,
}

impl Desk {
    pub(super) fn new(mut random: Random) -> Self {
        let idle = [150, 600, 2500][random.below(3)];
        let state = State { random, now: 0, wishes: Wishes::default(), wish: None, idle, content: false };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    /// One service and nothing else, ever.
    pub(super) fn want_only(&mut self, wanted: Wanted) {
        (self.wish, self.content) = (Some(Wish::Put(SERVICES[0], wanted)), true);
    }

    /// The service whose user waits for an answer.
    pub(super) fn unsure(&self) -> Option<&'static str> {
        match &self.wish {
            Some(Wish::Put(name, _) | Wish::Scale(name, _) | Wish::Delete(name)) => Some(name),
            Some(Wish::Unpush(_)) | None => None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.wish.is_none()
    }

    fn next(&mut self) -> Option<Wish> {
        if self.wish.is_none() && !self.content {
            self.wish = Some(self.any_wish());
        }
        self.wish.clone()
    }

    fn any_wish(&mut self) -> Wish {
        let name = SERVICES[self.random.below(SERVICES.len())];
        let replicas = self.random.between(0, MOST_REPLICAS) as u32;
        match self.random.below(10) {
            0..6 => {
                let any = IMAGES[self.random.below(IMAGES.len())].to_owned();
                let keep = self.random.per_mille(700);
                let image = self.wishes.of(name).filter(|_| keep).map_or(any, |wanted| wanted.image.clone());
                Wish::Put(name, Wanted { replicas, image })
            }
            6..8 => Wish::Scale(name, replicas),
            8 => Wish::Delete(name),
            _ => match self.random.pick(&self.wishes.pushed()) {
                Some(uuid) => Wish::Unpush(PodId::new(uuid.clone()).unwrap()),
                None => Wish::Scale(name, replicas),
            },
        }
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.between(0, 2 * self.idle))
    }
}

/// Serves the users until it is killed.
pub(super) async fn serve(store: Store, desk: Desk) {
    loop {
        let wish = desk.lock().next();
        if let Some(wish) = wish
            && fulfil(&store, &desk, wish).await.is_ok_and(|answered| answered)
        {
            desk.lock().wish = None;
        }
        let pause = desk.lock().pause();
        sleep(pause).await;
    }
}

/// True when the user has an answer.
async fn fulfil(store: &Store, desk: &Desk, wish: Wish) -> Result<bool, StoreError> {
    match wish {
        Wish::Put(name, wanted) => return put(store, desk, name, wanted).await,
        Wish::Scale(name, replicas) => {
            let (outcome, written) = store.scale_service(&service(name), replicas).await?;
            if is_doubtful(&written) {
                return Ok(false);
            }
            if let ScaleOutcome::Scaled { .. } = outcome {
                let mut desk = desk.lock();
                let image = desk.wishes.of(name).map(|wanted| wanted.image.clone()).unwrap_or_default();
                let now = desk.now;
                desk.wishes.acknowledge(name, Some(Wanted { replicas, image }), now);
            }
        }
        Wish::Delete(name) => {
            let (_, written) = store.delete_service(&service(name)).await?;
            if is_doubtful(&written) {
                return Ok(false);
            }
            let mut desk = desk.lock();
            let now = desk.now;
            desk.wishes.acknowledge(name, None, now);
        }
        Wish::Unpush(pod) => return unpush(store, desk, &pod).await,
    }
    Ok(true)
}

/// "Stored, not yet confirmed": a failover may lose it, so it is wished again.
fn is_doubtful(written: &Written) -> bool {
    matches!(written.durability, Durability::Unconfirmed { .. })
}

async fn put(store: &Store, desk: &Desk, name: &str, wanted: Wanted) -> Result<bool, StoreError> {
    let kind = wanted.image.split(':').next().unwrap_or_default();
    let input = serde_json::json!({
        "name": name, "image": wanted.image, "replicas": wanted.replicas, "cpus": "0.5", "on_disconnect": kind,
    });
    let desired = serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap();
    let (outcome, made, written) = post_or_put(store, desk, &desired).await?;
    if outcome == PutOutcome::Deleting || is_doubtful(&written) {
        return Ok(outcome == PutOutcome::Deleting);
    }
    {
        let mut desk = desk.lock();
        let now = desk.now;
        desk.wishes.acknowledge(name, Some(wanted), now);
        // The answer is on its way: from here on the pods are reconcile's matter as well.
        desk.wish = None;
    }
    let stored = match outcome {
        PutOutcome::Created(service) => Some(*service),
        _ => store.service(&desired.name).await?,
    };
    if let Some(service) = stored
        && made < service.replicas as usize
    {
        store.create_pods(&service, &service.all_replicas()).await?;
    }
    Ok(true)
}

/// What its user thinks is new is posted; what is there already, perhaps by a post that was never answered, is put.
async fn post_or_put(
    store: &Store,
    desk: &Desk,
    desired: &DesiredService,
) -> Result<(PutOutcome, usize, Written), StoreError> {
    if desk.lock().wishes.of(desired.name.as_str()).is_none() {
        let posted = store.create_service(desired).await?;
        if posted.0 != PutOutcome::Exists {
            return Ok(posted);
        }
    }
    let (outcome, written) = store.put_service(desired, PutMode::Upsert, None).await?;
    Ok((outcome, 0, written))
}

async fn unpush(store: &Store, desk: &Desk, pod: &PodId) -> Result<bool, StoreError> {
    let Some(record) = store.pod(pod).await? else { return Ok(true) };
    let seen: [(PodId, Option<NodeName>); 1] = [(pod.clone(), record.node)];
    let outcomes = store.stop_pods(None, &seen, "Stopped", "by hand").await?;
    let gone = outcomes.iter().all(|outcome| *outcome != StopOutcome::Moved);
    if gone {
        desk.lock().wishes.unwant(pod.as_str());
    }
    Ok(gone)
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}
