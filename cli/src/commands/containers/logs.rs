//! `logs`: the output of one pod byte for byte; of several line by line, sorted by time.

use std::io::IsTerminal;

use api_types::{PodView, ServiceView};
use clap::Args;
use client::{Client, LogQuery, PodFilter, PodLogQuery};
use model::ids::AppName;
use model::pod::EndedRun;
use model::pod::lifecycle::Phase;
use model::spec::Kind;
use output::log_lines::{LineStyle, allows_styling};
use output::objects::pods;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::find_pod;
use crate::commands::objects::object_name::{self, ObjectName, ObjectType};
use crate::commands::selector_args::SelectorArgs;
use crate::exit::Exit;

const DEFAULT_TAIL: usize = 100;

/// Arguments of `logs` and `pod logs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Lines of several pods are merged in order of time, by the clocks of their nodes, and each \
                        begins with the name of its pod. With -f pods that start later are followed as well."
)]
pub(crate) struct LogArgs {
    /// Services, pods (uuids, beginnings of uuids, or names such as web-0) and apps: `web`, `pod/web-0`,
    /// `app/shop`.
    /// Without any, the app of this folder's Compose file.
    #[arg(value_name = "SERVICE|POD", conflicts_with = "label")]
    objects: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Follow new output.
    #[arg(long, short)]
    follow: bool,
    /// Container of pods with several; without this the first one of one pod, and all of several.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// Print the output of ended runs: of containers that were started again, and of those that were removed,
    /// which workers keep for a while.
    #[arg(long, conflicts_with = "follow")]
    previous: bool,
    /// Number of most recent lines of each container [default: 100, with --since all].
    #[arg(long, short = 'n', value_name = "LINES")]
    tail: Option<usize>,
    /// Only lines after this time: 2026-01-31T12:00:00Z, or how long ago (10m).
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only lines before this time, likewise.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only lines that contain this text; nodes send no others.
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Print the time of each line.
    #[arg(long, short = 't')]
    timestamps: bool,
    /// Print each line as a JSON object.
    #[arg(long)]
    json: bool,
}

/// Pods without output whose start problem is shown.
const MAX_WAITING: usize = 5;

#[derive(Debug, Default)]
struct Selected {
    services: Vec<String>,
    apps: Vec<String>,
    pods: Vec<PodView>,
    former: Vec<String>,
}

impl LogArgs {
    fn is_plain(&self) -> bool {
        let has_filter = self.since.is_some() || self.until.is_some() || self.grep.is_some();
        !has_filter && !self.timestamps && !self.json && !self.previous
    }

    fn query(&self, selected: &Selected) -> PodLogQuery {
        let pods =
            selected.pods.iter().map(|pod| pod.uuid.to_string()).chain(selected.former.iter().cloned());
        PodLogQuery {
            pods: pods.collect(),
            services: selected.services.clone(),
            app: None,
            label: self.selector.text(),
            container: self.container.clone(),
            tail: self.tail,
            follow: self.follow,
            since: self.since.clone(),
            until: self.until.clone(),
            grep: self.grep.clone(),
            previous: self.previous || !selected.former.is_empty(),
        }
    }

    fn style(&self, selected: &Selected) -> LineStyle {
        let is_one = selected.pods.len() == 1 && selected.services.is_empty() && selected.apps.is_empty();
        LineStyle {
            names: !is_one || self.selector.text().is_some(),
            timestamps: self.timestamps,
            colors: allows_styling(&std::io::stdout()),
            escapes: std::io::stdout().is_terminal(),
            json: self.json,
        }
    }
}

pub(crate) async fn run(args: &LogArgs, context: &mut Context<'_>) -> CommandResult {
    let selected = select(args, context).await?;
    if let ([pod], [], [], []) = (&*selected.pods, &*selected.services, &*selected.apps, &*selected.former)
        && args.is_plain()
    {
        return print_one(pod, args, context).await;
    }
    match print_selected(&selected, args, context).await {
        // The node is away, or has removed the container: the pod's record says how it ended.
        Err(CommandError::NotFound(_))
            if args.previous && print_ended_runs(&selected, args, context).await? =>
        {
            Ok(Exit::Ok)
        }
        printed => printed,
    }
}

