//! Starts the process of a pod.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use daemon::system_error;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::folder::{Folder, Record};
use super::log;
use super::system::MARKER;
use crate::RuntimeError;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MAX_OPEN_FILES: u64 = 65_536;

/// It leads a new process group and outlives this one.
pub(super) fn spawn(folder: &Folder, record: &Record) -> Result<Child, RuntimeError> {
    let failed = |doing: &str, error: io::Error| {
        RuntimeError::Failed(format!("process pod {}: could not {doing}: {error}", folder.handle))
    };
    let mut command = command(folder, record, &record.command)?;
    log::truncate(folder).map_err(|error| failed("truncate its log", error))?;
    let output = folder.open_log().map_err(|error| failed("open its log", error))?;
    let errors = output.try_clone().map_err(|error| failed("open its log", error))?;
    let started = command.stdout(output).stderr(errors).spawn();
    let child = started.map_err(|error| match not_startable(&record.command[0], &error) {
        Some(why) => RuntimeError::Failed(why),
        None => failed("start it", error),
    })?;
    limit(Some(child.id()), record);
    Ok(child)
}

pub(super) fn command(folder: &Folder, record: &Record, words: &[String]) -> Result<Command, RuntimeError> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(RuntimeError::Refused(NO_COMMAND.to_owned()));
    };
    let directory = record.working_dir.clone().unwrap_or_else(|| folder.work());
    if !directory.is_dir() {
        let reason = format!("its working_dir {directory:?} is no directory of this node");
        return Err(RuntimeError::Failed(reason));
    }
    let environment = folder.environment().map_err(|error| {
        RuntimeError::Failed(format!(
            "process pod {}: could not read its environment: {error}",
            folder.handle
        ))
    })?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", folder.work())
        .envs(environment)
        .env(MARKER, &folder.path)
        .current_dir(directory)
        .process_group(0)
        .stdin(Stdio::null());
    Ok(command)
}

/// `None` if the machine caused the error.
pub(super) fn not_startable(program: &str, error: &io::Error) -> Option<String> {
    let reason = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => {
            system_error(error)
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => {
            "it is not a program".to_owned()
        }
        _ => return None,
    };
    Some(format!("the command {program:?} cannot be started: {reason}"))
}

pub(super) const NO_COMMAND: &str = "the `process` runtime of this node has no images: \
     give the pod a `command` that exists on the node";

/// Sets limits from outside, as no code of ours may run between fork and exec: the program briefly has the
/// worker's. Limits private memory (`RLIMIT_DATA`), not addresses, of which language runtimes reserve
/// gigabytes.
pub(super) fn limit(pid: Option<u32>, record: &Record) {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let Some(pid) = pid else { return };
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    let files = getrlimit(Resource::Nofile).maximum.map_or(MAX_OPEN_FILES, |hard| hard.min(MAX_OPEN_FILES));
    let mut limits = vec![(Resource::Core, both(0)), (Resource::Nofile, both(files))];
    limits.extend(record.memory.map(|bytes| (Resource::Data, both(bytes))));
    for (resource, limit) in limits {
        match prlimit(Some(pid), resource, limit) {
            Ok(_) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                tracing::warn!(?resource, %error, "a resource limit of a process pod could not be set")
            }
        }
    }
}
