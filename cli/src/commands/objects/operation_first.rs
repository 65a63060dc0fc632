//! Commands that begin with the operation, like kubectl's: other names for commands of the types.

use clap::Args;
use model::spec::Kind;
use output::{ListStyle, OutputFormat};

use super::name_without_type;
use super::object_name::{self, ObjectName, ObjectType};
use crate::commands::apps::app_lock::AppLock;
use crate::commands::apps::app_values;
use crate::commands::apps::desired_state;
use crate::commands::apps::file_args::ComposeArgs;
use crate::commands::batch::BatchResult;
use crate::commands::cluster::events::{self, EventArgs};
use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::selector_args::SelectorArgs;
use crate::commands::services::edit::{self, EditArgs as ServiceEditArgs};
use crate::commands::services::restart::{self, RestartArgs as ServiceRestartArgs};
use crate::exit::Exit;

/// Arguments of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Type of object, with a name to show only that one: services, jobs, crons, apps, pods, nodes, volumes,
    /// secrets, configs, registries, routes, queues. Several types are joined by commas; `all` stands for
    /// services, pods and volumes.
    #[arg(value_name = "TYPE [NAME]", required = true, num_args = 1..=2)]
    object: Vec<String>,
    #[command(flatten)]
    selector: SelectorArgs,
    #[command(flatten)]
    style: ListStyle,
}

/// Arguments of `describe`.
#[derive(Debug, Args)]
pub(crate) struct DescribeArgs {
    /// Type and name, for example `service web` or `pod/web-0`; a name alone where one object has it.
    #[arg(value_name = "TYPE NAME", required = true, num_args = 1..=2)]
    object: Vec<String>,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(after_help = "Services are deleted with their pods. A deleted pod of a service is replaced.")]
pub(crate) struct DeleteArgs {
    /// Type and names, for example `service web db` or `pod/web-0 node/worker3`.
    #[arg(value_name = "TYPE NAME", required_unless_present = "files")]
    objects: Vec<String>,
    /// Delete the services of a file or directory, as for `apply`; repeatable.
    #[arg(long = "file", short, value_name = "FILE", conflicts_with_all = ["objects", "label"])]
    files: Vec<String>,
    #[command(flatten)]
    compose: ComposeArgs,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Wait until the services and pods are gone.
    #[arg(long)]
    wait: bool,
}

/// Arguments of `edit`.
#[derive(Debug, Args)]
#[command(after_help = "The editor is that of VISUAL or EDITOR; without both, vi.")]
pub(crate) struct EditArgs {
    /// The service: `web`, `service web` or `service/web`.
    #[arg(value_name = "SERVICE", required = true, num_args = 1..=2)]
    object: Vec<String>,
}

/// Arguments of `restart`.
#[derive(Debug, Args)]
pub(crate) struct RestartArgs {
    /// The services: `web`, `service web` or `service/web`; or an app, `app/shop`.
    #[arg(value_name = "SERVICE", required = true)]
    objects: Vec<String>,
    /// Wait until all pods are replaced.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn get(args: GetArgs, context: &mut Context<'_>) -> CommandResult {
    if let [words] = &*args.object
        && let Some(types) = several_types(words)
    {
        return list_several(types, &args, context).await;
    }
    if matches!(args.object.iter().map(String::as_str).collect::<Vec<_>>()[..], ["event" | "events" | "ev"]) {
        return events::run(&EventArgs::of(args.style.watch), context).await;
    }
    match object_name::parse_words(&args.object).map_err(CommandError::Usage)? {
        (Some(object_type), names) if names.is_empty() => {
            list(object_type, &args.selector, args.style, context).await
        }
        _ if args.style.watch || !args.selector.is_empty() => {
            Err(CommandError::Usage("--label and --watch are for lists: leave out the name".to_owned()))
        }
        (_, names) => describe_one(names, context).await,
    }
}

/// `pods,svc` and `all`; `None` for any other word.
fn several_types(words: &str) -> Option<Vec<ObjectType>> {
    match words {
        "all" => Some(vec![ObjectType::Service, ObjectType::Pod, ObjectType::Volume]),
        words if words.contains(',') => words.split(',').map(ObjectType::parse).collect(),
        _ => None,
    }
}

