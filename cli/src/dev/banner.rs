//! Output of `dev`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use daemon::config::RuntimeKind;

use super::credentials::DevCredentials;
use super::engine::{Engine, HELLO_IMAGE};
use super::options::DevOptions;

pub(super) struct ClientSettings<'a> {
    pub(super) api: SocketAddr,
    pub(super) redis: u16,
    pub(super) ingress: Option<SocketAddr>,
    /// `None` if the daemons log to the terminal.
    pub(super) log: Option<&'a Path>,
    pub(super) credentials: &'a DevCredentials,
}

impl ClientSettings<'_> {
    fn redis_cli(&self) -> String {
        format!("{}redis-cli -p {}", self.credentials.redis_cli_prefix(), self.redis)
    }
}

pub(super) fn cluster(
    options: &DevOptions,
    engine: &Engine,
    workers: usize,
    clients: &ClientSettings<'_>,
) -> anyhow::Result<()> {
    let api = clients.api;
    let ha = if options.ha { ", two replicas, three sentinels" } else { "" };
    let noun = if workers == 1 { "worker" } else { "workers" };
    let mut out = anstream::stdout();
    writeln!(out, "kubeleet {}: {workers} {noun} on {}{ha}", env!("CARGO_PKG_VERSION"), engine.description)?;
    writeln!(out, "  api        http://{api}   (docs: http://{api}/docs)")?;
    if let Some(ingress) = clients.ingress {
        writeln!(out, "  ingress    http://{ingress}")?;
    }
    writeln!(out, "  redis-cli  {}", clients.redis_cli())?;
    out.flush()?;
    Ok(())
}

pub(super) fn log(clients: &ClientSettings<'_>) -> anyhow::Result<()> {
    if let Some(path) = clients.log {
        writeln!(anstream::stdout(), "  logs       {} (-v: here)", path.display())?;
    }
    Ok(())
}

/// A restarted Redis may be another one, so workers wait for the `fence` before they start pods.
pub(super) fn data(path: &Path, is_continued: bool, fence: Duration) -> anyhow::Result<()> {
    let what = match is_continued {
        true => format!("continued: no pod is started for {} s", fence.as_secs()),
        false => "new".to_owned(),
    };
    writeln!(anstream::stdout(), "  data       {} ({what})", path.display())?;
    Ok(())
}

pub(super) fn hello_is_running(running: usize, took: Duration) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "  hello      {running}/{running} running after {:.1} s", took.as_secs_f64())?;
    Ok(())
}

pub(super) fn hello_is_late(running: usize, replicas: usize, problem: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "  hello      only {running} of {replicas} running: {problem}")?;
    Ok(())
}

/// `kept` is the directory of `--data`.
pub(super) fn next_steps(
    engine: &Engine,
    kept: Option<&Path>,
    clients: &ClientSettings<'_>,
    has_route: bool,
) -> anyhow::Result<()> {
    let api = clients.api;
    let (image, list_command) = match engine.kind {
        RuntimeKind::Docker => (HELLO_IMAGE, "docker ps --filter label=orchestrator=kubeleet".to_owned()),
        RuntimeKind::Process | RuntimeKind::Sim => ("hello", format!("kubeleet --api http://{api} pod ls")),
    };
    let command = match engine.kind {
        RuntimeKind::Process => r#","command":["sleep","3600"]"#,
        RuntimeKind::Docker | RuntimeKind::Sim => "",
    };
    let mut out = anstream::stdout();
    writeln!(out, "\nTry next, in another terminal:")?;
    if let (Some(ingress), RuntimeKind::Docker, true) = (clients.ingress, engine.kind, has_route) {
        writeln!(out, "  curl http://{ingress}/")?;
    }
    writeln!(out, "  {list_command}")?;
    writeln!(
        out,
        r#"  curl {}http://{api}/service -d '{{"name":"web","image":"{image}","replica":3{command}}}'"#,
        clients.credentials.curl_option()
    )?;
    writeln!(
        out,
        r#"  {} LPUSH pq:worker1 '{{"name":"test","uuid":"mine","image":"{image}","replica":3{command}}}'"#,
        clients.redis_cli()
    )?;
    let end = match (kept, engine.kind) {
        (None, _) => "Ctrl-C stops everything and leaves nothing behind.",
        (Some(_), RuntimeKind::Docker) => {
            "Ctrl-C stops kubeleet and its Redis. Containers run on; the same command continues with them."
        }
        (Some(_), RuntimeKind::Process | RuntimeKind::Sim) => {
            "Ctrl-C stops everything. The same command starts services and pods again."
        }
    };
    writeln!(out, "\n{end}")?;
    out.flush()?;
    Ok(())
}
