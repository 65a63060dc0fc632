//! Flags, environment and configuration file as one [`Config`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use daemon::config::{Config, ConfigError, Serves, Sources, parse_file};
use model::value::secret::Secret;
use serde::Serialize;

/// Read if it exists.
const DEFAULT_FILE: &str = "/etc/kubeleet/kubeleet.toml";

/// Settings as flags. Each can also be set in the environment (`KUBELEET_…`) or in the configuration file; a
/// flag overrides the environment, and the environment overrides the file. The names of the fields are those
/// of the settings.
#[derive(Args, Clone, Default, Serialize)]
#[command(next_help_heading = "Daemon settings (flag > environment > file > default)")]
pub(crate) struct SettingFlags {
    /// Configuration file (TOML) [default: /etc/kubeleet/kubeleet.toml]
    #[arg(long, env = "KUBELEET_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Redis: redis://…, rediss://… or redis+sentinel://h1:p,h2:p/mymaster [KUBELEET_REDIS_URL]
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,
    /// Address that the API listens on [KUBELEET_LISTEN, default 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of the /metrics of scheduler, worker and proxy, or off; without a port each has its own
    /// [KUBELEET_METRICS_LISTEN, default 127.0.0.1:7071 (scheduler), :7072 (worker), :7073 (proxy)]
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    /// Worker name [KUBELEET_NODE, default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Labels of this node, for example zone=a,disk=ssd [KUBELEET_LABELS]
    #[arg(long, value_name = "LABELS")]
    labels: Option<String>,
    /// Named resources of this node, for example gpu=0,1 slots=8 [KUBELEET_RESOURCES]
    #[arg(long, value_name = "RESOURCES")]
    resources: Option<String>,
    /// Container runtime: docker, process or sim [KUBELEET_RUNTIME]
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<String>,
    /// Time between heartbeats [KUBELEET_HEARTBEAT, default 5s]
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<String>,
    /// Time without a heartbeat after which a node is declared dead [KUBELEET_DEAD_AFTER, default 20s]
    #[arg(long, value_name = "TIME")]
    dead_after: Option<String>,
    /// Time without Redis after which a worker stops its pods with `on_disconnect: stop`
    /// [KUBELEET_FENCE_AFTER, default 15s]
    #[arg(long, value_name = "TIME")]
    fence_after: Option<String>,
    /// Log filter, for example debug [KUBELEET_LOG, default info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Log format: text or json [KUBELEET_LOG_FORMAT, default text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// `--token` and `--token-file` are global options; [`SettingFlags::with_token`] copies them here.
    #[arg(skip)]
    #[serde(skip)]
    token: Option<Secret>,
    #[arg(skip)]
    token_file: Option<String>,
}

/// Ends the process with the usage code.
#[derive(Debug, thiserror::Error)]
#[error("invalid configuration:{}", .0.iter().map(|e| format!("\n  {e}")).collect::<String>())]
pub(crate) struct BadSettings(Vec<ConfigError>);

impl SettingFlags {
    pub(crate) fn with_token(mut self, (token, file): (Option<&Secret>, Option<&Path>)) -> Self {
        self.token = token.cloned();
        self.token_file = file.map(|path| path.display().to_string());
        self
    }

    pub(crate) fn has_listen(&self) -> bool {
        self.listen.is_some() || is_set("KUBELEET_LISTEN")
    }

    pub(crate) fn has_runtime(&self) -> bool {
        self.runtime.is_some() || is_set("KUBELEET_RUNTIME")
    }

    /// Starts logging, too. [`BadSettings`] lists every invalid setting.
    pub(crate) fn load(&self, serves: Serves) -> anyhow::Result<Config> {
        let config = self.read(serves)?;
        daemon::telemetry::init(&config.log, config.log_json);
        Ok(config)
    }

    /// Does not start logging.
    pub(crate) fn read(&self, serves: Serves) -> anyhow::Result<Config> {
        let file = self.read_config_file()?;
        let sources = Sources {
            flags: self.flags()?,
            // A token file from a flag overrides the environment's token.
            environment: &|name| match (name, &self.token, &self.token_file) {
                ("KUBELEET_TOKEN", None, Some(_)) => None,
                _ => std::env::var(name).ok(),
            },
            file,
            read_file: &|path| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}")),
            host_name: host_name(),
        };
        Ok(sources.config(serves).map_err(BadSettings)?)
    }

    fn flags(&self) -> serde_json::Result<BTreeMap<String, String>> {
        let mut flags: BTreeMap<String, Option<String>> =
            serde_json::from_value(serde_json::to_value(self)?)?;
        flags.insert("token".to_owned(), self.token.as_ref().map(|token| token.expose().to_owned()));
        let named =
            |(name, value): (String, Option<_>)| Some((format!("KUBELEET_{}", name.to_uppercase()), value?));
        Ok(flags.into_iter().filter_map(named).collect())
    }

    fn read_config_file(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let path = match &self.config {
            Some(path) => path.as_path(),
            None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
            None => return Ok(BTreeMap::new()),
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("cannot read the configuration file {}: {e}", path.display()))?;
        parse_file(&text).map_err(|e| anyhow::anyhow!("invalid configuration file {}: {e}", path.display()))
    }
}

/// An empty variable is as one that is not set.
fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
