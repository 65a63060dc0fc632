//! `pod`: list, describe, stop.

use api_types::PodView;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use client::{Client, PodFilter, found};
use model::event::ObjectKind;
use model::pod::lifecycle::Phase;
use output::ListStyle;
use output::objects::pods;
use output::stderr;

use super::find_pod;
use super::object_name::{self, ObjectName, ObjectType};
use super::recent_events;
use crate::commands::batch::BatchResult;
use crate::commands::containers::logs;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::lists;
use crate::commands::selector_args::SelectorArgs;
use crate::commands::type_args::TypeArgs;
use crate::commands::wait::Goal;
use crate::exit::Exit;

pub(crate) type PodArgs = TypeArgs<ListArgs, PodCommand>;

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
        #[arg(value_name = "POD", value_parser = ObjectType::Pod.names())]
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
    #[arg(long, short, value_name = "SERVICE", value_parser = object_name::service)]
    pub(crate) service: Option<String>,
    /// Only pods on this node.
    #[arg(long, value_name = "NODE", value_parser = ObjectType::Node.names())]
    pub(crate) node: Option<String>,
    /// Only pods in this phase.
    #[arg(
        long,
        value_name = "PHASE",
        value_parser = PossibleValuesParser::new(Phase::ALL.map(Phase::as_str))
    )]
    pub(crate) phase: Option<String>,
    #[command(flatten)]
    pub(crate) selector: SelectorArgs,
    #[command(flatten)]
    pub(crate) style: ListStyle,
}

impl ListArgs {
    fn filter(&self) -> PodFilter {
        PodFilter {
            service: self.service.clone(),
            node: self.node.clone(),
            phase: self.phase.clone(),
            label: self.selector.text(),
            prefix: None,
        }
    }
}

/// Arguments of `ps`.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only pods of these services and apps.
    #[arg(value_name = "SERVICE")]
    names: Vec<String>,
    #[command(flatten)]
    list: ListArgs,
}

/// Arguments of `pod stop`.
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Uuids, beginnings of uuids, or names such as web-0; or services that have one pod.
    #[arg(
        value_name = "POD",
        required_unless_present = "label",
        conflicts_with = "label",
        value_parser = object_name::pod_or_service
    )]
    pods: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Wait until they are gone.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(args: PodArgs, context: &mut Context<'_>) -> CommandResult {
    match args.or_list(PodCommand::Ls)? {
        PodCommand::Ls(args) => list(&args, context).await,
        PodCommand::Describe { pod } => describe(&pod, context).await,
        PodCommand::Logs(args) => logs::run(&args, context).await,
        PodCommand::Stop(StopArgs { pods, selector, wait }) => stop(pods, &selector, wait, context).await,
    }
}

pub(crate) async fn ps(args: PsArgs, context: &mut Context<'_>) -> CommandResult {
    let PsArgs { names, mut list } = args;
    if names.is_empty() {
        return self::list(&list, context).await;
    }
    let services = services_of(&names, context).await?;
    if let [only] = &*services
        && list.service.is_none()
    {
        list.service = Some(only.clone());
        return self::list(&list, context).await;
    }
    if list.service.is_some() || list.style.watch {
        let detail = "--service and --watch take one service: leave out the other names";
        return Err(CommandError::Usage(detail.to_owned()));
    }
    let filter = |service: &String| PodFilter { service: Some(service.clone()), ..list.filter() };
    let mut pods = Vec::new();
    for service in &services {
        pods.extend(context.client.pods(&filter(service)).await?);
    }
    context.output.list_style = list.style;
    context.output.print_list(&pods, "no pods")?;
    Ok(Exit::Ok)
}

async fn services_of(names: &[String], context: &Context<'_>) -> CommandResult<Vec<String>> {
    let mut services = Vec::new();
    for word in names {
        let ObjectName { object_type, name } = object_name::split(word);
        let is_app = object_type == Some(ObjectType::App);
        if object_type.is_some_and(|of| !of.is_service()) && !is_app {
            return Err(CommandError::Usage(format!("{word} is no service or app")));
        }
        let service = context.service_name(&name).await?;
        match context.client.service(&service).await {
            Ok(service) if !is_app => services.push(service.name.to_string()),
            Err(error) if !is_app && !error.is_no_such_object() => return Err(error.into()),
            _ => {
                let of_app = context.client.services_of_app(&name).await?;
                if of_app.is_empty() {
                    return Err(CommandError::NotFound(format!("there is no service or app {name}")));
                }
                services.extend(of_app.into_iter().map(|service| service.name.to_string()));
            }
        }
    }
    Ok(services)
}

pub(crate) async fn list(args: &ListArgs, context: &mut Context<'_>) -> CommandResult {
    let mut filter = args.filter();
    if let Some(service) = &args.service {
        filter.service = Some(context.service_name(service).await?);
    }
    lists::show(args.style, "no pods", async |client| client.pods(&filter).await, context).await
}

pub(crate) async fn describe(text: &str, context: &mut Context<'_>) -> CommandResult {
    let pod = find_pod::pod(&context.client, text).await?;
    let mut service = match &pod.service {
        Some(name) => found(context.client.service(name.as_str()).await)?,
        None => None,
    };
    // Another generation's specification does not describe the pod.
    service = service.filter(|service| service.generation == pod.generation);
    let events = recent_events::about(&context.client, ObjectKind::Pod, pod.uuid.as_str()).await?;
    context.output.print_object(&pod, |now| pods::describe(&pod, service.as_ref(), &events, now))?;
    Ok(Exit::Ok)
}

pub(crate) async fn stop(
    named: Vec<String>,
    selector: &SelectorArgs,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    let pods = match selector.text() {
        Some(label) => active_pods(label, &context.client).await?,
        None => named,
    };
    for text in &pods {
        let Some(pod) = batch.accept(stop_one(context, text).await)? else { continue };
        context.output.print_result(&pod, "is being stopped")?;
        let name = pods::indexed_name(&pod);
        goals.push(Goal::PodGone { id: pod.uuid, name });
    }
    batch.record(context.wait_if(wait, goals).await);
    Ok(batch.exit())
}

async fn active_pods(label: String, client: &Client) -> CommandResult<Vec<String>> {
    let pods = client.pods(&PodFilter { label: Some(label), ..PodFilter::default() }).await?;
    let active = pods.into_iter().filter(|pod| !pod.phase.is_terminal());
    let uuids: Vec<String> = active.map(|pod| pod.uuid.to_string()).collect();
    if uuids.is_empty() {
        stderr::note("no pods with these labels");
    }
    Ok(uuids)
}

async fn stop_one(context: &Context<'_>, text: &str) -> CommandResult<PodView> {
    let pod = find_pod::pod_to_stop(context, text).await?;
    Ok(context.client.stop_pod(pod.uuid.as_str()).await?)
}