async fn list_several(types: Vec<ObjectType>, args: &GetArgs, context: &mut Context<'_>) -> CommandResult {
    let GetArgs { selector, style, .. } = args;
    let is_document = matches!(context.output.format, OutputFormat::Json | OutputFormat::Yaml);
    if style.watch || is_document {
        let detail = "-w, -o json and -o yaml are for one type: kubeleet get pods -o json";
        return Err(CommandError::Usage(detail.to_owned()));
    }
    let has_titles = !style.quiet && context.output.format != OutputFormat::Name;
    for (index, object_type) in types.into_iter().enumerate() {
        if index > 0 && has_titles {
            context.output.print_bytes(b"\n")?;
        }
        list(object_type, selector, *style, context).await?;
    }
    Ok(Exit::Ok)
}

async fn list(
    object_type: ObjectType,
    selector: &SelectorArgs,
    style: ListStyle,
    context: &mut Context<'_>,
) -> CommandResult {
    let has_labels = matches!(object_type, ObjectType::Service | ObjectType::Pod | ObjectType::Node);
    if !selector.is_empty() && !has_labels {
        let detail = "only services, pods and nodes have labels";
        return Err(CommandError::Usage(detail.to_owned()));
    }
    super::list(object_type, selector.clone(), style, context).await
}

pub(crate) async fn describe(args: DescribeArgs, context: &mut Context<'_>) -> CommandResult {
    let (_, names) = object_name::parse_words(&args.object).map_err(CommandError::Usage)?;
    describe_one(names, context).await
}

async fn describe_one(names: Vec<ObjectName>, context: &mut Context<'_>) -> CommandResult {
    let [ObjectName { object_type, name }] =
        <[_; 1]>::try_from(names).map_err(|_| CommandError::Usage("give one name".to_owned()))?;
    let (object_type, name) = match object_type {
        Some(object_type) => (object_type, name),
        None => name_without_type::find(&name, context).await?,
    };
    check_kind(object_type, &[&name], context).await?;
    super::describe(object_type, &name, context).await
}

async fn check_kind(
    object_type: ObjectType,
    names: &[impl AsRef<str>],
    context: &Context<'_>,
) -> CommandResult<()> {
    let Some(kind) = object_type.service_kind() else { return Ok(()) };
    for name in names.iter().map(AsRef::as_ref) {
        let found = context.client.service(name).await?.pod.kind;
        if found != kind {
            return Err(CommandError::NotFound(format!(
                "there is no {kind} {name}: it is a {found}, as in `kubeleet describe {found}/{name}`"
            )));
        }
    }
    Ok(())
}

pub(crate) async fn delete(args: DeleteArgs, context: &mut Context<'_>) -> CommandResult {
    if !args.files.is_empty() {
        let desired = desired_state::read_files(&args.files, &args.compose, None).await?;
        let mut names: Vec<String> =
            desired.services.iter().map(|service| service.name().to_string()).collect();
        let Some(app) = desired.app else {
            return delete_all(ObjectType::Service, names, args.wait, context).await;
        };
        // Dependent services are deleted first.
        names.reverse();
        let lock = AppLock::take(&context.client, &app.name, context.globals.timeout).await?;
        let deleted = delete_app(app.name.as_str(), names, args.wait, context).await;
        lock.release().await;
        return deleted;
    }
    if args.compose.is_set() || args.compose.strict {
        let detail = "--profile, --env-file, --project-name and --strict need -f";
        return Err(CommandError::Usage(detail.to_owned()));
    }
    if !args.selector.is_empty() {
        return delete_selected(args, context).await;
    }
    let mut batch = BatchResult::new();
    for (object_type, names) in by_type(&args.objects, context).await? {
        let result = delete_all(object_type, names, args.wait, context).await;
        if let Some(exit) = batch.accept(result)? {
            batch.record(exit);
        }
    }
    Ok(batch.exit())
}

async fn delete_app(
    app: &str,
    services: Vec<String>,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    let mut batch = BatchResult::new();
    batch.record(delete_all(ObjectType::Service, services, wait, context).await?);
    app_values::remove_all(app, &mut batch, context).await?;
    Ok(batch.exit())
}

async fn delete_all(
    object_type: ObjectType,
    names: Vec<String>,
    wait: bool,
    context: &mut Context<'_>,
) -> CommandResult {
    check_kind(object_type, &names, context).await?;
    super::delete(object_type, names, &SelectorArgs::default(), wait, context).await
}

