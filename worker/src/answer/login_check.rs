//! Checks registry logins for the API.

use std::sync::Arc;

use bytes::Bytes;
use model::value::registry::LoginVerdict;
use store::{LogChunk, LoginCheckRequest, StoreError};

use crate::session::context::SessionContext;

pub(crate) fn answer(context: &Arc<SessionContext>, request: LoginCheckRequest) {
    let task_context = context.clone();
    context.tasks.spawn(async move {
        if let Err(error) = write(&task_context, &request).await {
            tracing::debug!(%error, "the answer to a request to check a login could not be written");
        }
    });
}

async fn write(context: &SessionContext, request: &LoginCheckRequest) -> Result<(), StoreError> {
    let worker = &context.worker;
    let verdict = match request.check_login.open(worker.config.secret_key.as_ref()) {
        Ok(login) => worker.runtime.check_login(request.check_login.host(), &login).await,
        Err(error) => LoginVerdict::Unknown(error.to_string()),
    };
    let json = serde_json::to_vec(&verdict).unwrap_or_default();
    worker.store.write_log(&request.id, &LogChunk::Output(Bytes::from(json))).await?;
    worker.store.write_log(&request.id, &LogChunk::End(String::new())).await.map(drop)
}
