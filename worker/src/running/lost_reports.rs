//! A new master may have lost what was reported of pods, such as that one is ready: their records are
//! compared with what is to be reported, and what differs is reported again.

use model::ids::PodId;
use store::StoreError;

use crate::session::context::SessionContext;

/// Compares all pods, if the master has changed since this was done last. Those that differ are reported when
/// they are looked at next.
///
/// # Errors
/// See [`StoreError`]. Then the next call compares again.
pub(crate) async fn find(context: &SessionContext) -> Result<(), StoreError> {
    if !context.link.take_doubt() {
        return Ok(());
    }
    compare(context).await.inspect_err(|_| context.link.doubt())
}

async fn compare(context: &SessionContext) -> Result<(), StoreError> {
    let ids: Vec<PodId> = context.table.map_managed(|managed| Some(managed.payload.id.clone()));
    // One whose record cannot be read is left as it is until it is repaired.
    for record in context.worker.store.pods_each(&ids).await?.into_iter().flatten().flatten() {
        let Some(assignment) = &record.assignment else { continue };
        context.table.update(&record.id, assignment, |managed| {
            managed.is_reported &= managed.is_reported_in(&record);
        });
    }
    Ok(())
}
