//! Flags of `run` for the container's program, spelled as in `docker run`.

use clap::Args;
use model::spec::{
    Command, ContainerSpec, HealthCheck, HealthTest, LogDriver, LogOptions, Logging, Memory, Milliseconds,
    PullPolicy, StopSignal, TextList, VolumeMount,
};

use crate::commands::flag_values::deserialized;

#[derive(Debug, Args)]
pub(crate) struct ContainerArgs {
    /// Replaces the image's entry point: one text, split as a shell would split it.
    #[arg(long, value_name = "COMMAND", value_parser = deserialized::<Command>)]
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
    /// When the image is pulled: always, missing, never.
    #[arg(long, value_name = "POLICY")]
    pull: Option<PullPolicy>,
    /// Linux capability that the container does not get; repeatable.
    #[arg(long, value_name = "CAPABILITY")]
    cap_drop: Vec<String>,
    /// The most processes and threads.
    #[arg(long, value_name = "NUMBER")]
    pids_limit: Option<u32>,
    /// Name that the container has for itself.
    #[arg(long, value_name = "NAME")]
    hostname: Option<String>,
    /// Memory that is reserved, if less than the limit: 32MiB, 1g.
    #[arg(long, value_name = "MEMORY")]
    memory_reservation: Option<Memory>,
    /// How the engine keeps the log: json-file, local.
    #[arg(long, value_name = "DRIVER", value_parser = deserialized::<LogDriver>)]
    log_driver: Option<LogDriver>,
    /// Limit of the log: max-size=5m, max-file=2; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = log_option)]
    log_opt: Vec<LogOptions>,
    /// Signal that asks the container to stop.
    #[arg(long, value_name = "SIGNAL")]
    stop_signal: Option<StopSignal>,
    #[command(flatten)]
    health: HealthArgs,
}

/// The check of the container's health. Without a command these are the times of the image's own check.
#[derive(Debug, Args)]
struct HealthArgs {
    /// Command that exits with 0 while the container is well; a shell in the container runs it.
    #[arg(long, value_name = "COMMAND")]
    health_cmd: Option<String>,
    /// Time from one check to the next.
    #[arg(long, value_name = "DURATION", value_parser = deserialized::<Milliseconds>)]
    health_interval: Option<Milliseconds>,
    /// Failures in a row after which the container is unhealthy.
    #[arg(long, value_name = "NUMBER")]
    health_retries: Option<u32>,
    /// Time after which a check without an answer has failed.
    #[arg(long, value_name = "DURATION", value_parser = deserialized::<Milliseconds>)]
    health_timeout: Option<Milliseconds>,
    /// Time after the start in which failures do not count until a check has passed.
    #[arg(long, value_name = "DURATION", value_parser = deserialized::<Milliseconds>)]
    health_start_period: Option<Milliseconds>,
    /// Time from one check to the next while the container starts.
    #[arg(long, value_name = "DURATION", value_parser = deserialized::<Milliseconds>)]
    health_start_interval: Option<Milliseconds>,
    /// No check, also if the image has one.
    #[arg(long, conflicts_with_all = ["health_cmd", "health_interval", "health_retries", "health_timeout",
        "health_start_period", "health_start_interval"])]
    no_healthcheck: bool,
}

impl HealthArgs {
    fn check(&self) -> Option<HealthCheck> {
        // As with Docker, an empty command is none.
        let command = self.health_cmd.clone().filter(|command| !command.is_empty());
        let check = HealthCheck {
            test: command.map(|command| HealthTest::new(vec!["CMD-SHELL".to_owned(), command])),
            disable: self.no_healthcheck,
            interval: self.health_interval,
            timeout: self.health_timeout,
            start_period: self.health_start_period,
            start_interval: self.health_start_interval,
            retries: self.health_retries,
            ..HealthCheck::default()
        };
        (check != HealthCheck::default()).then_some(check)
    }
}

impl ContainerArgs {
    fn logging(&self) -> Option<Logging> {
        let mut logging = Logging { driver: self.log_driver.unwrap_or_default(), ..Logging::default() };
        for option in &self.log_opt {
            logging.options.max_size = option.max_size.or(logging.options.max_size);
            logging.options.max_file = option.max_file.or(logging.options.max_file);
        }
        (self.log_driver.is_some() || !self.log_opt.is_empty()).then_some(logging)
    }

    pub(crate) fn container(&self, image: String) -> ContainerSpec {
        ContainerSpec {
            pull_policy: self.pull.unwrap_or_default(),
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
            hostname: self.hostname.clone(),
            memory_reservation: self.memory_reservation,
            logging: self.logging(),
            healthcheck: self.health.check(),
            ..ContainerSpec::from_image(image)
        }
    }
}

/// The other option stays unset.
fn log_option(text: &str) -> Result<LogOptions, String> {
    let known = || format!("{text:?} is not max-size=5m or max-file=2");
    match text.split_once('=') {
        Some(("max-size", size)) => Ok(LogOptions { max_size: Some(size.parse()?), max_file: None }),
        Some(("max-file", count)) => {
            Ok(LogOptions { max_size: None, max_file: Some(count.parse().map_err(|_| known())?) })
        }
        _ => Err(known()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        container: ContainerArgs,
    }

    fn check(flags: &[&str]) -> Option<HealthCheck> {
        let words = std::iter::once("run").chain(flags.iter().copied());
        Line::try_parse_from(words).unwrap().container.container("x".to_owned()).healthcheck
    }

    #[test]
    fn the_flags_are_dockers() {
        let json = |json: &str| Some(serde_json::from_str::<HealthCheck>(json).unwrap());
        assert_eq!(check(&[]), None);
        assert_eq!(
            check(&["--health-cmd", "curl -f localhost", "--health-interval", "5s", "--health-retries", "2"]),
            json(r#"{"test":"curl -f localhost","interval":"5s","retries":2}"#)
        );
        assert_eq!(
            check(&["--health-timeout", "500ms", "--health-start-period", "1m"]),
            json(r#"{"timeout":"500ms","start_period":"1m"}"#)
        );
        let words = ["run", "--log-opt", "max-size=5m", "--log-opt", "max-file=2", "--hostname", "mail"];
        let container = Line::try_parse_from(words).unwrap().container.container("x".to_owned());
        let logging = serde_json::from_str(r#"{"options":{"max-size":"5m","max-file":2}}"#).unwrap();
        assert_eq!((container.logging, container.hostname.as_deref()), (Some(logging), Some("mail")));
        assert!(Line::try_parse_from(["run", "--log-driver", "syslog"]).is_err());
        assert_eq!(check(&["--no-healthcheck"]), json(r#"{"disable":true}"#));
        assert!(Line::try_parse_from(["run", "--no-healthcheck", "--health-cmd", "x"]).is_err());
    }
}
