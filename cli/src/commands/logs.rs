//! `logs`: prints what pods wrote. The output of one pod is printed byte for byte; that of several line by line,
//! with the name of the pod before each line.

use bytes::Bytes;
use clap::Args;
use common::api::PodView;
use common::pod::EndedRun;
use futures_util::stream::{self, Stream, StreamExt};

use super::batch::Batch;
use super::context::Context;
use super::error::CommandError;
use super::object::{self, ObjectName, ObjectType};
use super::resolve;
use super::selector_args::SelectorArgs;
use crate::client::{Client, LogQuery, LogStream, PodFilter};
use crate::exit::Exit;
use crate::output::pods::indexed_name;

/// Arguments of `logs` and `pod logs`.
#[derive(Debug, Args)]
#[command(after_help = "With several pods each line begins with the name of its pod.")]
pub(crate) struct LogArgs {
    /// Pods: uuids, beginnings of uuids, or names such as web-0. `service/web` means all pods of a service.
    #[arg(value_name = "POD", required_unless_present = "label", conflicts_with = "label")]
    objects: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Follow new output.
    #[arg(long, short)]
    follow: bool,
    /// Container of a pod with several; without this the first one.
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// Print the last lines of the run before, which has ended; they outlive the container.
    #[arg(long, conflicts_with = "follow")]
    previous: bool,
    /// Number of most recent lines of each pod to print first.
    #[arg(long, default_value_t = 100, value_name = "LINES")]
    tail: usize,
}

impl LogArgs {
    fn query(&self) -> LogQuery {
        LogQuery { tail: self.tail, follow: self.follow, container: self.container.clone() }
    }
}

/// Prints the output of the pods.
pub(super) async fn run(args: &LogArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let pods = selected_pods(args, &context.client).await?;
    if args.previous {
        return print_previous(&pods, args, context).await;
    }
    match pods.as_slice() {
        [pod] => print_one(pod, args, context).await,
        pods => print_several(pods, args, context).await,
    }
}

async fn selected_pods(args: &LogArgs, client: &Client) -> Result<Vec<PodView>, CommandError> {
    if let Some(label) = args.selector.text() {
        let pods = client.pods(&PodFilter { label: Some(label), ..PodFilter::default() }).await?;
        return match pods.is_empty() {
            true => Err(CommandError::NotFound("no pods with these labels".to_owned())),
            false => Ok(pods),
        };
    }
    let (_, objects) = object::parse_words(&args.objects).map_err(CommandError::Usage)?;
    // `logs pod`: a service may have the name of a type.
    let objects = if objects.is_empty() { vec![ObjectName::untyped(&args.objects[0])] } else { objects };
    let mut pods = Vec::new();
    for object in objects {
        match object.object_type {
            None | Some(ObjectType::Pod) => pods.push(resolve::pod(client, &object.name).await?),
            Some(ObjectType::Service) => pods.extend(pods_of_service(&object.name, client).await?),
            Some(other) => return Err(CommandError::Usage(format!("a {} has no output", other.as_str()))),
        }
    }
    Ok(pods)
}

async fn pods_of_service(name: &str, client: &Client) -> Result<Vec<PodView>, CommandError> {
    let service = client.service(name).await?;
    let filter = PodFilter { service: Some(service.name.to_string()), ..PodFilter::default() };
    let pods = client.pods(&filter).await?;
    if pods.is_empty() {
        return Err(CommandError::NotFound(format!("service {name} has no pods")));
    }
    Ok(pods)
}

/// Prints what is kept of the last run of each pod that has ended.
async fn print_previous(
    pods: &[PodView],
    args: &LogArgs,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut found = false;
    for pod in pods {
        let pod = context.client.pod(pod.uuid.as_str()).await?;
        let wanted = args.container.as_deref();
        let is_wanted = |run: &&EndedRun| {
            wanted.is_none_or(|name| run.container.as_ref().is_some_and(|own| own.as_str() == name))
        };
        let Some(run) = pod.runs.iter().rev().find(is_wanted) else { continue };
        found = true;
        context.output.print_bytes(format!("{}\n", run.last_output).as_bytes())?;
    }
    match found {
        true => Ok(Exit::Ok),
        false => Err(CommandError::NotFound(
            "no run that has ended is known; without --previous the log of the \
                                             current run is printed"
                .to_owned(),
        )),
    }
}

async fn print_one(pod: &PodView, args: &LogArgs, context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let mut log = context.client.logs(pod.uuid.as_str(), &args.query()).await?;
    while let Some(bytes) = log.next().await? {
        context.output.print_bytes(&bytes)?;
    }
    Ok(Exit::Ok)
}

/// A pod that cannot be read does not keep the others from being printed.
async fn print_several(
    pods: &[PodView],
    args: &LogArgs,
    context: &mut Context<'_>,
) -> Result<Exit, CommandError> {
    let mut batch = Batch::new();
    let mut logs = Vec::new();
    for pod in pods {
        let opened = context.client.logs(pod.uuid.as_str(), &args.query()).await;
        if let Some(log) = batch.accept(opened.map_err(CommandError::from))? {
            logs.push(Box::pin(lines(indexed_name(pod), log)));
        }
    }
    // Without `--follow` each log has an end, and the pods keep their order.
    let mut all = match args.follow {
        true => stream::select_all(logs).left_stream(),
        false => stream::iter(logs).flatten().right_stream(),
    };
    while let Some(result) = all.next().await {
        if let Some(text) = batch.accept(result)? {
            context.output.print_bytes(&text)?;
        }
    }
    Ok(batch.exit())
}

/// Returns the lines of a log, each with the name of the pod.
fn lines(name: String, log: LogStream) -> impl Stream<Item = Result<Vec<u8>, CommandError>> {
    let prefixer = LinePrefixer { prefix: format!("{name} | "), rest: Vec::new() };
    stream::unfold(Some((log, prefixer)), |state| async {
        let (mut log, mut prefixer) = state?;
        match log.next().await {
            Ok(Some(bytes)) => Some((Ok(prefixer.add(&bytes)), Some((log, prefixer)))),
            Ok(None) => Some((Ok(prefixer.finish()), None)),
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

/// Puts a prefix before each line of a text that comes in pieces.
struct LinePrefixer {
    prefix: String,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
}

impl LinePrefixer {
    /// Returns the lines that are complete now.
    fn add(&mut self, bytes: &Bytes) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let complete: Vec<u8> = self.rest.drain(..end).collect();
        self.prefixed(&complete)
    }

    /// Returns the last line, if it did not end.
    fn finish(self) -> Vec<u8> {
        let mut text = self.prefixed(&self.rest);
        if !text.is_empty() {
            text.push(b'\n');
        }
        text
    }

    fn prefixed(&self, lines: &[u8]) -> Vec<u8> {
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| [self.prefix.as_bytes(), line].concat()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_name_of_its_pod_however_it_is_cut() {
        let mut prefixer = LinePrefixer { prefix: "web-0 | ".to_owned(), rest: Vec::new() };
        let mut text = Vec::new();
        for piece in ["a", "b\n\nc", "\u{ff}", "\nd"] {
            text.extend(prefixer.add(&Bytes::from_static(piece.as_bytes())));
        }
        text.extend(prefixer.finish());
        let expected = "web-0 | ab\nweb-0 | \nweb-0 | c\u{ff}\nweb-0 | d\n";
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }
}
