//! Arguments of `dev`.

use std::path::{Path, PathBuf};

use clap::Args;
use model::value::secret::Secret;

use crate::settings::SettingFlags;

/// Arguments of `dev`.
#[derive(Args)]
pub(crate) struct DevOptions {
    /// Number of workers: worker1, worker2 … (default: 2, or as many as --data has).
    #[arg(long, value_parser = worker_count)]
    pub(super) workers: Option<u32>,
    /// Start two replicas of Redis and three sentinels as well.
    #[arg(long, conflicts_with = "data")]
    pub(super) ha: bool,
    /// Keep services and pods in this directory; a later `dev --data DIR` continues with them.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Print the logs of the daemons here, and not into a file.
    #[arg(long, short)]
    pub(super) verbose: bool,
    /// Do not deploy the `hello` service.
    #[arg(long)]
    pub(super) no_hello: bool,
    #[command(flatten)]
    pub(super) settings: SettingFlags,
}

impl DevOptions {
    pub(crate) fn with_token(mut self, token: (Option<&Secret>, Option<&Path>)) -> Self {
        self.settings = self.settings.with_token(token);
        self
    }
}

fn worker_count(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1000).contains(number));
    number.ok_or_else(|| format!("{text:?} is not a whole number from 1 to 1000"))
}
