//! `kubeleet net`: this host's setup for pods that reach services by name.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use daemon::config::{Config, Serves};
use proxy::names::closed::{ToClose, to_close};
use proxy::names::probe;
use proxy::names::rules::{self, Rules, RulesError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::healthcheck::check_proxy;
use crate::settings::SettingFlags;
use crate::signal;

const WATCH_INTERVAL: Duration = Duration::from_secs(30);

/// Longer than a connection waits for a ready pod.
const ANSWER_WITHIN: Duration = Duration::from_secs(12);

/// Arguments of `net`.
#[derive(Args)]
pub(crate) struct NetOptions {
    #[command(subcommand)]
    command: NetCommand,
}

#[derive(Subcommand)]
enum NetCommand {
    /// Set the rules of this host's firewall that lead from pods to its proxy, so that they reach services
    /// by name, and that keep pods from the host itself and from the cluster's Redis and daemons. Without
    /// --watch it ends then, and the rules stay until a reboot. Takes the right of root.
    Rules(Box<RulesOptions>),
    /// Report obstacles to pods of this host that reach services by name.
    Check(Box<CheckOptions>),
}

#[derive(Args)]
struct CheckOptions {
    /// A name to try, and a port of its pods: `web`, `0.web:8080`
    #[arg(value_name = "NAME[:PORT]")]
    target: Option<String>,
    #[command(flatten)]
    settings: SettingFlags,
}

#[derive(Args)]
struct RulesOptions {
    /// Stay, and set them again when something has removed them
    #[arg(long)]
    watch: bool,
    /// Remove them
    #[arg(long, conflicts_with = "watch")]
    remove: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

pub(crate) async fn run(options: &NetOptions) -> anyhow::Result<()> {
    match &options.command {
        NetCommand::Rules(options) if options.remove => Ok(rules::remove().await?),
        NetCommand::Rules(options) if options.watch => watch(&options.settings.load(Serves::Nothing)?).await,
        NetCommand::Rules(options) => set_once(&options.settings.load(Serves::Nothing)?).await,
        NetCommand::Check(options) => {
            check(&options.settings.load(Serves::Nothing)?, options.target.as_deref()).await
        }
    }
}

/// Each check needs the ones before it.
async fn check(config: &Config, target: Option<&str>) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    let mut report = |what: &str, result: Result<String, String>| -> io::Result<()> {
        match result {
            Ok(found) => writeln!(io::stdout(), "ok    {what}{found}"),
            Err(why) => {
                problems.push(what.to_owned());
                writeln!(io::stdout(), "FAIL  {what}: {why}")
            }
        }
    };
    report("names are wanted", wanted(config))?;
    report("the proxy of this host", check_proxy(config).await.map(|()| String::new()))?;
    report("the rules of this host", check_rules().await)?;
    report("the resolver at 198.18.0.1", check_resolver().await)?;
    if let Some(target) = target {
        report(target, check_target(target).await)?;
    }
    if problems.is_empty() { Ok(()) } else { anyhow::bail!("in the way: {}", problems.join(", ")) }
}

fn wanted(config: &Config) -> Result<String, String> {
    if config.names { Ok(String::new()) } else { Err("KUBELEET_NAMES is off".to_owned()) }
}

async fn check_rules() -> Result<String, String> {
    match rules::missing().await {
        Ok(missing) if missing.is_empty() => Ok(String::new()),
        Ok(missing) => {
            Err(format!("missing in iptables: {}; run `kubeleet net rules` as root", missing.join(" | ")))
        }
        // The next check tests whether the rules lead to the resolver.
        Err(RulesError::NotAllowed) => Ok(" (not looked at, which takes the right of root)".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

async fn check_resolver() -> Result<String, String> {
    let why = "no answer: the proxy listens on port 7053 if `net rules` are set and KUBELEET_NAMES is on; its log says more";
    match probe::resolver_answers().await {
        true => Ok(String::new()),
        false if probe::has_route().await => Err(why.to_owned()),
        false => Err(probe::NO_ROUTE.to_owned()),
    }
}

async fn check_target(target: &str) -> Result<String, String> {
    let (name, port) = match target.split_once(':') {
        Some((name, port)) => (name, Some(port.parse().map_err(|_| format!("{port:?} is no port"))?)),
        None => (target, None),
    };
    let no_address = || "no address: there is no such service or slot, or Redis is away".to_owned();
    let address = probe::address_of(name).await.ok_or_else(no_address)?;
    let Some(port) = port else { return Ok(format!(" is {address}")) };
    let begun = Instant::now();
    let answered = timeout(ANSWER_WITHIN, ask_pod(address, port)).await;
    let took = begun.elapsed().as_millis();
    match answered {
        Ok(Ok(())) => Ok(format!(" is {address}, and a pod answered in {took} ms")),
        Ok(Err(error)) => Err(format!(
            "{address} is its address, but no pod took a connection to port {port}: {error}. If the service has \
                 `allow_from`, only pods that it names are let in, and the proxy's log says who was refused"
        )),
        Err(_) => Ok(format!(" is {address}, and a pod took a connection, but says nothing to HTTP")),
    }
}

/// Any answer counts, also a close by another protocol. The proxy accepts before it has found a pod, and
/// resets the connection if it finds none for 10 s.
async fn ask_pod(address: Ipv4Addr, port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect((address, port)).await?;
    stream.write_all(b"HEAD / HTTP/1.0\r\n\r\n").await?;
    match stream.read_u8().await {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

async fn set_once(config: &Config) -> anyhow::Result<()> {
    let to_close = of_settings(config).await;
    Rules::default().set(&to_close).await?;
    anyhow::ensure!(
        to_close.unknown.is_empty(),
        "the rules are set, but no address is found for {}, so pods of this host may reach Redis there: run it again when \
         there is one",
        to_close.unknown.join(", ")
    );
    Ok(())
}

async fn of_settings(config: &Config) -> ToClose {
    to_close(&config.redis, &config.closed_to_pods, []).await
}

async fn watch(config: &Config) -> anyhow::Result<()> {
    let shutdown = signal::shutdown()?;
    let (mut rules, mut has_failed) = (Rules::default(), false);
    loop {
        match rules.set(&of_settings(config).await).await {
            Ok(()) => has_failed = false,
            Err(error @ (RulesError::NotAllowed | RulesError::NotInstalled)) => return Err(error.into()),
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!(%error, "the rules of this host cannot be set; trying again every 30 s");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}
