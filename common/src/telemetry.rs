//! Logging: everything that is not data goes to standard error, through `tracing`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging for this process; `filter` as in `KUBELEET_LOG`. Later calls change nothing.
pub fn init(filter: &str, json: bool) {
    // At `debug` the engine's client logs the bodies it sends, environment values included: never, whatever was asked.
    let no_bodies = "bollard=info".parse().expect("a valid directive");
    let filter =
        EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info")).add_directive(no_bodies);
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let result = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        builder.with_ansi(colour).with_target(false).try_init()
    };
    // In tests and in `dev` somebody may have been first; one subscriber is what we want.
    drop(result);
}
