//! `version`: the versions of this command and of the API.

use client::Method;
use output::stderr;
use serde::{Deserialize, Serialize};

use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::exit::Exit;

const CLIENT_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize)]
struct Versions {
    client: &'static str,
    api: Option<String>,
}

#[derive(Deserialize)]
struct ApiDocument {
    info: ApiInfo,
}

#[derive(Deserialize)]
struct ApiInfo {
    version: String,
}

/// An API that does not answer is not an error.
pub(crate) async fn run(context: &mut Context<'_>) -> CommandResult {
    let call = context.client.call(Method::GET, &["openapi.json"], "reading the version of the API");
    let api = call.view::<ApiDocument>().await.map(|document| document.info.version);
    let reason = api.as_ref().err().map(ToString::to_string);
    let versions = Versions { client: CLIENT_VERSION, api: api.ok() };
    context.output.print_document(&versions, || {
        let api = versions.api.as_deref().unwrap_or("unknown");
        format!("Client:  {CLIENT_VERSION}\nAPI:     {api}")
    })?;
    if let Some(reason) = reason {
        stderr::note(&reason);
    }
    Ok(Exit::Ok)
}
