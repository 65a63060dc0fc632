//! `run`: a service from an image and flags, as `docker run` would be typed.

use std::collections::BTreeMap;

use clap::Args;
use common::ids::{ServiceName, SpecId};
use common::spec::{Command, Cpus, Environment, Memory, OnDisconnect, Port, RestartPolicy, ServiceInput};

use super::failure::Failure;
use super::wait::Goal;
use super::{Context, fields, names};
use crate::client::Client;
use crate::exit::Exit;

/// How often another suffix is tried when the image's own name is taken.
const SUFFIXES: usize = 5;

/// What to run.
#[derive(Debug, Args)]
#[command(after_help = "Example: kubeleet run nginx --replicas 3 -p 8080:80 -e MODE=demo --wait")]
pub(crate) struct RunArgs {
    /// Image reference, as `docker run` takes it.
    image: String,
    /// Name of the service [default: from the image; with a suffix when that is taken]
    #[arg(long)]
    name: Option<ServiceName>,
    /// How many pods.
    #[arg(long, short = 'n', default_value_t = 1)]
    replicas: u32,
    /// Environment variable; may be given again.
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = fields::pair)]
    env: Vec<(String, String)>,
    /// Published port: 80, 8080:80 or 0.0.0.0:8080:80/udp; loopback unless an address is given.
    #[arg(long = "port", short, value_name = "PORT")]
    ports: Vec<Port>,
    /// Memory limit and reservation: 64MiB, 1g.
    #[arg(long)]
    memory: Option<Memory>,
    /// CPU limit and reservation, in cores: 0.5, 500m.
    #[arg(long)]
    cpus: Option<Cpus>,
    /// What happens when the container ends by itself: always, on-failure or never.
    #[arg(long, value_name = "POLICY", value_parser = fields::word::<RestartPolicy>)]
    restart: Option<RestartPolicy>,
    /// What a worker does with these pods when it can not reach Redis: keep or stop.
    #[arg(long, value_name = "POLICY", default_value = "keep", value_parser = fields::word::<OnDisconnect>)]
    on_disconnect: OnDisconnect,
    /// Label of the service; may be given again.
    #[arg(long = "label", short, value_name = "KEY=VALUE", value_parser = fields::pair)]
    label: Vec<(String, String)>,
    /// Wait until all its pods run.
    #[arg(long)]
    wait: bool,
    /// Replaces the image's command.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Makes the service, and waits if that was asked for.
pub(super) async fn run(args: &RunArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let service = match &args.name {
        Some(name) => context.client.create_service(&args.service(name.clone())?).await?,
        None => create_with_free_name(args, &context.client).await?,
    };
    super::service::warn_unless_confirmed(&service);
    context.output.done(&service, "created")?;
    if !args.wait {
        return Ok(Exit::Ok);
    }
    let goal = Goal::Ready { service: service.name.to_string(), generation: service.generation };
    Ok(context.waiter().until(goal).await)
}

async fn create_with_free_name(args: &RunArgs, client: &Client) -> Result<api::dto::ServiceView, Failure> {
    let stem = names::from_image(&args.image)
        .ok_or_else(|| Failure::Usage(format!("{:?} gives no name: say --name", args.image)))?;
    let mut name = stem.clone();
    for _ in 0..SUFFIXES {
        let valid = ServiceName::new(name).map_err(|e| Failure::Usage(e.to_string()))?;
        match client.create_service(&args.service(valid)?).await {
            Err(error) if error.exit() == Exit::Conflict => name = format!("{stem}-{}", suffix()),
            other => return Ok(other?),
        }
    }
    Err(Failure::Other(format!("no free name like {stem:?} was found: say --name")))
}

/// Four random hexadecimal digits.
fn suffix() -> String {
    SpecId::random().as_str().chars().take(4).collect()
}

impl RunArgs {
    fn service(&self, name: ServiceName) -> Result<ServiceInput, Failure> {
        let mut environment = Environment::default();
        for (key, value) in &self.env {
            environment.insert(key, value.clone()).map_err(Failure::Usage)?;
        }
        let labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        Ok(ServiceInput {
            name,
            replicas: self.replicas,
            labels,
            on_disconnect: self.on_disconnect,
            stop_grace_period: None,
            containers: None,
            image: Some(self.image.clone()),
            command: (!self.command.is_empty()).then(|| Command(self.command.clone())),
            environment: (!environment.is_empty()).then_some(environment),
            ports: (!self.ports.is_empty()).then(|| self.ports.clone()),
            memory: self.memory,
            cpus: self.cpus,
            restart: self.restart,
        })
    }
}
