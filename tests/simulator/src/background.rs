//! Runs a test in the background, where all other work on this machine goes first.
//!
//! A run and its Redis wake each other up thousands of times a second. A kernel that shares the processor
//! among sessions left a busy program of another session a twentieth of its core.

#![allow(clippy::print_stdout, reason = "what a test prints there is printed here")]

use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal, setpriority_process, setsid};

const BACKGROUND: &str = "SIMULATOR_BACKGROUND";
const NICEST: i32 = 19;

/// True in the background. Otherwise runs this test there, prints its output and returns false.
pub fn runs_in_background(test: &str) -> bool {
    if std::env::var_os(BACKGROUND).is_some() {
        give_way();
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let output = command.env(BACKGROUND, "1").output().unwrap();
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{shown}{errors}");
    assert!(output.status.success(), "{test} failed in the background: {}", output.status);
    // The program also succeeds with a name that selects no test.
    assert!(shown.contains("test result: ok. 1 passed"), "there is no test {test}");
    false
}

fn give_way() {
    // A session is not killed with its parent's process group.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    // If one of these fails, the search is only less polite.
    let _result = setsid();
    let _result = setpriority_process(None, NICEST);
    let _result = std::fs::write("/proc/self/autogroup", NICEST.to_string());
}
