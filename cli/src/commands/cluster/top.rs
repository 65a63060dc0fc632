//! `top`: current usage of pods and nodes.

use std::cmp::Reverse;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use client::{ClientError, Method};
use model::node::usage::{ClusterUsageView, NodeUsageView, PodUsageView, Usage};
use output::stderr;
use output::{OutputFormat, TableRow};

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::exit::Exit;

const INTERVAL: Duration = Duration::from_secs(2);
const DEFAULT_ROWS: usize = 24;
const DEFAULT_COLUMNS: usize = 80;
const CLEAR: &str = "\x1b[H\x1b[J";

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "On a terminal the table is shown again every two seconds, until Ctrl-C; otherwise it is \
                        printed once. CPU is in cores, MEMORY without the file cache that can be taken back."
)]
pub(crate) struct TopArgs {
    /// The usage to show.
    #[arg(value_enum, default_value_t = TopSubject::Pods, value_name = "WHAT")]
    what: TopSubject,
    /// The order of the rows.
    #[arg(long, value_enum, default_value_t = SortKey::Cpu, value_name = "KEY")]
    sort: SortKey,
    /// Print the table once, also on a terminal.
    #[arg(long, short = 'n')]
    once: bool,
    /// Only pods of this service.
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Only this node, or the pods on it.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// The objects whose usage is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TopSubject {
    /// Pods.
    #[value(alias = "pod")]
    Pods,
    /// Nodes.
    #[value(alias = "node")]
    Nodes,
}

/// The order of the rows of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SortKey {
    /// Most CPU first.
    Cpu,
    /// Most memory first.
    Memory,
    /// By name.
    Name,
}

pub(crate) async fn run(args: &TopArgs, context: &mut Context<'_>) -> CommandResult {
    let is_table = matches!(context.output.format, OutputFormat::Table | OutputFormat::Wide);
    if args.once || !is_table || !std::io::stdout().is_terminal() {
        let usage = read(args, context).await?;
        warn_of_missing(args, &usage);
        match args.what {
            TopSubject::Pods => context.output.print_list(&pods(args, usage), "no pods run")?,
            TopSubject::Nodes => context.output.print_list(&nodes(args, usage), "no nodes")?,
        }
        return Ok(Exit::Ok);
    }
    live(args, context).await
}

/// A temporarily unreachable API does not end it.
async fn live(args: &TopArgs, context: &mut Context<'_>) -> CommandResult {
    let mut shown = false;
    loop {
        let begun = Instant::now();
        let page = match read(args, context).await {
            Ok(usage) => page(args, usage, context),
            Err(error) if shown && error.is_transient() => format!("{error}; trying again\n"),
            Err(error) => return Err(error.into()),
        };
        context.output.print_bytes(format!("{CLEAR}{page}").as_bytes())?;
        shown = true;
        tokio::time::sleep(INTERVAL.saturating_sub(begun.elapsed()).max(INTERVAL / 4)).await;
    }
}

async fn read(args: &TopArgs, context: &Context<'_>) -> Result<ClusterUsageView, ClientError> {
    let call = context.client.call(Method::GET, &["stats"], "reading the usage");
    call.query("pods", Some(args.what == TopSubject::Pods)).view().await
}

fn page(args: &TopArgs, usage: ClusterUsageView, context: &Context<'_>) -> String {
    let heading = heading(&usage);
    let (rows, columns) = terminal_size();
    let table = match args.what {
        TopSubject::Pods => table(&pods(args, usage), context),
        TopSubject::Nodes => table(&nodes(args, usage), context),
    };
    fit(&format!("{heading}\n\n{table}"), rows, columns)
}

fn table<T: TableRow>(items: &[T], context: &Context<'_>) -> String {
    let wide = context.output.format == OutputFormat::Wide;
    let rows = items.iter().map(|item| item.row(wide, context.output.now())).collect();
    output::table::render(&T::titles(wide), rows)
}

