//! Logging to standard error or a file: standard output is for data.

use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

/// Later calls have no effect.
pub fn init(filter: &str, json: bool) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt().with_env_filter(env_filter(filter)).with_writer(std::io::stderr);
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(colour).with_target(false).try_init()
    };
    // Tests and `dev` already have a subscriber.
    drop(result);
}

pub fn init_to_file(filter: &str, json: bool, file: File) {
    let builder = tracing_subscriber::fmt().with_env_filter(env_filter(filter)).with_writer(Mutex::new(file));
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(false).with_target(false).try_init()
    };
    drop(result);
}

fn env_filter(filter: &str) -> EnvFilter {
    // At `debug` bollard logs the bodies of requests, with environment values.
    let no_request_bodies = "bollard=info".parse().expect("a valid directive");
    EnvFilter::try_new(without_bollard(filter))
        .unwrap_or_else(|_| EnvFilter::new("info"))
        .add_directive(no_request_bodies)
}

/// A directive about a module of bollard would outweigh the one above.
fn without_bollard(filter: &str) -> String {
    let others = filter.split(',').filter(|directive| !directive.trim_start().starts_with("bollard"));
    others.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_filter_makes_bollard_log_bodies() {
        for (given, kept) in [
            ("bollard=debug", ""),
            ("info, bollard::docker=trace,hyper=warn", "info,hyper=warn"),
            ("debug", "debug"),
        ] {
            assert_eq!(without_bollard(given), kept);
        }
    }
}