async fn print_selected(selected: &Selected, args: &LogArgs, context: &mut Context<'_>) -> CommandResult {
    let mut query = args.query(selected);
    if selected.apps.is_empty() {
        return print_lines(&query, args.style(selected), context).await;
    }
    // The API takes one app; services of several are named.
    match selected.apps.as_slice() {
        [app] if query.services.is_empty() && query.pods.is_empty() => query.app = Some(app.clone()),
        apps => {
            for app in apps {
                let services = context.client.services_of_app(app).await?;
                query.services.extend(services.into_iter().map(|service| service.name.to_string()));
            }
        }
    }
    print_lines(&query, args.style(selected), context).await
}

async fn select(args: &LogArgs, context: &Context<'_>) -> CommandResult<Selected> {
    let mut selected = Selected::default();
    if args.selector.text().is_some() {
        return Ok(selected);
    }
    let client = &context.client;
    if args.objects.is_empty() {
        select_app(context, context.folder.name()?.to_string(), &mut selected).await?;
        return Ok(selected);
    }
    let (_, objects) = object_name::parse_words(&args.objects).map_err(CommandError::Usage)?;
    // `logs pod`: a service may have the name of a type.
    let objects = if objects.is_empty() { vec![ObjectName::untyped(&args.objects[0])] } else { objects };
    for ObjectName { object_type, name } in objects {
        match object_type {
            Some(of) if of.is_service() => {
                select_service(client, client.service(&name).await?, &mut selected).await?;
            }
            Some(ObjectType::App) => select_app(context, name, &mut selected).await?,
            Some(ObjectType::Pod) => select_pod(client, name, &mut selected).await?,
            None => select_any(context, name, &mut selected).await?,
            Some(other) => return Err(CommandError::Usage(format!("a {} has no output", other.as_str()))),
        }
    }
    Ok(selected)
}

async fn select_any(context: &Context<'_>, name: String, selected: &mut Selected) -> CommandResult<()> {
    let client = &context.client;
    match client.service(&context.service_name(&name).await?).await {
        Ok(service) => return select_service(client, service, selected).await,
        Err(error) if error.is_no_such_object() => {}
        Err(error) => return Err(error.into()),
    }
    match select_pod(client, name.clone(), selected).await {
        Err(CommandError::NotFound(_)) if is_app(client, &name).await => {
            selected.apps.push(name);
            Ok(())
        }
        other => other,
    }
}

async fn is_app(client: &Client, name: &str) -> bool {
    AppName::new(name).is_ok()
        && client.services_of_app(name).await.is_ok_and(|services| !services.is_empty())
}

/// A cron has no pods itself: its jobs have.
async fn select_service(client: &Client, service: ServiceView, selected: &mut Selected) -> CommandResult<()> {
    if service.pod.kind != Kind::Cron {
        selected.services.push(service.name.to_string());
        return Ok(());
    }
    let cron = &service.name;
    let is_its_job =
        |job: &&ServiceView| job.job_status.as_ref().is_some_and(|job| job.cron.as_ref() == Some(cron));
    let services = client.services(None).await?;
    let jobs: Vec<String> = services.iter().filter(is_its_job).map(|job| job.name.to_string()).collect();
    if jobs.is_empty() {
        return Err(CommandError::NotFound(format!(
            "{cron} is a cron and no job of it is left, which would have the logs; `kubeleet cron run {cron}` creates one"
        )));
    }
    stderr::note(&format!("{cron} is a cron; these are the logs of its jobs {}", jobs.join(", ")));
    selected.services.extend(jobs);
    Ok(())
}

async fn select_app(context: &Context<'_>, name: String, selected: &mut Selected) -> CommandResult<()> {
    context.services_of_app(&name).await?;
    selected.apps.push(name);
    Ok(())
}

