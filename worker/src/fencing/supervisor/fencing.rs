//! The supervisor's own fencing. Each scan has a new thread and async runtime: the supervisor stays small and
//! responsive.

use std::sync::Arc;
use std::time::Instant;

use daemon::clock::{BootClock, BootInstant};
use daemon::config::Config;
use tokio::sync::mpsc;

use crate::backup::backup_containers;
use crate::env;
use crate::fencing::fence;
use crate::fencing::fence::FenceScope;
use crate::handover::socket;
use crate::session::identity;
use crate::support::change_log::ChangeLog;

type FencingResult = Result<usize, String>;

pub(super) struct Fencing {
    config: Arc<Config>,
    results: (mpsc::Sender<FencingResult>, mpsc::Receiver<FencingResult>),
    is_under_way: bool,
    next_attempt: Option<Instant>,
    log: ChangeLog,
}

impl Fencing {
    pub(super) fn new(config: Arc<Config>) -> Self {
        let log = ChangeLog::new(format!("fencing {} by its supervisor", config.node));
        Self { config, results: mpsc::channel(1), is_under_way: false, next_attempt: None, log }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_under_way || self.next_attempt.is_some_and(|moment| Instant::now() < moment)
    }

    pub(super) fn begin(&mut self, deadline: BootInstant) {
        if self.is_under_way {
            return;
        }
        self.is_under_way = true;
        let (config, results) = (self.config.clone(), self.results.0.clone());
        let thread = move || {
            let fence = std::panic::AssertUnwindSafe(|| fence(&config, deadline));
            let result = std::panic::catch_unwind(fence).unwrap_or_else(|_| Err("it panicked".to_owned()));
            let _ended = results.blocking_send(result);
        };
        if let Err(error) = std::thread::Builder::new().name("fence".to_owned()).spawn(thread) {
            // Otherwise its end would be awaited forever.
            let _sent = self.results.0.try_send(Err(format!("no thread can be started: {error}")));
        }
    }

    /// Returns true if nothing had to be stopped; waits forever without a scan.
    ///
    /// # Cancel safety
    /// No result is lost.
    pub(super) async fn end(&mut self) -> bool {
        let result = match self.results.1.recv().await {
            Some(result) => result,
            None => std::future::pending().await,
        };
        self.is_under_way = false;
        match result {
            Ok(found) => {
                self.log.succeeded();
                found == 0
            }
            Err(error) => {
                self.log.failed(&error);
                self.next_attempt = Some(Instant::now() + fence::RECHECK_INTERVAL);
                false
            }
        }
    }
}

fn fence(config: &Config, deadline: BootInstant) -> FencingResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no async runtime can be created: {error}"))?;
    let found = runtime.block_on(async {
        let engine = env::runtime(config).map_err(|error| error.to_string())?;
        let (node, timing, cluster) = (&config.node, &config.timing, identity::cluster_of(config));
        let known = backup_containers::read(&config.data_dir, node, &*engine);
        let proxy = socket::configured(config);
        let (cluster, proxy) = (cluster.as_ref(), proxy.as_deref());
        let scope = FenceScope { node, cluster, timing, proxy, saved: None };
        let fence = fence::enforce(&*engine, &scope, deadline, &BootClock, &known);
        fence.await.map_err(|error| error.to_string())
    });
    // A blocking thread that waits for a file lock must not delay the supervisor.
    runtime.shutdown_background();
    found
}
