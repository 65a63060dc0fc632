//! `backup` and `restore`: the state of the cluster as a file.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use api_types::RecoveryView;
use clap::Args;
use client::{Client, ClientError, Method};
use output::humanize;
use output::objects::recovery;
use output::stderr;
use store::saved_state::{InvalidState, SavedEnd, SavedHeader, SavedLine};

use crate::commands::context::Context;
use crate::commands::error::{CommandError, CommandResult};
use crate::exit::Exit;

/// A part in one request has about this many bytes at most,
const PART_BYTES: usize = 1 << 20;
/// and this many lines.
const PART_LINES: usize = 1000;

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(
    after_help = "A backup has the environments of the services, which may be secrets: a file is readable \
                  by its owner only. Secrets and passwords of registries are in it encrypted: without the key \
                  of the cluster, KUBELEET_SECRET_KEY_FILE, they cannot be read. Keep a copy of that file \
                  elsewhere."
)]
pub(crate) struct BackupArgs {
    /// The file to write; - is standard output.
    #[arg(value_name = "FILE", default_value = "-")]
    file: String,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The file that `kubeleet backup` has written.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the missing objects. Without it nothing is changed.
    #[arg(long)]
    yes: bool,
    /// Also restore services that were deleted after the backup.
    #[arg(long)]
    deleted: bool,
}

/// A file is replaced only after the backup is complete.
pub(crate) async fn backup(args: &BackupArgs, context: &mut Context<'_>) -> CommandResult {
    let mut end = LastLine::default();
    let call = context.client.call(Method::GET, &["cluster", "backup"], "reading the backup");
    let mut stream = call.bytes().await?;
    if args.file == "-" {
        while let Some(bytes) = stream.next().await? {
            end.add(&bytes);
            context.output.print_bytes(&bytes)?;
        }
        end.check()?;
        return Ok(Exit::Ok);
    }
    let path = Path::new(&args.file);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let failed = |error: std::io::Error| {
        CommandError::Other(format!("cannot write {}: {}", args.file, humanize::system_error(&error)))
    };
    let _leftover = std::fs::remove_file(&temporary);
    let mut options = File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    while let Some(bytes) = stream.next().await? {
        end.add(&bytes);
        file.write_all(&bytes).map_err(failed)?;
    }
    if let Err(error) = end.check() {
        let _incomplete = std::fs::remove_file(&temporary);
        return Err(error);
    }
    file.sync_all().map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)?;
    stderr::note(&format!("{} written; it has environments, so only you can read it", args.file));
    Ok(Exit::Ok)
}

#[derive(Default)]
struct LastLine(Vec<u8>);

impl LastLine {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let line = self.0[..self.0.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n');
        self.0.drain(..line.map_or(0, |end| end + 1));
    }

    fn check(&self) -> CommandResult<()> {
        let line = std::str::from_utf8(&self.0).unwrap_or_default();
        match SavedLine::parse(line.trim_end(), 0) {
            Ok(SavedLine::End(_)) => Ok(()),
            _ => Err(CommandError::Other(
                "the backup is incomplete: the API or Redis went away; try again".to_owned(),
            )),
        }
    }
}

/// First secrets, configs and logins, then all pods, then the services, then the cluster's id.
pub(crate) async fn restore(args: &RestoreArgs, context: &mut Context<'_>) -> CommandResult {
    // The whole file is read before any change: a truncated file is refused.
    let Checked { header, has_values } = check(&args.file)?;
    let mut view = RecoveryView::default();
    let mut values = if has_values { Some(Parts::of_values(&args.file, &header)?) } else { None };
    while let Some(body) = values.as_mut().map_or(Ok(None), Parts::next)? {
        let answer = send(&context.client, "values", args, body).await?;
        view.values += answer.values;
        view.present_values += answer.present_values;
        view.problems.extend(answer.problems);
    }
    let passes: &[&str] = if args.yes { &["pods", "services"] } else { &["pods"] };
    for (pass, part) in passes.iter().enumerate() {
        let mut parts = Parts::open(&args.file, &header)?;
        while let Some(body) = parts.next()? {
            let answer = send(&context.client, part, args, body).await?;
            if pass == 0 {
                merge(&mut view, answer);
            }
        }
    }
    if args.yes {
        send(&context.client, "cluster", args, body_of(&header, &[])).await?;
    }
    view.applied = args.yes;
    view.cluster = header.cluster.to_string();
    context.output.print_document(&view, || recovery::describe(&view))?;
    if !view.applied && recovery::has_work(&view) {
        let file = args.file.display();
        let deleted = if args.deleted { " --deleted" } else { "" };
        stderr::note(&format!("nothing was changed; `kubeleet restore {file} --yes{deleted}` does this"));
    }
    Ok(Exit::Ok)
}

