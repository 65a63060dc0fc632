//! `apply`: makes services as files say. All files are read and checked before the first service is touched.

use std::collections::BTreeSet;
use std::io::Read;

use clap::Args;
use common::spec::ServiceInput;

use super::failure::Failure;
use super::wait::Goal;
use super::{Context, Tally};
use crate::client::Client;
use crate::exit::Exit;

/// Which files.
#[derive(Debug, Args)]
#[command(
    after_help = "A file holds one service or several, separated by lines of `---`; `-f -` reads standard input."
)]
pub(crate) struct ApplyArgs {
    /// File with services, or - for standard input; may be given again.
    #[arg(long = "file", short, value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Wait until all their pods run.
    #[arg(long)]
    wait: bool,
}

/// Makes the services in the order they stand there.
pub(super) async fn run(args: &ApplyArgs, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let mut wanted = Vec::new();
    for file in &args.files {
        wanted.extend(parse(file, &read(file)?).map_err(Failure::Other)?);
    }
    check_names(&wanted)?;
    let mut tally = Tally::new();
    let mut goals = Vec::new();
    for input in &wanted {
        let Some((service, verb)) = tally.take(put(&context.client, input).await)? else { continue };
        super::service::warn_unless_confirmed(&service);
        context.output.done(&service, verb)?;
        goals.push(Goal::Ready { service: service.name.to_string(), generation: service.generation });
    }
    if args.wait {
        tally.add(context.waiter().until_all(goals).await);
    }
    Ok(tally.0)
}

async fn put(
    client: &Client,
    input: &ServiceInput,
) -> Result<(api::dto::ServiceView, &'static str), Failure> {
    let before = match client.service(input.name.as_str()).await {
        Ok(service) => Some(service),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Err(error.into()),
    };
    let after = client.put_service(input).await?;
    let verb = match before {
        None => "created",
        // A write that changes nothing leaves the time as it was.
        Some(before) if before.updated_at == after.updated_at => "unchanged",
        Some(_) => "configured",
    };
    Ok((after, verb))
}

fn read(file: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let result = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        path => std::fs::read_to_string(path).map(|found| text = found),
    };
    match result {
        Ok(()) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::NotFound(format!("{file}: there is no such file")))
        }
        Err(error) => Err(Failure::Other(format!("{}: {error}", shown(file)))),
    }
}

fn shown(file: &str) -> &str {
    if file == "-" { "standard input" } else { file }
}

/// The services of one file. JSON is YAML, too.
fn parse(file: &str, text: &str) -> Result<Vec<ServiceInput>, String> {
    let services: Vec<ServiceInput> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column())).unwrap_or_default();
        format!("{}{place}: {}", shown(file), error.without_snippet())
    })?;
    if services.is_empty() {
        return Err(format!("{}: there is no service in it", shown(file)));
    }
    let violations: Vec<String> = services.iter().flat_map(violations).collect();
    if violations.is_empty() {
        return Ok(services);
    }
    Err(format!("{} can not be meant so:\n  {}", shown(file), violations.join("\n  ")))
}

fn violations(service: &ServiceInput) -> Vec<String> {
    let found = service.clone().normalize().err().unwrap_or_default();
    found.into_iter().map(|violation| format!("service {}: {violation}", service.name)).collect()
}

fn check_names(services: &[ServiceInput]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match services.iter().find(|service| !seen.insert(service.name.as_str())) {
        None => Ok(()),
        Some(twice) => {
            Err(Failure::Other(format!("service {} stands there twice: which one is meant?", twice.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = "name: web\nimage: nginx\nreplica: 3\nmemory: 64m\nrestart: no\nenvironment:\n  N: 1\n  B: true\n";
        let json = r#"{"name":"web","image":"nginx","replica":3,"memory":"64m","restart":"no",
            "environment":{"N":1,"B":true}}"#;
        let parsed = parse("-", yaml).unwrap();
        assert_eq!(parsed, parse("-", json).unwrap());
        assert_eq!((parsed.len(), parsed[0].replicas), (1, 3));
    }

    #[test]
    fn several_documents_in_one_file() {
        let text = "---\nname: a\nimage: x\n---\n# nothing here\n---\nname: b\nimage: y\nreplicas: 0\n...\n";
        let names: Vec<_> = parse("-", text).unwrap().into_iter().map(|s| s.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn errors_say_where() {
        let error = parse("web.yaml", "name: a\nimage: x\n---\nname: web\nimgae: nginx\n").unwrap_err();
        assert!(error.starts_with("web.yaml:5:") && error.contains("imgae"), "{error}");
        let error = parse("-", "name: web\nimage: nginx\nmemory: 1k\n").unwrap_err();
        assert!(error.contains("standard input") && error.contains("service web: /memory"), "{error}");
        assert!(parse("-", "").unwrap_err().contains("no service"));
        assert!(parse("x.json", "{\"name\":").is_err());
    }

    #[test]
    fn a_name_stands_once() {
        let services = parse("-", "name: a\nimage: x\n---\nname: a\nimage: y\n").unwrap();
        assert!(check_names(&services).unwrap_err().to_string().contains("twice"));
    }
}
