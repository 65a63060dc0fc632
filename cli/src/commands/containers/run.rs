//! `run`: starts a service with flags like those of `docker run`.

use std::collections::BTreeMap;

use api_types::ServiceView;
use clap::Args;
use client::Client;
use model::ids::{ServiceName, SpecId};
use model::spec::{
    Command, ContainerSpec, Cpus, DesiredService, Environment, Memory, OnDisconnect, Placement, PodSpec,
    Port, RestartPolicy, ServiceFields, ServiceInput,
};
use output::stderr;

use super::container_args::ContainerArgs;
use super::env_file;
use super::name_from_image;
use super::run_attached;
use super::run_to_end;
use super::terminal;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::flag_values::IngressArgument;
use crate::commands::wait::Goal;
use crate::exit::{ErrorExit, Exit};

const MAX_NAME_ATTEMPTS: usize = 5;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Options stand before the command; `--` before it is needed if it begins with a dash."
)]
pub(crate) struct RunArgs {
    /// Image reference, as for `docker run`.
    image: String,
    /// Name of the service [default: from the image, with a suffix if that name is taken]
    #[arg(long)]
    name: Option<ServiceName>,
    /// Number of pods.
    #[arg(long, short = 'n', default_value_t = 1, value_parser = flag_values::replica_count)]
    replicas: u32,
    /// Environment variable; KEY alone takes its value from this environment; repeatable.
    #[arg(long, short, value_name = "KEY[=VALUE]", value_parser = env_file::variable)]
    env: Vec<(String, String)>,
    /// File with one environment variable per line; repeatable. -e overrides it.
    #[arg(long, value_name = "FILE")]
    env_file: Vec<String>,
    /// Published port: 80, 8080:80 or 0.0.0.0:8080:80/udp; on loopback unless an address is given;
    /// repeatable.
    #[arg(long = "port", short, value_name = "PORT")]
    ports: Vec<Port>,
    /// Memory limit and reservation: 64MiB, 1g.
    #[arg(long, short)]
    memory: Option<Memory>,
    /// CPU limit and reservation, in cores: 0.5, 500m.
    #[arg(long)]
    cpus: Option<Cpus>,
    /// Hosts and ports served to the outside through the nodes' proxies: web.example:80, web.example/api:80,
    /// :80 for any host, or tcp:5432:5432; the last number is the port of the pods; `,tls` after it, as in
    /// web.example:80,tls, redirects plain HTTP to HTTPS, and `,tls=auto` has the certificate ordered;
    /// repeatable. Without that number it is the port that -p publishes, or 80.
    #[arg(long, value_name = "HOST[/PATH]:PORT[,tls[=auto]]", value_parser = IngressArgument::parse)]
    ingress: Vec<IngressArgument>,
    #[command(flatten)]
    container: ContainerArgs,
    /// When to restart a container that exited.
    #[arg(long, value_name = "POLICY", value_parser = flag_values::restart_policy())]
    restart: Option<RestartPolicy>,
    /// Whether a worker that cannot reach Redis keeps or stops these pods. Without it: keep, but stop with
    /// persistent volumes.
    #[arg(long, value_name = "POLICY", value_parser = flag_values::on_disconnect())]
    on_disconnect: Option<OnDisconnect>,
    /// Labels of the service, separated by commas; repeatable.
    #[arg(
        long = "label",
        short,
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        value_parser = flag_values::key_value
    )]
    label: Vec<(String, String)>,
    /// Requirement of the nodes that may run the pods: disk==ssd, zone!=b, "zone in (a,b)", gpu, !legacy, or
    /// node.hostname!=NODE; repeatable.
    #[arg(long, value_name = "CONSTRAINT")]
    constraint: Vec<String>,
    /// If not all pods fit the cluster, start those that do; the others wait for resources.
    #[arg(long)]
    allow_partial: bool,
    /// Wait until all its pods run. With --restart never or on-failure wait until they have ended; the exit
    /// code is that of the first container that failed.
    #[arg(long)]
    wait: bool,
    /// Leave the pods running in the background: the default. With --wait it returns when they run.
    #[arg(long, short)]
    detach: bool,
    /// Show the output of the pods until they have ended, exit with their exit code, and delete the service:
    /// for a command that ends.
    #[arg(long, conflicts_with = "detach")]
    rm: bool,
    /// Run the pod with this standard input until it ends, and delete the service afterwards.
    #[arg(long, short, conflicts_with_all = ["detach", "restart"])]
    interactive: bool,
    /// Give the pod this terminal; with --interactive.
    #[arg(long, short, conflicts_with_all = ["detach", "restart"])]
    tty: bool,
    /// Command and arguments that replace those of the image.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn run(args: &RunArgs, context: &mut Context<'_>) -> CommandResult {
    args.check().map_err(|detail| CommandError::Usage(detail.to_owned()))?;
    let client = context.client.allowing_partial(args.allow_partial);
    let service = match &args.name {
        Some(name) => client.create_service(&args.service(name.clone())?).await?,
        None => create_with_free_name(args, &client).await?,
    };
    warn_if_unconfirmed(&service);
    if args.is_attached() {
        stderr::note(&format!("service/{} created; it is deleted when this ends", service.name));
        return run_attached::run(&service, args.is_interactive().then_some(args.tty), context).await;
    }
    context.output.print_result(&service, "created")?;
    for argument in &args.ingress {
        if let IngressArgument::Host(host) = argument {
            let port = args.ingress_port();
            stderr::note(&format!(
                "{host} leads to port {port} of the pods; for another one write {host}:PORT"
            ));
        }
    }
    if args.ports.iter().any(|port| port.host_ip.is_none()) {
        stderr::note("the ports are published on loopback only; 0.0.0.0:8080:80 opens one to other machines");
    }
    if !args.wait {
        return Ok(Exit::Ok);
    }
    if args.ends_by_itself() {
        return run_to_end::wait(&service, context).await;
    }
    Ok(context.waiter().wait_for(Goal::ready(&service)).await)
}

