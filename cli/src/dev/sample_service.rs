//! The `hello` service, whose image needs no registry.

use std::time::{Duration, Instant};

use daemon::config::RuntimeKind;
use model::network::ingress::{HttpRule, IngressRule};
use model::pod::lifecycle::Phase;
use model::spec::{
    Command, ContainerSpec, DesiredService, Mode, NamedRequest, OnDisconnect, PodSpec, Seconds, ServiceFields,
};
use store::{PutMode, PutOutcome, Store};

use super::banner;
use super::engine::{Engine, HELLO_IMAGE};
use crate::sample_app;

const REPLICAS: u32 = 3;
/// After it, `dev` prints a problem and continues.
const RUNNING_TIMEOUT: Duration = Duration::from_secs(30);
/// Workers register within milliseconds. A stuck worker must not delay the first pods of the others.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn deploy(engine: &Engine, store: &Store, workers: usize) -> anyhow::Result<()> {
    wait_for_workers(store, workers).await?;
    let started = Instant::now();
    let service = hello_service(engine.kind)?;
    if let (PutOutcome::Created(service), _) = store.put_service(&service, PutMode::Upsert, None).await? {
        store.create_pods(&service, &service.first_replicas()).await?;
    }
    let replicas = REPLICAS as usize;
    loop {
        let ids: Vec<_> = store.slots(&service.name).await?.into_iter().map(|(_, id)| id).collect();
        let pods = store.pods(&ids).await?.found();
        let running = pods.iter().filter(|pod| pod.phase == Phase::Running).count();
        if running == replicas {
            return banner::hello_is_running(running, started.elapsed());
        }
        if started.elapsed() > RUNNING_TIMEOUT {
            let message = pods.iter().map(|pod| pod.message.as_str()).find(|text| !text.is_empty());
            return banner::hello_is_late(running, replicas, message.unwrap_or("see `kubeleet events`"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Otherwise the first worker would get all pods.
async fn wait_for_workers(store: &Store, workers: usize) -> anyhow::Result<()> {
    let started = Instant::now();
    while store.live_nodes().await? < workers && started.elapsed() < REGISTRATION_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn hello_service(kind: RuntimeKind) -> anyhow::Result<DesiredService> {
    let mut container = ContainerSpec::from_image(HELLO_IMAGE);
    if kind == RuntimeKind::Process {
        let program = std::env::current_exe()?.display().to_string();
        container.command = Command(vec![program, "hello".to_owned()]);
    }
    // Plain processes would share one port of the machine.
    let ingress = match kind {
        RuntimeKind::Docker => {
            vec![IngressRule::Http(HttpRule { port: sample_app::PORT, ..HttpRule::default() })]
        }
        RuntimeKind::Process | RuntimeKind::Sim => Vec::new(),
    };
    let pod = PodSpec {
        kind: Default::default(),
        containers: vec![container],
        on_disconnect: OnDisconnect::Keep,
        stop_grace_period: Seconds::default(),
        drain: None,
        mode: Mode::default(),
        stateful: None,
        resources: NamedRequest::default(),
    };
    Ok(DesiredService {
        name: "hello".parse()?,
        replicas: REPLICAS,
        fields: ServiceFields { ingress, ..ServiceFields::default() },
        pod,
    })
}
