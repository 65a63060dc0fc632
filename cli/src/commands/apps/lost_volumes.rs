//! A renamed, removed or converted volume starts empty: `apply` stops before a service loses its data.

use std::collections::BTreeSet;

use api_types::{VolumeCondition, VolumeView};
use client::Client;
use model::spec::{ServiceInput, VolumeKind};

use crate::commands::error::{CommandError, CommandResult};

/// Both services are in the API's form.
pub(crate) async fn check(client: &Client, stored: &ServiceInput, after: &ServiceInput) -> CommandResult<()> {
    let kept = kept_sources(after);
    let left_out: BTreeSet<String> =
        kept_sources(stored).difference(&kept).map(|(_, source)| source.clone()).collect();
    if left_out.is_empty() {
        return Ok(());
    }
    let volumes: Vec<VolumeView> = client.list("volume").await?;
    let has_data = |volume: &&VolumeView| {
        volume.service == *stored.name()
            && left_out.contains(&volume.source)
            && !matches!(volume.condition, VolumeCondition::Former | VolumeCondition::Lost)
    };
    let lost: Vec<String> = volumes.iter().filter(has_data).map(told).collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "service/{}: it would not have these volumes any more, which have data: {}. It was not changed. Name the volumes \
         as before and with their kind, or apply with --leave-volumes: the data stays, and `kubeleet volume ls` lists it",
        stored.name(),
        lost.join(", ")
    )))
}

/// Sources of volumes that outlive a pod; true if shared.
fn kept_sources(input: &ServiceInput) -> BTreeSet<(bool, String)> {
    let volumes = input.pod.containers.iter().flat_map(|container| &container.volumes);
    let kept = volumes.filter(|volume| matches!(volume.kind, VolumeKind::Persistent | VolumeKind::Shared));
    let sources = kept.filter_map(|volume| Some((volume.kind == VolumeKind::Shared, volume.source.clone()?)));
    sources.collect()
}

fn told(volume: &VolumeView) -> String {
    match &volume.node {
        Some(node) => format!("{} on {node}", volume.name),
        None => volume.name.to_string(),
    }
}
