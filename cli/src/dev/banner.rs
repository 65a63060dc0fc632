//! What `dev` says: where things are, and what to try next.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use common::config::RuntimeKind;

use super::engine::Engine;
use super::redis::PrivateRedis;
use crate::args::DevOptions;

pub(crate) fn cluster(
    options: &DevOptions,
    engine: &Engine,
    redis: &PrivateRedis,
    api: SocketAddr,
) -> anyhow::Result<()> {
    let ha = if options.ha { ", two replicas, three sentinels" } else { "" };
    let mut out = anstream::stdout();
    writeln!(
        out,
        "kubeleet {}: {} workers on {}{ha}",
        env!("CARGO_PKG_VERSION"),
        options.workers,
        engine.description
    )?;
    writeln!(out, "  api        http://{api}   (docs: http://{api}/docs)")?;
    writeln!(out, "  redis-cli  {}", redis.cli_line())?;
    out.flush()?;
    Ok(())
}

pub(crate) fn hello_runs(running: usize, took: Duration) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "  hello      {running}/{running} running after {:.1} s", took.as_secs_f64())?;
    Ok(())
}

pub(crate) fn hello_is_late(running: usize, why: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout();
    writeln!(out, "  hello      only {running} running: {why}")?;
    Ok(())
}

pub(crate) fn what_next(engine: &Engine, redis: &PrivateRedis, api: SocketAddr) -> anyhow::Result<()> {
    let (image, look) = match engine.kind {
        RuntimeKind::Docker => {
            (super::engine::HELLO_IMAGE, "docker ps --filter label=orchestrator=kubeleet".to_owned())
        }
        RuntimeKind::Process | RuntimeKind::Sim => ("hello", format!("kubeleet --api http://{api} pod ls")),
    };
    let command = match engine.kind {
        RuntimeKind::Process => r#","command":["sleep","3600"]"#,
        RuntimeKind::Docker | RuntimeKind::Sim => "",
    };
    let mut out = anstream::stdout();
    writeln!(out, "\nTry next, in another terminal:")?;
    writeln!(out, "  {look}")?;
    writeln!(
        out,
        r#"  curl http://{api}/service -d '{{"name":"web","image":"{image}","replica":3{command}}}'"#
    )?;
    writeln!(
        out,
        r#"  {} LPUSH pq:worker1 '{{"name":"test","uuid":"mine","image":"{image}","replica":3{command}}}'"#,
        redis.cli_line()
    )?;
    writeln!(out, "\nCtrl-C ends everything and leaves nothing behind.")?;
    out.flush()?;
    Ok(())
}