async fn send(
    client: &Client,
    part: &str,
    args: &RestoreArgs,
    body: String,
) -> Result<RecoveryView, ClientError> {
    let call = client.call(Method::POST, &["cluster", "restore"], "restoring the backup");
    let call = call.query("part", Some(part)).query("apply", Some(args.yes));
    let call = call.query("deleted", args.deleted.then_some(true));
    call.body("application/x-ndjson", body).view().await
}

/// A service may be in several parts, each with some of its pods.
fn merge(view: &mut RecoveryView, part: RecoveryView) {
    view.pushed_pods += part.pushed_pods;
    view.present_pods += part.present_pods;
    view.volumes += part.volumes;
    let is_new = |problem: &String| !view.problems.contains(problem);
    let problems: Vec<String> = part.problems.into_iter().filter(is_new).collect();
    view.problems.extend(problems);
    for service in part.services {
        match view.services.last_mut().filter(|last| last.name == service.name) {
            Some(last) => {
                last.recovered += service.recovered;
                let recovered = u32::try_from(service.recovered).unwrap_or(u32::MAX);
                last.new = last.new.saturating_sub(recovered);
            }
            None => view.services.push(service),
        }
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> CommandError {
    CommandError::unreadable(path.display(), error)
}

fn invalid(path: &Path, why: &InvalidState) -> CommandError {
    CommandError::Other(format!("{} cannot be restored: {why}; nothing was changed", path.display()))
}

#[derive(Debug)]
struct Checked {
    header: SavedHeader,
    /// With secrets, configs and logins.
    has_values: bool,
}

fn check(path: &Path) -> CommandResult<Checked> {
    let mut lines = BufReader::new(File::open(path).map_err(|error| unreadable(path, &error))?).lines();
    let first = lines.next().transpose().map_err(|error| unreadable(path, &error))?.unwrap_or_default();
    let header = SavedHeader::parse(&first).map_err(|why| invalid(path, &why))?;
    let (mut found, mut has_values) = (0, false);
    for (index, line) in lines.enumerate() {
        let line = line.map_err(|error| unreadable(path, &error))?;
        match SavedLine::parse(&line, index + 2).map_err(|why| invalid(path, &why))? {
            SavedLine::End(end) if end.lines == found && end.more => (found, has_values) = (0, true),
            SavedLine::End(end) if end.lines == found => return Ok(Checked { header, has_values }),
            SavedLine::End(end) => {
                return Err(invalid(path, &InvalidState::Incomplete { expected: end.lines, found }));
            }
            _ => found += 1,
        }
    }
    Err(invalid(path, &InvalidState::Incomplete { expected: 0, found }))
}

fn body_of(header: &SavedHeader, lines: &[String]) -> String {
    let mut body = SavedLine::Header(header.clone()).to_json() + "\n";
    for line in lines {
        body.push_str(line);
        body.push('\n');
    }
    body + &SavedLine::End(SavedEnd { lines: lines.len(), ..SavedEnd::default() }).to_json() + "\n"
}

/// Each part has its service and the specifications of its pods.
struct Parts<'a> {
    path: &'a Path,
    header: &'a SavedHeader,
    lines: std::io::Lines<BufReader<File>>,
    /// Service and specifications that the next pods may need.
    carried: Vec<String>,
    is_ended: bool,
}

impl<'a> Parts<'a> {
    fn open(path: &'a Path, header: &'a SavedHeader) -> CommandResult<Self> {
        let mut lines = BufReader::new(File::open(path).map_err(|error| unreadable(path, &error))?).lines();
        lines.next();
        Ok(Self { path, header, lines, carried: Vec::new(), is_ended: false })
    }

    fn of_values(path: &'a Path, header: &'a SavedHeader) -> CommandResult<Self> {
        let mut parts = Self::open(path, header)?;
        while !parts.is_ended {
            parts.next()?;
        }
        parts.carried.clear();
        parts.is_ended = false;
        Ok(parts)
    }

    fn next(&mut self) -> CommandResult<Option<String>> {
        let mut part = self.carried.clone();
        let carried = part.len();
        let mut size = 0;
        while !self.is_ended && size < PART_BYTES && part.len() < carried + PART_LINES {
            let Some(line) = self.lines.next() else { break };
            let line = line.map_err(|error| unreadable(self.path, &error))?;
            match SavedLine::parse(&line, 0).map_err(|why| invalid(self.path, &why))? {
                SavedLine::Service(_) => self.carried = vec![line.clone()],
                SavedLine::Spec(_) => self.carried.push(line.clone()),
                SavedLine::Pod(pod) if pod.service.is_none() => self.carried.clear(),
                SavedLine::Pod(_) | SavedLine::Volume(_) | SavedLine::Header(_) => {}
                SavedLine::Value(_) | SavedLine::Login(_) => {}
                SavedLine::End(_) => self.is_ended = true,
            }
            if !self.is_ended {
                size += line.len();
                part.push(line);
            }
        }
        Ok((part.len() > carried).then(|| body_of(self.header, &part)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use model::ids::ClusterId;
    use store::saved_state::{SavedFile, SavedValues};

    use super::*;

    fn write(lines: &[String]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        file
    }

    fn backup_of(pods: usize) -> Vec<String> {
        let service = r#"{"service":{"name":"web","fields":{"generation":"1"}}}"#.to_owned();
        let spec = r#"{"spec":{"id":"s","generation":1,"text":"{}"}}"#.to_owned();
        let pod = |index| {
            let payload =
                format!(r#"{{\"name\":\"web\",\"uuid\":\"u{index}\",\"image\":\"i\",\"replica\":0}}"#);
            format!(r#"{{"pod":{{"payload":"{payload}","service":"web","phase":"running"}}}}"#)
        };
        let lines: Vec<String> = [service, spec].into_iter().chain((0..pods).map(pod)).collect();
        let header = SavedHeader::new(ClusterId::new("c").unwrap());
        body_of(&header, &lines).lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_part_has_the_service_of_its_pods_and_no_pod_is_in_two() {
        let file = write(&backup_of(2500));
        let header = check(file.path()).unwrap().header;
        let mut parts = Parts::open(file.path(), &header).unwrap();
        let mut pods = Vec::new();
        while let Some(body) = parts.next().unwrap() {
            let part = SavedFile::read(body.lines()).unwrap();
            assert_eq!((part.state.services.len(), part.state.specs.len()), (1, 1));
            pods.extend(part.state.pods.into_iter().map(|pod| pod.id().unwrap()));
        }
        assert_eq!(pods.len(), 2500);
        pods.sort_unstable();
        pods.dedup();
        assert_eq!(pods.len(), 2500);
    }

    #[test]
    fn values_are_parts_of_their_own() {
        let mut lines = backup_of(2);
        let end = lines.pop().unwrap();
        lines.push(end.replace("\"unsaved\":0", "\"unsaved\":0,\"more\":true"));
        let login = r#"{"login":{"host":"a.example","user":"bob","password":"x","updated_at":1}}"#;
        lines.extend([login.to_owned(), r#"{"end":{"lines":1}}"#.to_owned()]);
        let file = write(&lines);
        let Checked { header, has_values } = check(file.path()).unwrap();
        assert!(has_values);
        let mut parts = Parts::of_values(file.path(), &header).unwrap();
        let saved = SavedValues::read(parts.next().unwrap().unwrap().lines()).unwrap();
        assert_eq!((saved.logins.len(), saved.values.len()), (1, 0));
        assert!(parts.next().unwrap().is_none());
        for count in 0..lines.len() {
            assert!(check(write(&lines[..count]).path()).is_err(), "{count}");
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_refused() {
        let lines = backup_of(3);
        for count in 0..lines.len() {
            let error = check(write(&lines[..count]).path()).unwrap_err().to_string();
            assert!(error.contains("nothing was changed"), "{count}: {error}");
        }
        assert!(check(write(&lines).path()).is_ok());
    }

    #[test]
    fn a_backup_without_its_last_line_is_incomplete() {
        let text = backup_of(3).join("\n") + "\n";
        for (cut, is_complete) in [(0, true), (1, true), (10, false)] {
            let mut end = LastLine::default();
            text.as_bytes()[..text.len() - cut].chunks(7).for_each(|bytes| end.add(bytes));
            assert_eq!(end.check().is_ok(), is_complete, "{cut}");
        }
    }
}
