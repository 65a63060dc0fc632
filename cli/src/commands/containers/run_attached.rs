//! `run --rm` and `run -it`: a service for one command, which is deleted afterwards.

use std::time::Duration;

use api_types::{PodView, ServiceView};
use client::{Client, LogQuery, PodFilter, PodLogQuery};
use model::pod::lifecycle::Phase;
use model::stream::channel::Purpose;
use output::stderr;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::channel_streams::{self, ChannelStreams};
use super::run_to_end;
use super::terminal::{self, TerminalMode};
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::exit::Exit;

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// The API sends no more: the beginning of a longer log is missing.
const ALL_LINES: usize = 100_000;

/// With `interactive`, this process is connected to the only pod, with a terminal if it is true.
pub(crate) async fn run(
    service: &ServiceView,
    interactive: Option<bool>,
    context: &mut Context<'_>,
) -> CommandResult {
    let name = service.name.to_string();
    let result = match interactive {
        // The terminal sends its signals to the pod.
        Some(tty) => connect(service, tty, context).await,
        None => {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                shown = show_output(service, context) => shown,
                _ = interrupt.recv() => Ok(Exit::Container(130)),
                _ = terminate.recv() => Ok(Exit::Container(143)),
            }
        }
    };
    match context.client.delete_service(&name, false).await {
        Err(error) if error.status() != Some(404) => {
            stderr::warning(&format!(
                "service {name} was not deleted: {error}; `kubeleet service rm {name}`"
            ));
        }
        _ => {}
    }
    result
}

async fn show_output(service: &ServiceView, context: &mut Context<'_>) -> CommandResult {
    let name = service.name.as_str();
    let replicas = service.replicas as usize;
    let have_ended =
        |pods: &[PodView]| pods.len() >= replicas && pods.iter().all(|pod| pod.phase.is_terminal());
    if replicas != 1 {
        let pods = pods_when(name, context, None, have_ended).await?;
        print_lines(name, context).await?;
        return Ok(run_to_end::exit_of(&pods));
    }
    let deadline = Instant::now() + context.globals.timeout;
    let pods = pods_when(name, context, Some(deadline), |pods| pods.iter().any(has_begun)).await?;
    // A pod that could not be started has written nothing.
    if let Some(pod) = pods.iter().find(|pod| pod.node.is_some()) {
        print_output(pod, context).await?;
    }
    let pods = pods_when(name, context, None, have_ended).await?;
    Ok(run_to_end::exit_of(&pods))
}

fn has_begun(pod: &PodView) -> bool {
    pod.phase == Phase::Running || pod.phase.is_terminal()
}

/// Byte for byte. Only warns if the log cannot be read.
async fn print_output(pod: &PodView, context: &mut Context<'_>) -> CommandResult<()> {
    let query = LogQuery { tail: ALL_LINES, follow: true, container: None };
    let mut log = match context.client.logs(pod.uuid.as_str(), &query).await {
        Ok(log) => log,
        Err(error) => {
            stderr::warning(&error.to_string());
            return Ok(());
        }
    };
    while let Some(bytes) = log.next().await? {
        context.output.print_bytes(&bytes)?;
    }
    Ok(())
}

async fn print_lines(service: &str, context: &mut Context<'_>) -> CommandResult<()> {
    let query =
        PodLogQuery { services: vec![service.to_owned()], tail: Some(ALL_LINES), ..PodLogQuery::default() };
    let mut log = context.client.lines(&query).await?;
    while let Some(items) = log.next_items().await? {
        for item in items {
            match &item.mark {
                Some(mark) => stderr::note(mark),
                None => context.output.print_bytes(format!("{} | {}\n", item.pod, item.text).as_bytes())?,
            }
        }
    }
    Ok(())
}

async fn pods_when(
    service: &str,
    context: &Context<'_>,
    deadline: Option<Instant>,
    is_reached: impl Fn(&[PodView]) -> bool,
) -> CommandResult<Vec<PodView>> {
    let mut said = String::new();
    loop {
        let pods = read_pods(service, &context.client).await?;
        if !pods.is_empty() && is_reached(&pods) {
            return Ok(pods);
        }
        let problem = pods.iter().find(|pod| !pod.reason.is_empty());
        let problem = problem.map_or_else(String::new, |pod| format!("{}: {}", pod.reason, pod.message));
        if !problem.is_empty() && problem != said {
            stderr::note(&problem);
            said = problem;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(CommandError::TimedOut(format!(
                "{service} has not started within --timeout{}{said}",
                if said.is_empty() { "" } else { ": " }
            )));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn read_pods(service: &str, client: &Client) -> CommandResult<Vec<PodView>> {
    let filter = PodFilter { service: Some(service.to_owned()), ..PodFilter::default() };
    match client.pods(&filter).await {
        Err(error) if error.is_transient() => Ok(Vec::new()),
        pods => Ok(pods?),
    }
}

async fn connect(service: &ServiceView, tty: bool, context: &mut Context<'_>) -> CommandResult {
    let deadline = Instant::now() + context.globals.timeout;
    let begun = |pods: &[PodView]| pods.iter().any(has_begun);
    let pods = pods_when(service.name.as_str(), context, Some(deadline), begun).await?;
    let Some(pod) = pods.iter().find(|pod| pod.phase == Phase::Running) else {
        return show_output(service, context).await;
    };
    let purpose = Purpose::Attach { stdin: true, size: tty.then(terminal::size).flatten() };
    let channel = match context.client.open_channel(pod.uuid.as_str(), None, &purpose).await {
        // The pod has ended meanwhile.
        Err(error) if error.status() == Some(409) => return show_output(service, context).await,
        channel => channel?,
    };
    let _raw = tty.then(TerminalMode::raw).transpose()?;
    let streams = ChannelStreams { stdin: true, tty, forwards_interrupt: !tty };
    channel_streams::run(channel, &streams).await
}
