//! A new master may have lost reports about pods, such as readiness: they are sent again.

use model::ids::PodId;
use store::StoreError;

use crate::session::context::SessionContext;

pub(crate) async fn find(context: &SessionContext) -> Result<(), StoreError> {
    if !context.link.take_doubt() {
        return Ok(());
    }
    compare(context).await.inspect_err(|_| context.link.doubt())
}

async fn compare(context: &SessionContext) -> Result<(), StoreError> {
    let ids: Vec<PodId> = context.table.map_managed(|managed| Some(managed.payload.id.clone()));
    // A pod with an unreadable record stays as it is until it is repaired.
    for record in context.worker.store.pods(&ids).await?.found() {
        let Some(assignment) = &record.assignment else { continue };
        context.table.update(&record.id, assignment, |managed| {
            managed.is_reported &= managed.is_reported_in(&record);
        });
    }
    Ok(())
}
