//! Finds an object by a name without a type.

use client::{ClientError, PodFilter};
use model::value::ValueKind;

use super::object_name::ObjectType;
use crate::commands::context::Context;
use crate::commands::error::CommandError;
use crate::habits;

const TYPES: &str = "service, job, cron, app, pod, node, volume, secret, config, registry, route or queue";

/// Returns the type and the full name of the only object with this name.
///
/// # Errors
/// `NotFound` if no object has the name, `Usage` if several have.
pub(crate) async fn find(name: &str, context: &Context<'_>) -> Result<(ObjectType, String), CommandError> {
    let client = &context.client;
    let service = context.service_name(name).await?;
    let mut found = Vec::new();
    if exists(client.service(&service).await)? {
        found.push((ObjectType::Service, service));
    }
    for (of, is_there) in [
        (ObjectType::App, client.services_of_app(name).await.is_ok_and(|services| !services.is_empty())),
        (ObjectType::Pod, is_pod(name, context).await?),
        (ObjectType::Node, exists(client.node(name).await)?),
        (ObjectType::Volume, exists(client.volume(name).await)?),
        (ObjectType::Secret, exists(client.value(ValueKind::Secret, name).await)?),
        (ObjectType::Config, exists(client.value(ValueKind::Config, name).await)?),
    ] {
        if is_there {
            found.push((of, name.to_owned()));
        }
    }
    match <[_; 1]>::try_from(found) {
        Ok([only]) => Ok(only),
        Err(none) if none.is_empty() && ["ns", "namespace", "namespaces"].contains(&name) => {
            Err(CommandError::NotFound(habits::NO_NAMESPACES.to_owned()))
        }
        Err(none) if none.is_empty() => Err(CommandError::NotFound(format!(
            "nothing is called {name}; types are {TYPES}, and `kubeleet get service` lists those of one"
        ))),
        Err(several) => {
            let names: Vec<String> =
                several.iter().map(|(of, name)| format!("{}/{name}", of.as_str())).collect();
            Err(CommandError::Usage(format!("say which one you mean: {}", names.join(" or "))))
        }
    }
}

async fn is_pod(name: &str, context: &Context<'_>) -> Result<bool, CommandError> {
    let filter = PodFilter { prefix: Some(name.to_owned()), ..PodFilter::default() };
    let (pods, _) = context.client.some_pods(&filter, 1).await?;
    Ok(!pods.is_empty())
}

fn exists<T>(result: Result<T, ClientError>) -> Result<bool, CommandError> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.status(), Some(400 | 404 | 422)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
