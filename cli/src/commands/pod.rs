//! `pod`: list, describe, stop.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use common::api::{PodView, ServiceView};
use common::event::ObjectKind;
use common::lifecycle::Phase;

use super::batch::BatchResult;
use super::context::{self, Context};
use super::error::CommandError;
use super::selector_args::SelectorArgs;
use super::wait::Goal;
use super::{logs, object, recent_events, resolve, watch};
use crate::client::{Client, PodFilter};
use crate::exit::Exit;
use crate::output::{ListStyle, pods};
use crate::stderr;

/// Arguments of `pod`: without a subcommand it lists.
#[derive(Debug, Args)]
pub(crate) struct PodArgs {
    #[command(flatten)]
    list: ListArgs,
    #[command(subcommand)]
    command: Option<PodCommand>,
}

impl PodArgs {
    /// Returns the subcommand, or `ls`.
    pub(super) fn command(self) -> Result<PodCommand, CommandError> {
        context::subcommand_or_list(self.command, self.list, PodCommand::Ls)
    }
}

/// Subcommands of `pod`.
#[derive(Debug, Subcommand)]
pub(crate) enum PodCommand {
    /// List pods.
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    /// Show one pod in detail, and why it does not run.
    #[command(visible_aliases = ["show", "get"])]
    Describe {
        /// Uuid, the beginning of one, or a name such as web-0.
        #[arg(value_name = "POD", value_parser = object::pod)]
        pod: String,
    },
    /// Print a pod's output.
    #[command(visible_alias = "log")]
    Logs(logs::LogArgs),
    /// Stop pods. Services replace their stopped pods with new ones.
    #[command(visible_aliases = ["rm", "delete"])]
    Stop(StopArgs),
}

/// Arguments of `pod ls`.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    /// Only pods of this service.
    #[arg(long, short, value_name = "SERVICE", value_parser = object::service)]
    pub(super) service: Option<String>,
    /// Only pods on this node.
    #[arg(long, value_name = "NODE", value_parser = object::node)]
    pub(super) node: Option<String>,
    /// Only pods in this phase.
    #[arg(
        long,
        value_name = "PHASE",
        value_parser = PossibleValuesParser::new(Phase::ALL.map(Phase::as_str))
    )]
    pub(super) phase: Option<String>,
    #[command(flatten)]
    pub(super) selector: SelectorArgs,
    #[command(flatten)]
    pub(super) style: ListStyle,
}

/// Arguments of `pod stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Uuids, beginnings of uuids, or names such as web-0.
    #[arg(
        value_name = "POD",
        required_unless_present = "label",
        conflicts_with = "label",
        value_parser = object::pod
    )]
    pods: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Wait until they are gone.
    #[arg(long)]
    wait: bool,
}

impl PodCommand {
    /// Returns `stop`.
    pub(super) fn stop(pods: Vec<String>, selector: SelectorArgs, wait: bool) -> Self {
        Self::Stop(StopArgs { pods, selector, wait })
    }
}

/// Runs a subcommand.
pub(super) async fn run(command: PodCommand, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    match command {
        PodCommand::Ls(args) => list(&args, context).await,
        PodCommand::Describe { pod } => describe(&pod, context).await,
        PodCommand::Logs(args) => logs::run(&args, context).await,
        PodCommand::Stop(args) => stop(&args, context).await,
    }
}

/// `pod ls` and `ps`.
pub(super) async fn list(args: &ListArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let ListArgs { service, node, phase, selector, style } = args;
    let filter = PodFilter {
        service: service.clone(),
        node: node.clone(),
        phase: phase.clone(),
        label: selector.text(),
        prefix: None,
    };
    context.output.list_style = *style;
    if style.watch {
        return watch::run(async |client: &Client| client.pods(&filter).await, context).await;
    }
    let pods = context.client.pods(&filter).await?;
    context.output.print_list(&pods, "no pods")?;
    Ok(Exit::Ok)
}

async fn describe(text: &str, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let pod = resolve::pod(&context.client, text).await?;
    let service = match &pod.service {
        Some(name) => service_of(&context.client, name.as_str(), pod.generation).await?,
        None => None,
    };
    let events = recent_events::about(&context.client, ObjectKind::Pod, pod.uuid.as_str()).await?;
    let now = context.output.now();
    context.output.print_object(&pod, || pods::describe(&pod, service.as_ref(), &events, now))?;
    Ok(Exit::Ok)
}

/// Returns the service if it is of this generation. The specification of another one does not describe the
/// pod.
async fn service_of(
    client: &Client,
    name: &str,
    generation: u64,
) -> Result<Option<ServiceView>, CommandError> {
    match client.service(name).await {
        Ok(service) => Ok(Some(service).filter(|service| service.generation == generation)),
        Err(error) if error.status() == Some(404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn stop(args: &StopArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    for text in &selected_pods(args, &context.client).await? {
        let Some(pod) = batch.accept(stop_one(&context.client, text).await)? else { continue };
        context.output.print_result(&pod, "is being stopped")?;
        goals.push(Goal::PodGone { id: pod.uuid });
    }
    if args.wait {
        batch.record(context.waiter().wait_for_all(goals).await);
    }
    Ok(batch.exit())
}

/// Returns the given pods, or the uuids of those with the given labels.
async fn selected_pods(args: &StopArgs, client: &Client) -> Result<Vec<String>, CommandError> {
    let Some(label) = args.selector.text() else { return Ok(args.pods.clone()) };
    let pods = client.pods(&PodFilter { label: Some(label), ..PodFilter::default() }).await?;
    let active = pods.into_iter().filter(|pod| !pod.phase.is_terminal());
    let uuids: Vec<String> = active.map(|pod| pod.uuid.to_string()).collect();
    if uuids.is_empty() {
        stderr::note("no pods with these labels");
    }
    Ok(uuids)
}

async fn stop_one(client: &Client, text: &str) -> Result<PodView, CommandError> {
    let pod = resolve::pod(client, text).await?;
    Ok(client.stop_pod(pod.uuid.as_str()).await?)
}
