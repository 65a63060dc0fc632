//! `kubeleet sample-image TAG`, for first steps and tests.

use anyhow::Context;
use clap::Args;
use daemon::config::Serves;
use engine::docker::DockerRuntime;
use engine::docker::sample_image::ensure_hello_image;

use crate::settings::SettingFlags;

/// Arguments of `sample-image`.
#[derive(Args)]
pub(crate) struct SampleImageOptions {
    /// Tag of the image, for example spaster/alpine-sleep
    tag: String,
    #[command(flatten)]
    settings: SettingFlags,
}

pub(crate) async fn run(options: &SampleImageOptions) -> anyhow::Result<()> {
    let config = options.settings.load(Serves::Nothing)?;
    let docker =
        DockerRuntime::connect(config.docker_host.as_deref()).context("cannot connect to the engine")?;
    let tag = options.tag.as_str();
    let created = ensure_hello_image(&docker, &[tag]).await?;
    tracing::info!("image {tag} {}", if created { "created" } else { "exists already" });
    Ok(())
}
