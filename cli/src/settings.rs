//! Settings of the daemons as flags, and how flags, environment and file become one [`Config`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use common::config::{Config, ConfigError, Secret, Sources, parse_file};

use crate::commands::Globals;

/// Looked for when no `--config` is given; missing is fine.
const DEFAULT_FILE: &str = "/etc/kubeleet/kubeleet.toml";

/// Every setting can be given as a flag, in the environment (`KUBELEET_…`) or in the file; the first wins.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Settings of the daemons (flag > environment > file > default)")]
pub(crate) struct SettingFlags {
    /// Configuration file (TOML) [default: /etc/kubeleet/kubeleet.toml]
    #[arg(long, env = "KUBELEET_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// redis://…, rediss://… or redis+sentinel://h1:p,h2:p/mymaster [KUBELEET_REDIS_URL]
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,
    /// Address of the API [KUBELEET_LISTEN, default 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Worker name [KUBELEET_NODE, default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Labels of this node, zone=a,disk=ssd [KUBELEET_LABELS]
    #[arg(long, value_name = "LABELS")]
    labels: Option<String>,
    /// docker, process or sim [KUBELEET_RUNTIME]
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<String>,
    /// Time between heartbeats [KUBELEET_HEARTBEAT, default 5s]
    #[arg(long, value_name = "TIME")]
    heartbeat: Option<String>,
    /// Silence after which a node is declared dead [KUBELEET_DEAD_AFTER, default 20s]
    #[arg(long, value_name = "TIME")]
    dead_after: Option<String>,
    /// Silence after which a worker stops its `stop` pods [KUBELEET_FENCE_AFTER, default 15s]
    #[arg(long, value_name = "TIME")]
    fence_after: Option<String>,
    /// Log filter [KUBELEET_LOG, default info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// text or json [KUBELEET_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// `--token` and `--token-file` are everybody's flags: taken over from there.
    #[arg(skip)]
    token: Option<Secret>,
    #[arg(skip)]
    token_file: Option<String>,
}

/// The configuration can not be used; ends with the usage code.
#[derive(Debug, thiserror::Error)]
#[error("the configuration can not be used:{}", .0.iter().map(|e| format!("\n  {e}")).collect::<String>())]
pub(crate) struct BadSettings(Vec<ConfigError>);

impl SettingFlags {
    /// These settings, with the token that was given to the whole command.
    pub(crate) fn with_token(mut self, globals: &Globals) -> Self {
        let (token, file) = globals.token_settings();
        self.token = token.cloned();
        self.token_file = file.map(|path| path.display().to_string());
        self
    }

    /// Whether the flag or the environment says where the API listens.
    pub(crate) fn says_listen(&self) -> bool {
        self.listen.is_some() || std::env::var_os("KUBELEET_LISTEN").is_some()
    }

    /// Whether the flag or the environment says which runtime to use.
    pub(crate) fn says_runtime(&self) -> bool {
        self.runtime.is_some() || std::env::var_os("KUBELEET_RUNTIME").is_some()
    }

    /// Reads and judges everything, then starts logging.
    pub(crate) fn load(&self) -> anyhow::Result<Config> {
        let file = self.read_config_file()?;
        let sources = Sources {
            flags: self.given(),
            environment: &|name| std::env::var(name).ok(),
            file,
            read_file: &|path| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}")),
            host_name: host_name(),
        };
        let config = sources.config().map_err(BadSettings)?;
        common::telemetry::init(&config.log, config.log_json);
        Ok(config)
    }

    fn given(&self) -> BTreeMap<String, String> {
        let token = self.token.as_ref().map(|token| token.expose().to_owned());
        let flags = [
            ("KUBELEET_TOKEN", &token),
            ("KUBELEET_TOKEN_FILE", &self.token_file),
            ("KUBELEET_REDIS_URL", &self.redis_url),
            ("KUBELEET_LISTEN", &self.listen),
            ("KUBELEET_NODE", &self.node),
            ("KUBELEET_LABELS", &self.labels),
            ("KUBELEET_RUNTIME", &self.runtime),
            ("KUBELEET_HEARTBEAT", &self.heartbeat),
            ("KUBELEET_DEAD_AFTER", &self.dead_after),
            ("KUBELEET_FENCE_AFTER", &self.fence_after),
            ("KUBELEET_LOG", &self.log),
            ("KUBELEET_LOG_FORMAT", &self.log_format),
        ];
        let given = flags.into_iter().filter_map(|(name, flag)| Some((name.to_owned(), flag.clone()?)));
        given.collect()
    }

    fn read_config_file(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let path = match &self.config {
            Some(path) => path.as_path(),
            None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
            None => return Ok(BTreeMap::new()),
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("configuration file {}: {e}", path.display()))?;
        parse_file(&text).map_err(|e| anyhow::anyhow!("configuration file {}: {e}", path.display()))
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
