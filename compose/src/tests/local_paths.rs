//! Mounts of local paths.

use model::value::ValueKind;

use super::*;
use crate::{Allowance, FileSources, NoteKind, PathKind, SourceError};

/// A path that ends in `/` is an empty directory.
struct Disk(Vec<(&'static str, u32)>);

impl FileSources for Disk {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        let found = self.0.iter().find(|(known, _)| *known == path);
        found.map(|_| "content\n".to_owned()).ok_or(SourceError::NotFound)
    }

    fn kind(&self, path: &str) -> PathKind {
        let inside = format!("{path}/");
        match self.0.iter().find(|(known, _)| *known == path) {
            Some((_, mode)) => PathKind::File { mode: *mode },
            None if self.0.iter().any(|(known, _)| *known == inside) => {
                PathKind::Directory { is_empty: true }
            }
            None if self.0.iter().any(|(known, _)| known.starts_with(&inside)) => {
                PathKind::Directory { is_empty: false }
            }
            None => PathKind::Missing,
        }
    }
}

struct Mounting {
    compose: String,
    disk: Disk,
}

impl FileSources for Mounting {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        if path == "compose.yaml" { Ok(self.compose.clone()) } else { self.disk.read(path) }
    }

    fn kind(&self, path: &str) -> PathKind {
        self.disk.kind(path)
    }
}

fn mounting(volumes: &str, allowed: &[Allowance]) -> Result<App, Vec<String>> {
    let compose = format!("services:\n  db: {{image: x, volumes: [{volumes}]}}\n");
    let disk = Disk(vec![
        ("run.sh", 0o755),
        ("site.conf", 0o644),
        ("closed.conf", 0o600),
        ("secrets/db.txt", 0o644),
        ("tls/server.key", 0o644),
        ("full/index.html", 0o644),
        ("empty/", 0),
        ("/home/u/data/x", 0o644),
        ("/home/u/.gitconfig", 0o644),
    ]);
    let mut project = Project { allowed: allowed.iter().copied().collect(), ..project(&["compose.yaml"]) };
    project.environment.insert("HOME".to_owned(), "/home/u".to_owned());
    let loaded = load(&project, &Mounting { compose, disk });
    loaded.map_err(|found| found.iter().map(ToString::to_string).collect())
}

#[test]
fn a_file_keeps_its_right_to_run_and_is_a_secret_if_it_is_closed_or_called_so() {
    for (mount, field, value) in [
        (
            "./run.sh:/run.sh",
            "configs",
            serde_json::json!({"source": "app-db-run.sh", "target": "/run.sh", "mode": "0555"}),
        ),
        (
            "./site.conf:/a.conf:ro",
            "configs",
            serde_json::json!({"source": "app-db-a.conf", "target": "/a.conf"}),
        ),
        (
            "{type: bind, source: site.conf, target: /b}",
            "configs",
            serde_json::json!({"source": "app-db-b", "target": "/b"}),
        ),
        ("./closed.conf:/c", "secrets", serde_json::json!({"source": "app-db-c", "target": "/c"})),
        ("./secrets/db.txt:/d", "secrets", serde_json::json!({"source": "app-db-d", "target": "/d"})),
        ("./tls/server.key:/e", "secrets", serde_json::json!({"source": "app-db-e", "target": "/e"})),
    ] {
        let app = mounting(mount, &[]).unwrap();
        assert_eq!(service(&app, "app-db")[field], serde_json::json!([value]), "{mount}");
        let kind = if field == "secrets" { ValueKind::Secret } else { ValueKind::Config };
        assert!(
            app.all_values.iter().all(|(known, _)| *known == kind) && app.values[0].kind == kind,
            "{mount}"
        );
        let (path, becomes) = app.sent_files.first().unwrap();
        assert!(mount.contains(path.as_str()) && becomes.contains("app-db-"), "{path} {becomes}");
    }
}

#[test]
fn a_directory_without_files_becomes_a_volume_of_the_service() {
    for mount in [
        "./pgdata:/var/lib/data",
        "./empty:/var/lib/data",
        "~/new:/var/lib/data",
        "{type: bind, source: pgdata, target: /var/lib/data}",
    ] {
        let app = mounting(mount, &[]).unwrap();
        let expected = serde_json::json!([{"kind": "persistent", "source": "db-var-lib-data", "target": "/var/lib/data"}]);
        assert_eq!(service(&app, "app-db")["volumes"], expected, "{mount}");
        let note = &app.notes[0];
        let says =
            note.finding.detail.contains("becomes volume db-var-lib-data of the service, which begins empty");
        assert!(app.notes.len() == 1 && note.kind == NoteKind::Different && says, "{:?}", app.notes);
    }
}

#[test]
fn what_is_left_out_is_refused_where_the_container_could_write() {
    for mount in ["./full:/www", "~/data:/data", "~/.gitconfig:/g", "./no.conf:/etc/no.conf"] {
        let found = mounting(mount, &[]).unwrap_err();
        assert!(
            found[0].contains("is not on the nodes") && found[0].contains("--allow lost-directories"),
            "{found:?}"
        );
        let allowed = mounting(mount, &[Allowance::LostDirectories]).unwrap();
        let read_only = mounting(&format!("'{mount}:ro'"), &[]).unwrap();
        for app in [allowed, read_only] {
            assert_eq!(app.notes[0].kind, NoteKind::NotHonoured, "{mount}");
            assert!(service(&app, "app-db").get("volumes").is_none(), "{mount}");
        }
    }
}
