//! `kubeleet sample-image TAG`: an image that sleeps, made without any registry, for trying things out and for tests.

use anyhow::Context;
use worker::runtime::docker::DockerRuntime;
use worker::runtime::hello::ensure_hello_image;

use crate::settings::SettingFlags;

/// Makes the image under this tag on the engine the settings name, unless it is there.
pub(crate) async fn run(tag: &str, flags: &SettingFlags) -> anyhow::Result<()> {
    let config = flags.load()?;
    let docker = DockerRuntime::connect(config.docker_host.as_deref()).context("reaching the engine")?;
    let made = ensure_hello_image(&docker, &[tag]).await?;
    tracing::info!("{tag} {}", if made { "made" } else { "is there already" });
    Ok(())
}
