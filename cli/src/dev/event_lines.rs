//! What `dev` prints while it runs: the events of the cluster, as `kubeleet events -w` shows them.

use std::time::Duration;

use store::Store;
use tokio_util::sync::CancellationToken;

use output::objects::events;
use output::stderr;

/// Between two looks for new events.
const INTERVAL: Duration = Duration::from_millis(500);
/// Events that one look reads.
const COUNT: usize = 200;

/// Prints new events until `dev` ends.
pub(super) async fn print(store: Store, shutdown: CancellationToken) {
    // What was before is known: the banner has told it.
    let last = store.last_events(1).await.ok().and_then(|events| events.into_iter().next_back());
    let mut after = last.map_or_else(|| "0".to_owned(), |event| event.id);
    while !shutdown.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
        // While Redis is away there are none; the log says why.
        let Ok(found) = store.events_after(&after, COUNT).await else { continue };
        for event in found {
            stderr::note(&events::line(&event));
            after = event.id;
        }
    }
}
