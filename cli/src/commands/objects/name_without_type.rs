//! Finds an object by a name without a type.

use api_types::{NodeView, ValueView, VolumeView};
use client::{ClientError, PodFilter};

use super::object_name::ObjectType;
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::habits;

const TYPES: &str = "service, job, cron, app, pod, node, volume, secret, config, registry, route or queue";

/// `NotFound` or `Usage` unless one object has the name.
pub(crate) async fn find(name: &str, context: &Context<'_>) -> CommandResult<(ObjectType, String)> {
    let client = &context.client;
    let service = context.service_name(name).await?;
    let mut found = Vec::new();
    if exists(client.service(&service).await)? {
        found.push((ObjectType::Service, service));
    }
    for (of, is_there) in [
        (ObjectType::App, client.services_of_app(name).await.is_ok_and(|services| !services.is_empty())),
        (ObjectType::Pod, is_pod(name, context).await?),
        (ObjectType::Node, exists::<NodeView>(client.get("node", name).await)?),
        (ObjectType::Volume, exists::<VolumeView>(client.get("volume", name).await)?),
        (ObjectType::Secret, exists::<ValueView>(client.get("secret", name).await)?),
        (ObjectType::Config, exists::<ValueView>(client.get("config", name).await)?),
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

async fn is_pod(name: &str, context: &Context<'_>) -> CommandResult<bool> {
    let filter = PodFilter { prefix: Some(name.to_owned()), ..PodFilter::default() };
    let (pods, _) = context.client.some_pods(&filter, 1).await?;
    Ok(!pods.is_empty())
}

fn exists<T>(result: Result<T, ClientError>) -> CommandResult<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.is_no_such_object() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
