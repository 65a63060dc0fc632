//! Recent events in `describe`.

use client::{Client, ClientError};
use model::event::{ClusterEvent, ObjectKind};

use output::objects::events;

const MAX_SHOWN: usize = 10;
const MAX_SEARCHED: usize = 1000;

pub(crate) async fn about(
    client: &Client,
    kind: ObjectKind,
    object: &str,
) -> Result<Vec<ClusterEvent>, ClientError> {
    let latest = client.last_events(MAX_SEARCHED).await?;
    Ok(events::about(latest, kind, object, MAX_SHOWN))
}
