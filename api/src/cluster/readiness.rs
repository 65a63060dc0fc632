//! The answer to `GET /readyz`. Redis is asked once for all that ask within 100 ms.
//!
//! Tests: tests::outages

use std::time::Duration;

use super::overview;
use crate::state::{AppState, ReadinessAnswer};

const TIMEOUT: Duration = Duration::from_secs(2);

/// The number of live schedulers, 0 if their key is broken; or why this process is not ready.
pub(crate) async fn latest(app: &AppState) -> ReadinessAnswer {
    app.readiness.latest_or(|| ask(app)).await
}

async fn ask(app: &AppState) -> ReadinessAnswer {
    let probe = async {
        if let Some(outage) = app.redis_watch.outage().await {
            return Err(outage.text);
        }
        match overview::count_live_schedulers(app).await {
            // The process can serve nevertheless; `/status` names the key.
            Err(error) if error.is_broken_key() => Ok(0),
            count => count.map_err(|error| error.to_string()),
        }
    };
    match tokio::time::timeout(TIMEOUT, probe).await {
        Ok(answer) => answer,
        Err(_) => {
            let why = overview::redis_master(app).err().filter(|why| !why.is_empty());
            Err(why.unwrap_or_else(|| format!("no answer within {} s", TIMEOUT.as_secs())))
        }
    }
}
