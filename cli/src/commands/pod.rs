//! `pod`: list, describe, logs, stop.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use common::event::ObjectKind;
use common::lifecycle::Phase;

use super::failure::Failure;
use super::service::{EVENTS_SEARCHED, EVENTS_SHOWN};
use super::wait::Goal;
use super::{Context, Tally, resolve};
use crate::client::{Client, PodFilter};
use crate::exit::Exit;
use crate::output::{events, pods};

/// What to do with pods.
#[derive(Debug, Subcommand)]
pub(crate) enum PodCommand {
    /// Pods, all or some.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Everything about one, and why it is as it is.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Uuid, the beginning of one, or web-0.
        #[arg(value_name = "POD")]
        pod: String,
    },
    /// What its container wrote.
    #[command(visible_alias = "log")]
    Logs(LogArgs),
    /// Stop pods. Those of services are replaced by new ones.
    #[command(visible_aliases = ["rm", "delete"])]
    Stop(StopArgs),
}

/// Which pods to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only those of this service.
    #[arg(long, short, value_name = "SERVICE")]
    service: Option<String>,
    /// Only those on this node.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only those in this phase.
    #[arg(long, value_name = "PHASE", value_parser = PossibleValuesParser::new(Phase::ALL.map(Phase::as_str)))]
    phase: Option<String>,
}

/// Whose output.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Uuid, the beginning of one, web-0, or a service with one pod.
    #[arg(value_name = "POD")]
    pod: String,
    /// Go on with what comes.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines.
    #[arg(long, default_value_t = 100, value_name = "LINES")]
    tail: usize,
}

/// Which pods to stop.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Uuids, beginnings of them, or names such as web-0.
    #[arg(value_name = "POD", required = true)]
    pods: Vec<String>,
    /// Wait until they are gone.
    #[arg(long)]
    wait: bool,
}

/// Carries it out.
pub(super) async fn run(command: PodCommand, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match command {
        PodCommand::Ls(args) => list(&args, context).await,
        PodCommand::Describe { pod } => describe(&pod, context).await,
        PodCommand::Logs(args) => logs(&args, context).await,
        PodCommand::Stop(args) => stop(&args, context).await,
    }
}

/// `pod ls`.
pub(super) async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let ListArgs { service, node, phase } = args;
    let filter = PodFilter {
        service: service.clone(),
        node: node.clone(),
        phase: phase.clone(),
        ..PodFilter::default()
    };
    let found = context.client.pods(&filter).await?;
    context.output.list(&found, "no pods")?;
    Ok(Exit::Ok)
}

async fn describe(text: &str, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pod = resolve::pod(&context.client, text).await?;
    let service = match &pod.service {
        Some(name) => its_service(&context.client, name.as_str(), pod.generation).await?,
        None => None,
    };
    let last = context.client.last_events(EVENTS_SEARCHED).await?;
    let last = events::about(last, ObjectKind::Pod, pod.uuid.as_str(), EVENTS_SHOWN);
    let now = context.output.now();
    context.output.one(&pod, || pods::describe(&pod, service.as_ref(), &last, now))?;
    Ok(Exit::Ok)
}

/// The service as it is now says what a pod is only when the pod is of the same generation.
async fn its_service(
    client: &Client,
    name: &str,
    generation: u64,
) -> Result<Option<api::dto::ServiceView>, Failure> {
    match client.service(name).await {
        Ok(service) => Ok(Some(service).filter(|service| service.generation == generation)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `pod logs`: the bytes as the container wrote them.
pub(super) async fn logs(args: &LogArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pod = resolve::pod(&context.client, &args.pod).await?;
    let mut log = context.client.logs(pod.uuid.as_str(), args.tail, args.follow).await?;
    while let Some(bytes) = log.next().await? {
        context.output.raw(&bytes)?;
    }
    Ok(Exit::Ok)
}

async fn stop(args: &StopArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut tally = Tally::new();
    let mut goals = Vec::new();
    for text in &args.pods {
        let Some(pod) = tally.take(stop_one(&context.client, text).await)? else { continue };
        context.output.done(&pod, "is being stopped")?;
        goals.push(Goal::PodGone { id: pod.uuid });
    }
    if args.wait {
        tally.add(context.waiter().until_all(goals).await);
    }
    Ok(tally.0)
}

async fn stop_one(client: &Client, text: &str) -> Result<api::dto::PodView, Failure> {
    let pod = resolve::pod(client, text).await?;
    Ok(client.stop_pod(pod.uuid.as_str()).await?)
}
