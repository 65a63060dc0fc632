//! Tests that lack their engine say so loudly and pass, unless `REQUIRE` lists it: then they fail.

use std::io::Write;

/// Says that this test is skipped for lack of `engine` (`docker`, `redis`, `netns`).
///
/// # Panics
/// When the environment variable `REQUIRE` lists the engine.
pub fn skipped(engine: &str, why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED (no {engine}): {}: {why}\n", thread.name().unwrap_or("a test"));
    let required = std::env::var("REQUIRE").unwrap_or_default();
    assert!(!required.split([',', ' ']).any(|word| word == engine), "REQUIRE={required}, but {line}");
    // Not eprintln!: the test runner swallows that of tests that pass.
    let _unseen = std::io::stderr().write_all(line.as_bytes());
}
