//! The cluster's events while `dev` runs.

use std::time::Duration;

use store::Store;
use tokio_util::sync::CancellationToken;

use output::objects::events;
use output::stderr;

const INTERVAL: Duration = Duration::from_millis(500);
const COUNT: usize = 200;

pub(super) async fn print(store: Store, shutdown: CancellationToken) {
    // The banner has already shown earlier events.
    let last = store.last_events(1).await.ok().and_then(|events| events.into_iter().next_back());
    let mut after = last.map_or_else(|| "0".to_owned(), |event| event.id);
    while !shutdown.is_cancelled() {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            () = shutdown.cancelled() => return,
        }
        let Ok(found) = store.events_after(&after, COUNT).await else { continue };
        for event in found {
            stderr::note(&events::line(&event));
            after = event.id;
        }
    }
}
