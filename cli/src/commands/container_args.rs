//! Flags of `run` about the program in the container, in the spellings of `docker run`.

use clap::Args;
use common::spec::{Command, ContainerSpec, StopSignal, TextList, VolumeMount};

#[derive(Debug, Args)]
pub(super) struct ContainerArgs {
    /// Replaces the image's entry point: one text, split as a shell would split it.
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    entrypoint: Option<Command>,
    /// Directory inside the container in which the command begins.
    #[arg(long, short = 'w', value_name = "PATH")]
    workdir: Option<String>,
    /// User, and perhaps group, that the command runs as.
    #[arg(long, short, value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Run an init as process 1 that reaps processes and passes on signals.
    #[arg(long)]
    init: bool,
    /// The file system of the image cannot be written to.
    #[arg(long)]
    read_only: bool,
    /// Directory in memory; repeatable.
    #[arg(long, value_name = "PATH[:OPTIONS]")]
    tmpfs: Vec<String>,
    /// Volume: `data:/path` stays with its replica, `/path` goes with the pod; repeatable.
    #[arg(long, short, value_name = "[NAME:]PATH[:ro]")]
    volume: Vec<VolumeMount>,
    /// Linux capability that the container does not get; repeatable.
    #[arg(long, value_name = "CAPABILITY")]
    cap_drop: Vec<String>,
    /// The most processes and threads.
    #[arg(long, value_name = "NUMBER")]
    pids_limit: Option<u32>,
    /// Signal that asks the container to stop.
    #[arg(long, value_name = "SIGNAL")]
    stop_signal: Option<StopSignal>,
}

impl ContainerArgs {
    /// Returns a container with these settings, and defaults for the others.
    pub(super) fn container(&self, image: String) -> ContainerSpec {
        ContainerSpec {
            entrypoint: self.entrypoint.clone().unwrap_or_default(),
            working_dir: self.workdir.clone(),
            user: self.user.clone(),
            init: self.init,
            read_only: self.read_only,
            tmpfs: TextList(self.tmpfs.clone()),
            volumes: self.volume.clone(),
            cap_drop: self.cap_drop.clone(),
            pids_limit: self.pids_limit,
            stop_signal: self.stop_signal,
            ..ContainerSpec::from_image(image)
        }
    }
}

fn words(text: &str) -> Result<Command, String> {
    super::values::deserialized(text)
}