fn heading(usage: &ClusterUsageView) -> String {
    let total = usage.nodes.iter().map(|node| node.machine.usage).fold(Usage::default(), Usage::plus);
    let cores = usage.nodes.iter().map(|node| node.machine.cpu_total_millis).sum::<u64>();
    let memory = usage.nodes.iter().map(|node| node.machine.memory_total_bytes).sum::<u64>();
    let pods: u64 = usage.nodes.iter().map(|node| node.pods).sum();
    let mut text = format!(
        "{} nodes, {pods} pods: {:.2} of {} cores, {} of {}",
        usage.nodes.len(),
        total.cpu_millis.unwrap_or(0) as f64 / 1000.0,
        cores / 1000,
        output::humanize::bytes(total.memory_bytes.unwrap_or(0)),
        output::humanize::bytes(memory),
    );
    if !usage.missing.is_empty() {
        text.push_str(&format!("; not measured: {}", missing(usage)));
    }
    text
}

fn missing(usage: &ClusterUsageView) -> String {
    usage.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn warn_of_missing(args: &TopArgs, usage: &ClusterUsageView) {
    let concerns =
        |node: &&model::ids::NodeName| args.node.as_deref().is_none_or(|name| node.as_str() == name);
    if usage.missing.iter().any(|node| concerns(&node)) {
        stderr::warning(&format!("these nodes have not told what they use: {}", missing(usage)));
    }
}

fn fit(text: &str, rows: usize, columns: usize) -> String {
    let lines = text.lines().take(rows.saturating_sub(1));
    lines.map(|line| format!("{}\n", line.chars().take(columns).collect::<String>().trim_end())).collect()
}

fn terminal_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 1 && size.ws_col > 1 => (size.ws_row.into(), size.ws_col.into()),
        _ => (DEFAULT_ROWS, DEFAULT_COLUMNS),
    }
}

fn pods(args: &TopArgs, usage: ClusterUsageView) -> Vec<PodUsageView> {
    let mut rows = usage.pods;
    rows.retain(|row| {
        let service = row.pod.service.as_ref().map(|service| service.as_str());
        args.service.as_deref().is_none_or(|wanted| service == Some(wanted))
            && args.node.as_deref().is_none_or(|wanted| row.node.as_str() == wanted)
    });
    rows.sort_by_key(|row| sort_key(args.sort, &row.pod.usage));
    rows
}

fn nodes(args: &TopArgs, usage: ClusterUsageView) -> Vec<NodeUsageView> {
    let mut rows = usage.nodes;
    rows.retain(|row| args.node.as_deref().is_none_or(|wanted| row.name.as_str() == wanted));
    rows.sort_by_key(|row| sort_key(args.sort, &row.machine.usage));
    rows
}

/// Unknown usage comes last. Equal rows keep their order by name.
fn sort_key(sort: SortKey, usage: &Usage) -> Reverse<Option<u64>> {
    Reverse(match sort {
        SortKey::Cpu => usage.cpu_millis,
        SortKey::Memory => usage.memory_bytes,
        SortKey::Name => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use serde_json::json;

    use super::*;

    fn args(sort: SortKey) -> TopArgs {
        TopArgs { what: TopSubject::Pods, sort, once: true, service: None, node: None }
    }

    fn usage() -> ClusterUsageView {
        let pod = |name: &str, cpu: Option<u64>, memory: u64| {
            json!({"uuid": name, "name": name, "service": "s", "node": "w1",
                   "usage": {"cpu_millis": cpu, "memory_bytes": memory}})
        };
        let pods = [pod("a-0", None, 3), pod("b-0", Some(5), 1), pod("c-0", Some(900), 2)];
        serde_json::from_value(json!({"nodes": [], "pods": pods, "missing": []})).unwrap()
    }

    #[test]
    fn rows_are_sorted_by_what_is_used() {
        for (sort, expected) in [
            (SortKey::Cpu, ["c-0", "b-0", "a-0"]),
            (SortKey::Memory, ["a-0", "c-0", "b-0"]),
            (SortKey::Name, ["a-0", "b-0", "c-0"]),
        ] {
            let names: Vec<String> = pods(&args(sort), usage()).into_iter().map(|row| row.pod.name).collect();
            assert_eq!(names, expected, "{sort:?}");
        }
        let other = TopArgs { service: Some("other".to_owned()), ..args(SortKey::Cpu) };
        assert!(pods(&other, usage()).is_empty());
    }

    #[test]
    fn a_page_fits_the_terminal() {
        assert_eq!(fit("heading\n\nabcdef   \nsecond\nthird", 5, 4), "head\n\nabcd\nseco\n");
    }
}