async fn create_with_free_name(args: &RunArgs, client: &Client) -> CommandResult<ServiceView> {
    let base = name_from_image::from_image(&args.image).ok_or_else(|| {
        CommandError::Usage(format!("no service name can be made from {:?}: set --name", args.image))
    })?;
    let mut name = base.clone();
    for _ in 0..MAX_NAME_ATTEMPTS {
        let valid = ServiceName::new(name).map_err(|e| CommandError::Usage(e.to_string()))?;
        match client.create_service(&args.service(valid)?).await {
            Err(error) if error.exit() == Exit::Conflict => name = format!("{base}-{}", random_suffix()),
            other => return Ok(other?),
        }
    }
    Err(CommandError::Other(format!(
        "{MAX_NAME_ATTEMPTS} names that begin with {base:?} are taken: set --name"
    )))
}

fn random_suffix() -> String {
    SpecId::random().as_str().chars().take(4).collect()
}

impl RunArgs {
    fn ends_by_itself(&self) -> bool {
        match self.restart {
            Some(policy) => matches!(policy, RestartPolicy::Never | RestartPolicy::OnFailure),
            None => self.is_attached(),
        }
    }

    /// This process deletes the service at its end.
    fn is_attached(&self) -> bool {
        self.rm || self.is_interactive()
    }

    fn is_interactive(&self) -> bool {
        self.interactive || self.tty
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.is_attached() && !self.ends_by_itself() {
            return Err("--rm is for pods that end: leave out --restart, or write never or on-failure");
        }
        if self.is_interactive() && self.replicas != 1 {
            return Err("-i and -t are for one pod: leave out --replicas");
        }
        if self.tty && !terminal::is_interactive() {
            return Err(terminal::NONE);
        }
        Ok(())
    }

    fn ingress_port(&self) -> u16 {
        match &*self.ports {
            [only] => only.container,
            _ => IngressArgument::DEFAULT_PORT,
        }
    }

    fn service(&self, name: ServiceName) -> CommandResult<ServiceInput> {
        let mut environment = Environment::default();
        let mut variables = BTreeMap::new();
        for file in &self.env_file {
            variables.extend(env_file::read(file)?);
        }
        variables.extend(self.env.iter().cloned());
        for (key, value) in &variables {
            environment.insert(key, value.clone()).map_err(CommandError::Usage)?;
        }
        let labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        let container = ContainerSpec {
            environment,
            ports: self.ports.clone(),
            memory: self.memory,
            cpus: self.cpus,
            restart: self.restart.unwrap_or(match self.is_attached() {
                true => RestartPolicy::Never,
                false => RestartPolicy::default(),
            }),
            command: Command(self.command.clone()),
            stdin_open: self.is_interactive(),
            stdin_once: self.is_interactive(),
            tty: self.tty,
            ..self.container.container(self.image.clone())
        };
        let mut pod = PodSpec { containers: vec![container], ..PodSpec::default() };
        pod.on_disconnect = self.on_disconnect.unwrap_or_else(|| pod.default_on_disconnect());
        let ingress: Result<Vec<_>, String> =
            self.ingress.iter().map(|argument| argument.rule(self.ingress_port())).collect();
        let ingress = ingress.map_err(CommandError::Usage)?;
        let constraints = self.constraint.clone();
        let placement = (!constraints.is_empty()).then(|| Placement { constraints, ..Placement::default() });
        Ok(ServiceInput::from(DesiredService {
            name,
            replicas: self.replicas,
            fields: ServiceFields { labels, ingress, placement, ..ServiceFields::default() },
            pod,
        }))
    }
}