/// The node may have kept the log of a pod without a record.
async fn select_pod(client: &Client, name: String, selected: &mut Selected) -> CommandResult<()> {
    match find_pod::pod(client, &name).await {
        Ok(pod) => selected.pods.push(pod),
        Err(CommandError::NotFound(_)) if is_uuid(&name) => selected.former.push(name),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Returns true if there were any.
async fn print_ended_runs(
    selected: &Selected,
    args: &LogArgs,
    context: &mut Context<'_>,
) -> CommandResult<bool> {
    let mut found = false;
    for pod in &selected.pods {
        let pod = context.client.pod(pod.uuid.as_str()).await?;
        let wanted = args.container.as_deref();
        let is_wanted = |run: &&EndedRun| {
            wanted.is_none_or(|name| run.container.as_ref().is_some_and(|own| own.as_str() == name))
        };
        let Some(run) = pod.runs.iter().rev().find(is_wanted) else { continue };
        found = true;
        context.output.print_bytes(format!("{}\n", run.last_output).as_bytes())?;
    }
    Ok(found)
}

async fn print_one(pod: &PodView, args: &LogArgs, context: &mut Context<'_>) -> CommandResult {
    let query = LogQuery {
        tail: args.tail.unwrap_or(DEFAULT_TAIL),
        follow: args.follow,
        container: args.container.clone(),
    };
    let mut log = context.client.logs(pod.uuid.as_str(), &query).await?;
    let mut has_output = false;
    while let Some(bytes) = log.next().await? {
        has_output = true;
        context.output.print_bytes(&bytes)?;
    }
    if !has_output {
        note_waiting(std::slice::from_ref(pod));
    }
    Ok(Exit::Ok)
}

fn note_waiting(pods: &[PodView]) {
    pods.iter().filter_map(why_waiting).for_each(|why| stderr::note(&why));
}

fn why_waiting(pod: &PodView) -> Option<String> {
    let is_waiting = matches!(pod.phase, Phase::Pending | Phase::Assigned);
    let why: Vec<&str> = [&*pod.reason, &*pod.message].into_iter().filter(|text| !text.is_empty()).collect();
    let why = if why.is_empty() { pod.phase.to_string() } else { why.join(": ") };
    is_waiting.then(|| format!("{} has not started: {why}", pods::indexed_name(pod)))
}

/// Missing lines end with an error.
async fn print_lines(query: &PodLogQuery, style: LineStyle, context: &mut Context<'_>) -> CommandResult {
    let mut log = context.client.lines(query).await?;
    let (mut is_complete, mut has_lines) = (true, false);
    while let Some(items) = log.next_items().await? {
        let mut text = String::new();
        for item in items {
            match &item.mark {
                Some(mark) if !style.json => {
                    is_complete = false;
                    context.output.print_bytes(std::mem::take(&mut text).as_bytes())?;
                    stderr::note(mark);
                }
                _ => text.push_str(&style.print(&item)),
            }
            has_lines = true;
        }
        context.output.print_bytes(text.as_bytes())?;
    }
    if !has_lines && !query.previous {
        for service in &query.services {
            let filter = PodFilter { service: Some(service.clone()), ..PodFilter::default() };
            let (pods, _) = context.client.some_pods(&filter, MAX_WAITING).await?;
            note_waiting(&pods);
        }
    }
    if query.previous && !has_lines {
        return Err(CommandError::NotFound(
            "no run has ended that a node has the log of: no container was started again, and nothing is kept of removed \
             ones"
                .to_owned(),
        ));
    }
    Ok(if is_complete { Exit::Ok } else { Exit::Error })
}

#[cfg(test)]
mod tests {
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn a_pod_that_has_not_started_has_no_output_and_the_reason_is_said() {
        let mut pod = fixtures::pod("u", Phase::Assigned);
        (pod.reason, pod.message) = ("StartFailed".into(), "no such command: x".into());
        let expected = "web-0 has not started: StartFailed: no such command: x";
        assert_eq!(why_waiting(&pod).as_deref(), Some(expected));
        pod.phase = Phase::Running;
        assert_eq!(why_waiting(&pod), None);
    }
}
