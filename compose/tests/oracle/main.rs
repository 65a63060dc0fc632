//! Compares kubeleet with Docker Compose field by field. Only the differences listed in
//! docs/how-to/compose.md are allowed, and a field without a counterpart needs a note.
//!
//! `scripts/install compose` fetches Docker Compose. `ORACLE_FILES` is the number of generated projects, and
//! `ORACLE_SEED` their first seed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod compare;
mod generate;
mod run;

use run::{Case, Outcome};

const CASES: &str = include_str!("cases.txt");
const DEFAULT_FILES: u64 = 100;

#[test]
fn files_mean_what_they_mean_to_docker_compose() {
    let Some(program) = run::program() else { return };
    let mut found = Vec::new();
    let cases = Case::all(CASES);
    assert!(cases.len() > 40, "the cases were not understood: {}", cases.len());
    for case in &cases {
        let outcome = run::run(&program, case);
        found.extend(outcome.differences(case).into_iter().map(|detail| format!("{}: {detail}", case.title)));
    }
    assert!(found.is_empty(), "{} differences in {} cases:\n{}", found.len(), cases.len(), found.join("\n"));
}

#[test]
fn generated_files_mean_what_they_mean_to_docker_compose() {
    let Some(program) = run::program() else { return };
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first: u64 = number("ORACLE_SEED", 1);
    let mut refused = 0;
    let files = number("ORACLE_FILES", DEFAULT_FILES);
    for seed in first..first + files {
        let case = generate::project(seed);
        let outcome = run::run(&program, &case);
        // Fields from two files may contradict each other.
        if matches!(outcome, Outcome::RefusedByCompose(_)) {
            refused += 1;
            continue;
        }
        let found = outcome.differences(&case);
        assert!(found.is_empty(), "seed {seed}: {}\n{}", found.join("\n"), case.shown());
    }
    assert!(
        refused * 10 <= files,
        "Compose refuses {refused} of {files}: the generator is to write what it takes"
    );
}
