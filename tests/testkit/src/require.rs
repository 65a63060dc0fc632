//! Tests without their engine report it and pass, unless the environment variable `REQUIRE` lists the engine.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Panics if `REQUIRE` lists the engine: `docker`, `redis`, `netns`, `pebble`, `names`, `promtool` or
/// `compose`.
pub fn skipped(engine: &str, why: &str) {
    let line = format!("SKIPPED (no {engine}): {}: {why}\n", test_name());
    let required = std::env::var("REQUIRE").unwrap_or_default();
    assert!(!required.split([',', ' ']).any(|word| word == engine), "REQUIRE={required}, but {line}");
    // The test runner hides what tests print that pass.
    let _unseen = std::io::stderr().write_all(line.as_bytes());
}

pub fn has_redis() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let is_installed = *INSTALLED
        .get_or_init(|| Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok());
    if !is_installed {
        skipped("redis", "redis-server is not installed");
    }
    is_installed
}

/// nextest runs a test on the main thread and names it in the environment.
fn test_name() -> String {
    let thread = std::thread::current();
    let name = thread.name().filter(|name| *name != "main").map(str::to_owned);
    name.or_else(|| std::env::var("NEXTEST_TEST_NAME").ok()).unwrap_or_else(|| "a test".to_owned())
}

#[macro_export]
macro_rules! need_redis {
    ($($name:literal)?) => {
        if !$crate::require::has_redis() {
            return;
        }
    };
}
