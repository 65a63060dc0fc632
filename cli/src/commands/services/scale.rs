//! `scale` and `service scale`.

use std::collections::BTreeSet;

use clap::Args;
use output::stderr;

use crate::commands::batch::BatchResult;
use crate::commands::context::Context;
use crate::commands::durability_warning::warn_if_unconfirmed;
use crate::commands::error::{CommandError, CommandResult};
use crate::commands::flag_values;
use crate::commands::objects::object_name::{self, ObjectType};
use crate::commands::wait::Goal;

/// Arguments of `scale` and `service scale`.
#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    /// A service and its number of pods; or several, each as `web=3`.
    #[arg(value_name = "SERVICE REPLICAS", required = true)]
    words: Vec<String>,
    /// Number of pods of each service that is named.
    #[arg(long, value_parser = flag_values::replica_count)]
    replicas: Option<u32>,
    /// If not all pods fit the cluster, start those that do; the others wait for resources.
    #[arg(long)]
    allow_partial: bool,
    /// Wait until that many pods run.
    #[arg(long)]
    wait: bool,
}

type ScaleTarget = (String, u32);

/// All arguments are checked before the first request.
pub(crate) async fn run(args: &ScaleArgs, context: &mut Context<'_>) -> CommandResult {
    let targets = targets(&args.words, args.replicas).map_err(CommandError::Usage)?;
    let client = context.client.allowing_partial(args.allow_partial);
    let mut batch = BatchResult::new();
    let mut goals = Vec::new();
    for (typed, replicas) in targets {
        let service = context.service_name(&typed).await?;
        let before = match replicas {
            0 => client.service(&service).await.map_or(0, |view| view.replicas),
            _ => 0,
        };
        let scaled = client.scale(&service, replicas).await.map_err(CommandError::from);
        let Some(view) = batch.accept(scaled)? else { continue };
        warn_if_unconfirmed(&view);
        context.output.print_result(&view, &format!("scaled to {replicas}"))?;
        if before > 0 {
            stderr::note(&format!(
                "its pods stop, and it stays: `kubeleet scale {service} {before}` starts them again"
            ));
        }
        goals.push(Goal::ready(&view));
    }
    batch.record(context.wait_if(args.wait, goals).await);
    Ok(batch.exit())
}

/// `web 3`, `web=3 db=2`, or names alone with `--replicas`.
fn targets(words: &[String], replicas: Option<u32>) -> Result<Vec<ScaleTarget>, String> {
    let targets = match (replicas, words) {
        (Some(replicas), names) => with_number(names, replicas)?,
        (None, words) if words.iter().any(|word| word.contains('=')) => pairs(words)?,
        (None, [names @ .., last]) if !names.is_empty() => {
            let targets = with_number(names, flag_values::replica_count(last)?)?;
            if targets.len() > 1 {
                let pair = |(name, replicas): &ScaleTarget| format!(" {name}={replicas}");
                let pairs: String = targets.iter().map(pair).collect();
                return Err(format!("write the number beside each service: kubeleet scale{pairs}"));
            }
            targets
        }
        (None, _) => return Err("the number of pods is missing: kubeleet scale web 3".to_owned()),
    };
    let mut names = BTreeSet::new();
    match targets.iter().find(|(name, _)| !names.insert(name)) {
        Some((name, _)) => Err(format!("{name} is named twice")),
        None => Ok(targets),
    }
}

fn with_number(names: &[String], replicas: u32) -> Result<Vec<ScaleTarget>, String> {
    if let Some(pair) = names.iter().find(|name| name.contains('=')) {
        return Err(format!("{pair:?} has a number already: leave out the other one"));
    }
    Ok(object_name::services(names)?.into_iter().map(|name| (name, replicas)).collect())
}

/// With or without a type before the pairs.
fn pairs(words: &[String]) -> Result<Vec<ScaleTarget>, String> {
    let pairs = match words.first().map(|word| ObjectType::parse(word)) {
        Some(Some(of)) if of.is_service() => &words[1..],
        _ => words,
    };
    let read = |word: &String| {
        let (name, number) =
            word.split_once('=').ok_or_else(|| format!("{word:?} has no number of pods: write {word}=3"))?;
        Ok((object_name::service(name)?, flag_values::replica_count(number)?))
    };
    pairs.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn of(line: &str, option: Option<u32>) -> Result<Vec<ScaleTarget>, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        targets(&words, option)
    }

    #[test]
    fn the_number_is_the_last_word_or_an_option_or_beside_each_name() {
        for (line, option, expected) in [
            ("web 3", None, vec![("web", 3)]),
            ("svc web 3", None, vec![("web", 3)]),
            ("svc/web 3", None, vec![("web", 3)]),
            ("svc web", Some(3), vec![("web", 3)]),
            ("web", Some(3), vec![("web", 3)]),
            ("web db", Some(0), vec![("web", 0), ("db", 0)]),
            ("web=3", None, vec![("web", 3)]),
            ("web=3 svc/db=0", None, vec![("web", 3), ("db", 0)]),
            ("svc web=3 db=2", None, vec![("web", 3), ("db", 2)]),
            // A service may have the name of a type.
            ("svc 3", None, vec![("svc", 3)]),
        ] {
            let expected: Vec<ScaleTarget> =
                expected.into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
            assert_eq!(of(line, option).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn what_is_missing_or_contradicts_itself_is_refused_with_the_right_form() {
        for (line, option, expected) in [
            ("web", None, "the number of pods is missing"),
            ("web x", None, "\"x\" is not a number of pods"),
            ("pod/web-0 3", None, "needs a service"),
            ("web db 3", None, "kubeleet scale web=3 db=3"),
            ("web=3 db", None, "write db=3"),
            ("web=3 db 2", None, "write db=3"),
            ("web=3", Some(2), "has a number already"),
            ("web=-1", None, "not a number of pods"),
            ("web=", None, "not a number of pods"),
            ("web=3 svc/web=2", None, "web is named twice"),
        ] {
            let error = of(line, option).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