async fn delete_selected(args: DeleteArgs, context: &mut Context<'_>) -> CommandResult {
    let DeleteArgs { selector, wait, .. } = args;
    match object_name::parse_words(&args.objects).map_err(CommandError::Usage)? {
        (Some(of @ (ObjectType::Service | ObjectType::Pod)), names) if names.is_empty() => {
            super::delete(of, Vec::new(), &selector, wait, context).await
        }
        _ => Err(CommandError::Usage(
            "with --label give a type and no names: kubeleet delete service -l app=shop".to_owned(),
        )),
    }
}

async fn by_type(words: &[String], context: &Context<'_>) -> CommandResult<Vec<(ObjectType, Vec<String>)>> {
    let (_, mut objects) = object_name::parse_words(words).map_err(CommandError::Usage)?;
    for open in objects.iter_mut().filter(|object| object.object_type.is_none()) {
        let (of, name) = name_without_type::find(&open.name, context).await?;
        // A service can be applied again; other objects are never deleted by name alone.
        if of != ObjectType::Service {
            let of = of.as_str();
            let detail =
                format!("{name} is a {of}: to delete it, write its type, `kubeleet delete {of}/{name}`");
            return Err(CommandError::Usage(detail));
        }
        *open = ObjectName { object_type: Some(of), name };
    }
    grouped(objects)
}

fn grouped(objects: Vec<ObjectName>) -> CommandResult<Vec<(ObjectType, Vec<String>)>> {
    if objects.is_empty() {
        return Err(CommandError::Usage("give at least one name".to_owned()));
    }
    let mut groups: Vec<(ObjectType, Vec<String>)> = Vec::new();
    for ObjectName { object_type, name } in objects {
        let Some(object_type) = object_type else { continue };
        match groups.iter_mut().find(|(of, _)| *of == object_type) {
            Some((_, names)) => names.push(name),
            None => groups.push((object_type, vec![name])),
        }
    }
    Ok(groups)
}

pub(crate) async fn edit(args: EditArgs, context: &mut Context<'_>) -> CommandResult {
    match object_name::services(&args.object).map_err(CommandError::Usage)?.as_slice() {
        [service] => edit::run(&ServiceEditArgs { service: service.clone() }, context).await,
        _ => Err(CommandError::Usage("give one service: kubeleet edit web".to_owned())),
    }
}

pub(crate) async fn restart(args: RestartArgs, context: &mut Context<'_>) -> CommandResult {
    let services = services_to_restart(&args.objects, context).await?;
    restart::run(&ServiceRestartArgs { services, wait: args.wait }, context).await
}

async fn services_to_restart(words: &[String], context: &Context<'_>) -> CommandResult<Vec<String>> {
    let (first, objects) = object_name::parse_words(words).map_err(CommandError::Usage)?;
    let is_app = |object: &&ObjectName| object.object_type == Some(ObjectType::App);
    if first.is_some() && objects.is_empty() || !objects.iter().any(|object| is_app(&object)) {
        return object_name::services(words).map_err(CommandError::Usage);
    }
    let mut services = Vec::new();
    for object in &objects {
        if !is_app(&object) {
            services.push(object.name.clone());
            continue;
        }
        let of_app = context.services_of_app(&object.name).await?;
        let runs_on = of_app.into_iter().filter(|service| service.pod.kind == Kind::Service);
        services.extend(runs_on.map(|service| service.name.to_string()));
    }
    Ok(services)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn names_are_grouped_by_type() {
        let parsed = |line: &str| object_name::parse_words(&words(line)).map_err(CommandError::Usage);
        let groups = parsed("svc/a pod/x svc/b").and_then(|(_, objects)| grouped(objects)).unwrap();
        let expected = [(ObjectType::Service, words("a b")), (ObjectType::Pod, words("x"))];
        assert_eq!(groups, expected);
        assert!(parsed("svc").and_then(|(_, objects)| grouped(objects)).is_err());
        let types = Some(vec![ObjectType::Pod, ObjectType::Service]);
        assert_eq!(several_types("pods,svc"), types);
        assert_eq!((several_types("pods"), several_types("pods,x")), (None, None));
    }
}
