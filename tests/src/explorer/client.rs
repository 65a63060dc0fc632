//! Those who want something: the API with its users, and whoever pushes pods by hand.
//!
//! A user repeats a wish until it is answered. The API makes the pods of a service after it was stored, and may die in
//! between: reconcile makes them then.

use common::ids::{NodeName, PodId, ServiceName};
use common::spec::ServiceInput;
use common::store::{CreateOutcome, PutMode, PutOutcome, ScaleOutcome, StopOutcome};

use super::who::Who;
use super::wishes::Wanted;
use super::world::World;

const SERVICES: [&str; 3] = ["a", "b", "c"];
/// The image says what its pods do when Redis is away.
const IMAGES: [&str; 4] = ["stop:1", "stop:2", "keep:1", "keep:2"];
const MOST_REPLICAS: u64 = 4;
const MOST_PUSHED: usize = 4;
const ME: Who = Who::Client;

/// A wish, until it is answered.
#[derive(Clone)]
enum Wish {
    Put(&'static str, Wanted),
    Scale(&'static str, u32),
    Delete(&'static str),
    Create(&'static str),
    Unpush(PodId),
}

/// See the module.
#[derive(Default)]
pub(super) struct Client {
    wish: Option<Wish>,
    pushes: usize,
    /// It wants nothing more.
    content: bool,
}

impl Client {
    /// One service and nothing else, ever.
    pub(super) fn wants_only(&mut self, wanted: Wanted) {
        (self.wish, self.content) = (Some(Wish::Put(SERVICES[0], wanted)), true);
    }

    /// The service whose user waits for an answer.
    pub(super) fn unsure(&self) -> Option<&'static str> {
        match &self.wish {
            Some(Wish::Put(name, _) | Wish::Scale(name, _) | Wish::Delete(name)) => Some(name),
            Some(Wish::Create(_) | Wish::Unpush(_)) | None => None,
        }
    }

    /// The API's process dies: the pods of what was stored are not made by it.
    pub(super) fn crash(&mut self) {
        if matches!(self.wish, Some(Wish::Create(_))) {
            self.wish = None;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.wish.is_none()
    }

    pub(super) async fn step(&mut self, world: &mut World<'_>) {
        if self.wish.is_none() && !world.settles && !self.content {
            if world.random.per_mille(250) {
                return self.push(world).await;
            }
            self.wish = Some(any_wish(world));
        }
        let Some(wish) = self.wish.clone() else { return };
        self.wish = match wish {
            Wish::Put(name, wanted) => put(world, name, wanted).await,
            Wish::Scale(name, replicas) => scale(world, name, replicas).await,
            Wish::Delete(name) => delete(world, name).await,
            Wish::Create(name) => create(world, name).await,
            Wish::Unpush(pod) => unpush(world, pod).await,
        };
    }

    /// LPUSH by hand: a pod, a pod for the second time, or nonsense; to be scheduled or to one worker.
    async fn push(&mut self, world: &mut World<'_>) {
        let queue = match world.random.below(4) {
            0 => "sq".to_owned(),
            worker => format!("pq:w{worker}"),
        };
        let again = world.wishes.pushed();
        let known = again.len();
        let again = world.random.pick(&again).cloned();
        let uuid = match again {
            _ if world.random.per_mille(300) => return push_junk(world, &queue).await,
            Some(uuid) if known >= MOST_PUSHED || world.random.per_mille(400) => uuid,
            _ => {
                self.pushes += 1;
                format!("p{}", self.pushes)
            }
        };
        // The same pod has the same bytes each time.
        let kind =
            if uuid.len() % 2 == uuid.as_bytes()[uuid.len() - 1] as usize % 2 { "stop" } else { "keep" };
        let text = format!(
            r#"{{"name":"pushed","uuid":"{uuid}","image":"{kind}:0","replica":0,"on_disconnect":"{kind}"}}"#
        );
        world.names.introduce(&uuid);
        world.say(ME, format!("LPUSH {queue} {uuid}"));
        world.wishes.push(&uuid);
        world.push(&queue, &text).await;
    }
}

async fn push_junk(world: &mut World<'_>, queue: &str) {
    let junk = format!("junk{}", world.random.below(3));
    world.say(ME, format!("LPUSH {queue} {junk}"));
    world.wishes.push_junk(&junk);
    world.push(queue, &junk).await;
}

fn any_wish(world: &mut World<'_>) -> Wish {
    let name = SERVICES[world.random.below(SERVICES.len())];
    let replicas = world.random.between(0, MOST_REPLICAS) as u32;
    match world.random.below(10) {
        0..6 => {
            let any = IMAGES[world.random.below(IMAGES.len())].to_owned();
            let keep = world.random.per_mille(700);
            let image = world.wishes.of(name).filter(|_| keep).map_or(any, |wanted| wanted.image.clone());
            Wish::Put(name, Wanted { replicas, image })
        }
        6..8 => Wish::Scale(name, replicas),
        8 => Wish::Delete(name),
        _ => {
            let pushed = world.wishes.pushed();
            match world.random.pick(&pushed) {
                Some(uuid) => Wish::Unpush(PodId::new(uuid.clone()).unwrap()),
                None => Wish::Scale(name, replicas),
            }
        }
    }
}

async fn put(world: &mut World<'_>, name: &'static str, wanted: Wanted) -> Option<Wish> {
    let kind = wanted.image.split(':').next().unwrap_or_default();
    let input = serde_json::json!({
        "name": name, "image": wanted.image, "replicas": wanted.replicas, "cpus": "0.5", "on_disconnect": kind,
    });
    let desired = serde_json::from_value::<ServiceInput>(input).unwrap().normalize().unwrap();
    let store = world.ground.store.clone();
    let what = format!("put {name} {} x {}", wanted.replicas, wanted.image);
    let called = world.call(ME, what, store.put_service(&desired, PutMode::Upsert, None)).await;
    let Some((outcome, _)) = called.heard() else { return Some(Wish::Put(name, wanted)) };
    world.note(format!("{outcome:?}"));
    match outcome {
        PutOutcome::Deleting => None,
        _ => {
            acknowledge(world, name, Some(wanted));
            Some(Wish::Create(name))
        }
    }
}

fn acknowledge(world: &mut World<'_>, name: &str, wanted: Option<Wanted>) {
    let now = world.now;
    world.wishes.acknowledge(name, wanted, now);
}

async fn scale(world: &mut World<'_>, name: &'static str, replicas: u32) -> Option<Wish> {
    let store = world.ground.store.clone();
    let id = ServiceName::new(name).unwrap();
    let called =
        world.call(ME, format!("scale {name} to {replicas}"), store.scale_service(&id, replicas)).await;
    let Some((outcome, _)) = called.heard() else { return Some(Wish::Scale(name, replicas)) };
    world.note(format!("{outcome:?}"));
    if let ScaleOutcome::Scaled { .. } = outcome {
        let image = world.wishes.of(name).map(|wanted| wanted.image.clone()).unwrap_or_default();
        acknowledge(world, name, Some(Wanted { replicas, image }));
    }
    None
}

async fn delete(world: &mut World<'_>, name: &'static str) -> Option<Wish> {
    let store = world.ground.store.clone();
    let id = ServiceName::new(name).unwrap();
    let called = world.call(ME, format!("delete {name}"), store.delete_service(&id)).await;
    if called.heard().is_none() {
        return Some(Wish::Delete(name));
    }
    acknowledge(world, name, None);
    None
}

/// What the API does after it stored a service. It reads, may be slow, and makes pods of what it read.
async fn create(world: &mut World<'_>, name: &'static str) -> Option<Wish> {
    let store = world.ground.store.clone();
    let id = ServiceName::new(name).unwrap();
    let service = world.call(ME, format!("read {name}"), store.service(&id)).await.heard()??;
    let all: Vec<u32> = (0..service.replicas).collect();
    let called = world.call(ME, format!("create pods of {name}"), store.create_pods(&service, &all)).await;
    if let Some(CreateOutcome::Created(count)) = called.heard() {
        world.note(count);
    }
    None
}

async fn unpush(world: &mut World<'_>, pod: PodId) -> Option<Wish> {
    let store = world.ground.store.clone();
    let record = world.call(ME, format!("read {pod}"), store.pod(&pod)).await.heard();
    let Some(record) = record else { return Some(Wish::Unpush(pod)) };
    let record = record?;
    let seen: [(PodId, Option<NodeName>); 1] = [(pod.clone(), record.node)];
    let called =
        world.call(ME, format!("stop {pod}"), store.stop_pods(None, &seen, "Stopped", "by hand")).await;
    let Some(outcomes) = called.heard() else { return Some(Wish::Unpush(pod)) };
    world.note(format!("{outcomes:?}"));
    match outcomes[0] {
        StopOutcome::Stopped | StopOutcome::Stopping | StopOutcome::Gone => {
            world.wishes.unwant(pod.as_str());
            None
        }
        StopOutcome::Moved => Some(Wish::Unpush(pod)),
    }
}
