//! The first service of a `dev` cluster: three pods of an image that no registry is needed for.

use std::time::{Duration, Instant};

use common::config::RuntimeKind;
use common::lifecycle::Phase;
use common::spec::{Command, ContainerSpec, DesiredService, OnDisconnect, PodSpec, Seconds};
use common::store::{PutMode, PutOutcome, Store};

use super::banner;
use super::engine::{Engine, HELLO_IMAGE};

const REPLICAS: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// Workers register within milliseconds. One that does not must not hold up what the others can show.
const ALL_WORKERS_WITHIN: Duration = Duration::from_secs(5);

/// Deploys it and waits until all of it runs, or says why it does not.
pub(crate) async fn deploy(engine: &Engine, store: &Store, workers: usize) -> anyhow::Result<()> {
    engine.make_hello_image().await?;
    wait_for_workers(store, workers).await?;
    let begun = Instant::now();
    let service = service(engine.kind)?;
    if let (PutOutcome::Created(service), _) = store.put_service(&service, PutMode::Upsert, None).await? {
        store.create_pods(&service, &service.all_replicas()).await?;
    }
    loop {
        let ids: Vec<_> = store.slots(&service.name).await?.into_iter().map(|(_, id)| id).collect();
        let pods = store.pods(&ids).await?;
        let running = pods.iter().flatten().filter(|pod| pod.phase == Phase::Running).count();
        if running == REPLICAS as usize {
            return banner::hello_runs(running, begun.elapsed());
        }
        if begun.elapsed() > PATIENCE {
            let why = pods.iter().flatten().find(|pod| !pod.message.is_empty());
            let why = why.map_or("see `kubeleet events`".to_owned(), |pod| pod.message.clone());
            return banner::hello_is_late(running, &why);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The first of them would get all the pods.
async fn wait_for_workers(store: &Store, workers: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    while store.living_nodes().await? < workers && begun.elapsed() < ALL_WORKERS_WITHIN {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn service(kind: RuntimeKind) -> anyhow::Result<DesiredService> {
    let mut container = ContainerSpec::of_image(HELLO_IMAGE);
    if kind == RuntimeKind::Process {
        let this = std::env::current_exe()?.display().to_string();
        container.command = Command(vec![this, "hello".to_owned()]);
    }
    let pod = PodSpec {
        containers: vec![container],
        on_disconnect: OnDisconnect::Keep,
        stop_grace_period: Seconds::default(),
    };
    Ok(DesiredService { name: "hello".parse()?, replicas: REPLICAS, labels: Default::default(), pod })
}
