//! `apply --prune`: deletes objects of an app that its files no longer have.

use client::Client;
use model::service::ServiceState;
use model::value::ValueKind;
use output::stderr;

use super::app_values;
use super::desired_state::DesiredApp;
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::error::CommandResult;
use crate::commands::services::service;
use crate::exit::Exit;

/// Deletes nothing after a failure: the replacements may be missing.
pub(crate) async fn run(
    app: &DesiredApp,
    prune: bool,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<()> {
    let surplus = surplus(app, &context.client).await?;
    let values = app_values::surplus(&context.client, app).await?;
    if !prune || batch.exit() != Exit::Ok {
        note(app, surplus, &values);
        return Ok(());
    }
    for service in surplus {
        let deleted = service::delete_listed(&service, false, &context.client).await;
        if batch.accept(deleted)? == Some(true) {
            let result = "is being deleted: the files do not have it";
            context.output.print_result_of(&format!("service/{service}"), result)?;
        }
    }
    if batch.exit() == Exit::Ok {
        app_values::remove(values, batch, context).await?;
    }
    Ok(())
}

pub(crate) async fn dry_run(app: &DesiredApp, prune: bool, context: &mut Context<'_>) -> CommandResult<()> {
    let surplus = surplus(app, &context.client).await?;
    let values = app_values::surplus(&context.client, app).await?;
    if !prune {
        note(app, surplus, &values);
        return Ok(());
    }
    let services = surplus.into_iter().map(|service| format!("service/{service}"));
    for name in services.chain(values.iter().map(|(kind, name)| app_values::title(*kind, name))) {
        context.output.print_result_of(&name, "deleted (dry run)")?;
    }
    Ok(())
}

async fn surplus(app: &DesiredApp, client: &Client) -> CommandResult<Vec<String>> {
    let stored = client.services_of_app(app.name.as_str()).await?;
    let active = stored.into_iter().filter(|service| service.state == ServiceState::Active);
    let names = active.map(|service| service.name.to_string());
    Ok(names.filter(|name| !app.all_names.contains(name)).collect())
}

fn note(app: &DesiredApp, surplus: Vec<String>, values: &[(ValueKind, String)]) {
    let values = values.iter().map(|(kind, name)| app_values::title(*kind, name));
    let surplus: Vec<String> = surplus.into_iter().chain(values).collect();
    if !surplus.is_empty() {
        let (name, names) = (&app.name, surplus.join(", "));
        stderr::note(&format!("note: app {name} also has {names}, not in these files; --prune deletes them"));
    }
}
