//! `set`: changes one field of a service.

use std::collections::BTreeMap;

use api_types::RolloutState;
use clap::{Args, Subcommand};
use model::spec::ContainerSpec;
use output::stderr;

use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::objects::object_name;
use crate::commands::wait::Goal;

/// Subcommands of `set`.
#[derive(Debug, Subcommand)]
pub(crate) enum SetCommand {
    /// Change the image of a service, and replace its pods step by step.
    Image(ImageArgs),
    /// Change environment variables of a service, and replace its pods step by step.
    Env(EnvArgs),
}

/// Arguments of `set env`.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    service: String,
    /// Variables: KEY=VALUE sets one, KEY- removes one.
    #[arg(value_name = "KEY=VALUE", required = true, value_parser = variable_change)]
    changes: Vec<VariableChange>,
    /// Name of the container, if the pods have several.
    #[arg(long, short, value_name = "CONTAINER")]
    container: Option<String>,
    /// Wait until all pods run with them.
    #[arg(long)]
    wait: bool,
}

/// `None` removes the variable.
type VariableChange = (String, Option<String>);

/// Arguments of `set image`.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE", value_parser = object_name::service)]
    service: String,
    /// Image reference; CONTAINER=IMAGE, as kubectl has it, means the same.
    #[arg(value_name = "IMAGE")]
    image: String,
    /// Wait until all pods run with the new image.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(command: SetCommand, context: &mut Context<'_>) -> CommandResult {
    let (service, patch, result, wait) = match command {
        SetCommand::Image(ImageArgs { service, image, wait }) => {
            let service = context.service_name(&service).await?;
            let image = image_of(&image);
            (service, serde_json::json!({ "image": image }), format!("image set to {image}"), wait)
        }
        SetCommand::Env(EnvArgs { service, changes, container, wait }) => {
            let service = context.service_name(&service).await?;
            let view = context.client.service(&service).await?;
            let patch = environment_patch(&view.pod.containers, container.as_deref(), &changes)
                .map_err(CommandError::Usage)?;
            (service, patch, describe(&changes), wait)
        }
    };
    let after = context.client.patch_service(&service, &patch).await?;
    warn_if_unconfirmed(&after);
    context.output.print_result(&after, &result)?;
    if after.rollout.as_ref().is_some_and(|rollout| rollout.state == RolloutState::Paused) {
        stderr::note(&format!("its rollout is paused: this waits for `kubeleet rollout resume {service}`"));
    }
    Ok(context.wait_if(wait, vec![Goal::ready(&after)]).await)
}

fn variable_change(text: &str) -> Result<VariableChange, String> {
    if let Some(key) = text.strip_suffix('-').filter(|key| !key.is_empty() && !key.contains('=')) {
        return Ok((key.to_owned(), None));
    }
    match flag_values::key_value(text) {
        Ok((key, value)) => Ok((key, Some(value))),
        Err(_) => {
            Err(format!("{text:?} is neither KEY=value, which sets a variable, nor KEY-, which removes it"))
        }
    }
}

fn environment_patch(
    containers: &[ContainerSpec],
    name: Option<&str>,
    changes: &[VariableChange],
) -> Result<serde_json::Value, String> {
    let environment =
        serde_json::json!({ "environment": changes.iter().cloned().collect::<BTreeMap<_, _>>() });
    let name_of = |container: &ContainerSpec| container.name.as_ref().map(ToString::to_string);
    let names: Vec<String> = containers.iter().filter_map(name_of).collect();
    let index = match name {
        None if containers.len() < 2 => return Ok(environment),
        None => {
            return Err(format!("its pods have several containers: add --container {}", names.join(" or ")));
        }
        Some(name) => containers.iter().position(|own| name_of(own).as_deref() == Some(name)),
    };
    let Some(index) = index else {
        return Err(format!("its pods have no such container, but {}", names.join(" and ")));
    };
    // A merge patch replaces lists as a whole.
    let mut list = serde_json::to_value(containers).map_err(|error| error.to_string())?;
    let mut variables = list[index]["environment"].as_object().cloned().unwrap_or_default();
    for (key, value) in changes {
        match value {
            Some(value) => drop(variables.insert(key.clone(), value.clone().into())),
            None => drop(variables.remove(key)),
        }
    }
    list[index]["environment"] = variables.into();
    Ok(serde_json::json!({ "containers": list }))
}

/// Without the values, which may be secrets.
fn describe(changes: &[VariableChange]) -> String {
    let of = |is_set: bool| changes.iter().filter(move |(_, value)| value.is_some() == is_set);
    let list = |is_set| of(is_set).map(|(key, _)| key.as_str()).collect::<Vec<_>>().join(", ");
    match (list(true), list(false)) {
        (set, removed) if removed.is_empty() => format!("environment: {set} set"),
        (set, removed) if set.is_empty() => format!("environment: {removed} removed"),
        (set, removed) => format!("environment: {set} set, {removed} removed"),
    }
}

/// Image references contain no `=`.
fn image_of(text: &str) -> &str {
    text.split_once('=').map_or(text, |(_, image)| image)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use testkit::api_fixtures as fixtures;

    use super::*;

    #[test]
    fn variables_are_set_and_removed_and_their_values_are_not_printed() {
        let changes = ["A=b=c", "OLD-"].map(|text| variable_change(text).unwrap());
        assert_eq!(describe(&changes), "environment: A set, OLD removed");
        let mut containers = fixtures::service("web").pod.containers;
        let patch = environment_patch(&containers, None, &changes).unwrap();
        assert_eq!(patch, serde_json::json!({"environment": {"A": "b=c", "OLD": null}}));
        containers.push(containers[0].clone());
        for (container, name) in containers.iter_mut().zip(["app", "side"]) {
            container.name = Some(model::ids::ContainerName::new(name).unwrap());
        }
        let error = environment_patch(&containers, None, &changes).unwrap_err();
        assert!(error.contains("--container app or side"), "{error}");
        let patch = environment_patch(&containers, Some("side"), &changes).unwrap();
        let environment = |index: usize| patch["containers"][index]["environment"].clone();
        assert_eq!(environment(0), serde_json::json!({"PASSWORD": "hunter2"}));
        assert_eq!(environment(1), serde_json::json!({"A": "b=c", "PASSWORD": "hunter2"}));
        for wrong in ["A", "-", "=b"] {
            assert!(variable_change(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_image_with_the_name_of_its_container_is_that_image() {
        for (text, image) in
            [("nginx:2", "nginx:2"), ("web=nginx:2", "nginx:2"), ("a/b@sha256:c", "a/b@sha256:c")]
        {
            assert_eq!(image_of(text), image);
        }
    }
}
