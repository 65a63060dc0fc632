//! Secrets and configs of an app. The API compares contents, which are never printed.

use api_types::{ServiceView, ValueComparison, ValueInput, ValueView};
use client::{Client, Method, found};
use compose::AppValue;
use model::ids::AppName;
use model::service::ServiceState;
use model::value::ValueKind;
use output::stderr;

use super::desired_state::DesiredApp;
use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_of_object;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::objects::secret_and_config::users_of;
use crate::exit::Exit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueChange {
    Created,
    Configured,
    Unchanged,
}

impl ValueChange {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

pub(crate) fn title(kind: ValueKind, name: &str) -> String {
    format!("{kind}/{name}")
}

pub(crate) async fn compare(client: &Client, app: &AppName, value: &AppValue) -> CommandResult<ValueChange> {
    let AppValue { kind, name, content } = value;
    let stored = found(client.get::<ValueView>(kind.as_str(), name.as_str()).await)?;
    let Some(stored) = stored else { return Ok(ValueChange::Created) };
    if stored.app.as_ref() != Some(app) {
        let owner = stored.app.map_or_else(|| "no app".to_owned(), |owner| format!("app {owner}"));
        return Err(CommandError::Other(format!(
            "{kind} {name} exists and belongs to {owner}: give it another `name:`, or write `external: true` to use it"
        )));
    }
    let path = [kind.as_str(), name.as_str(), "compare"];
    let call = client.call(Method::POST, &path, format!("comparing {kind} {name}"));
    let compared: ValueComparison = call.json(&ValueInput::new(None, content)).view().await?;
    Ok(if compared.same { ValueChange::Unchanged } else { ValueChange::Configured })
}

/// Returns the rotated ones. After a failure nothing else may be applied: services would wait for missing
/// values.
pub(crate) async fn apply<'a>(
    values: &'a [AppValue],
    app: &AppName,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<Vec<&'a AppValue>> {
    let mut changed = Vec::new();
    for value in values {
        let Some(change) = batch.accept(put(&context.client, app, value).await)? else { continue };
        context.output.print_result_of(&title(value.kind, value.name.as_str()), change.word())?;
        if change == ValueChange::Configured {
            changed.push(value);
        }
    }
    Ok(changed)
}

async fn put(client: &Client, app: &AppName, value: &AppValue) -> CommandResult<ValueChange> {
    let AppValue { kind, name, content } = value;
    let change = compare(client, app, value).await?;
    let input = |name| ValueInput::new(name, content).of_app(app.clone());
    let stored = match change {
        ValueChange::Created => client.create_value(*kind, &input(Some(name.clone()))).await?,
        ValueChange::Configured => client.rotate_value(*kind, name.as_str(), &input(None)).await?,
        ValueChange::Unchanged => return Ok(change),
    };
    warn_of_object(kind, &stored.name, stored.durability.as_ref());
    Ok(change)
}

pub(crate) fn note_users(changed: &[&AppValue], unchanged: &[ServiceView]) {
    let mut users: Vec<String> =
        changed.iter().flat_map(|value| users_of(value.kind, value.name.as_str(), unchanged)).collect();
    users.sort();
    users.dedup();
    if !users.is_empty() {
        stderr::note(&format!(
            "the changed values are used by {}: pods with `restart: always` are replaced step by step, unless \
             `on_change` says otherwise; `kubeleet restart SERVICE` replaces the others",
            users.join(", ")
        ));
    }
}

pub(crate) async fn of_app(client: &Client, app: &str) -> CommandResult<Vec<(ValueKind, ValueView)>> {
    let mut all = Vec::new();
    for kind in [ValueKind::Secret, ValueKind::Config] {
        let values: Vec<ValueView> = client.list(kind.as_str()).await?;
        all.extend(values.into_iter().map(|value| (kind, value)));
    }
    all.retain(|(_, value)| value.app.as_ref().is_some_and(|owner| owner.as_str() == app));
    Ok(all)
}

pub(crate) async fn surplus(client: &Client, app: &DesiredApp) -> CommandResult<Vec<(ValueKind, String)>> {
    let mut found = of_app(client, app.name.as_str()).await?;
    found.retain(|(kind, value)| !app.all_values.contains(&(*kind, value.name.clone())));
    Ok(found.into_iter().map(|(kind, value)| (kind, value.name.to_string())).collect())
}

pub(crate) async fn remove(
    values: Vec<(ValueKind, String)>,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<()> {
    for (kind, name) in values {
        let result = context.client.delete_value(kind, &name, false).await.map_err(CommandError::from);
        if batch.accept(result)?.is_some() {
            context.output.print_result_of(&title(kind, &name), "removed")?;
        }
    }
    Ok(())
}

/// Keeps values that a service of another profile uses. After a failure all of them stay.
pub(crate) async fn remove_all(
    app: &str,
    batch: &mut BatchResult,
    context: &mut Context<'_>,
) -> CommandResult<()> {
    if batch.exit() != Exit::Ok {
        return Ok(());
    }
    let Some(unused) = batch.accept(unused(&context.client, app).await)? else { return Ok(()) };
    remove(unused, batch, context).await
}

async fn unused(client: &Client, app: &str) -> CommandResult<Vec<(ValueKind, String)>> {
    let found = of_app(client, app).await?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let mut services = client.services_of_app(app).await?;
    services.retain(|service| service.state == ServiceState::Active);
    let names = found.into_iter().map(|(kind, value)| (kind, value.name.to_string()));
    Ok(names.filter(|(kind, name)| users_of(*kind, name, &services).is_empty()).collect())
}
