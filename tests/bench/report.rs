//! Results: tables on the standard output, and JSON files that also describe the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// [`save`] and [`save_text`] do nothing.
static ARE_RESULTS_DISCARDED: AtomicBool = AtomicBool::new(false);

pub fn discard_results() {
    ARE_RESULTS_DISCARDED.store(true, Ordering::Relaxed);
}

pub fn print_machine() {
    let machine = machine();
    println!(
        "{} x {}, {} GiB, Linux {}; {}; load {}",
        machine["cores"],
        text(&machine["cpu"]),
        machine["memory_gib"],
        text(&machine["kernel"]),
        text(&machine["redis"]),
        text(&machine["load"]),
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The first row is the header.
pub struct Table {
    title: String,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, head: &[&str]) -> Self {
        Self { title: title.to_owned(), rows: vec![head.iter().map(|word| (*word).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn print(&self) {
        println!("\n{}\n", self.title);
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(c, w)| format!(" {c:<w$} ")).collect();
            println!("|{}|", cells.join("|"));
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
                println!("|{}|", rule.join("|"));
            }
        }
    }
}

pub fn save(part: &str, results: &Value) {
    if ARE_RESULTS_DISCARDED.load(Ordering::Relaxed) {
        return;
    }
    let folder = folder();
    fs::create_dir_all(&folder).unwrap();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let document = json!({ "part": part, "at": at, "machine": machine(), "results": results });
    let path = folder.join(format!("{part}.json"));
    fs::write(&path, serde_json::to_string_pretty(&document).unwrap() + "\n").unwrap();
    println!("\nwritten: target/bench/{part}.json");
}

pub fn save_text(name: &str, text: &str) {
    if ARE_RESULTS_DISCARDED.load(Ordering::Relaxed) {
        return;
    }
    fs::create_dir_all(folder()).unwrap();
    fs::write(folder().join(name), text).unwrap();
    println!("written: target/bench/{name}");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("bench")
}

fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_default();
    let load: Vec<String> = read("/proc/loadavg").split(' ').take(3).map(str::to_owned).collect();
    json!({
        "cpu": field(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "memory_gib": (kib as f64 / f64::from(1 << 20)).round(),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "redis": redis_version(),
        "load": load.join(" "),
    })
}

/// A Valkey may be installed under the name of Redis.
fn redis_version() -> String {
    let output = Command::new("redis-server").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let product = text.split_whitespace().next().unwrap_or("Redis");
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    format!("{product} {version}")
}
