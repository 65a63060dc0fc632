//! Loads the files of `examples/` and compares with `compose/tests/examples`.

use std::path::{Path, PathBuf};

use crate::{App, FileSources, PathKind, Project, SourceError, load};

const EXAMPLES: [(&str, &str, &[&str]); 6] = [
    ("shop", "docker-compose.yml", &[]),
    ("wordpress", "docker-compose.yml", &[]),
    ("queue-workers", "docker-compose.yml", &[]),
    ("reverse-proxy", "docker-compose.yml", &[]),
    ("profiles", "compose.yaml", &[]),
    ("profiles", "compose.yaml", &["debug"]),
];

struct Folder(PathBuf);

impl FileSources for Folder {
    fn read(&self, path: &str) -> Result<String, SourceError> {
        std::fs::read_to_string(self.0.join(path)).map_err(|_| SourceError::NotFound)
    }

    fn kind(&self, path: &str) -> PathKind {
        if self.read(path).is_ok() { PathKind::File { mode: 0o644 } } else { PathKind::Missing }
    }
}

/// If set, the test rewrites the expected files.
const WRITE: &str = "WRITE_EXPECTED";

#[test]
fn the_examples_mean_what_is_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, file, profiles) in EXAMPLES {
        let project = Project {
            files: vec![file.to_owned()],
            folder_name: folder.to_owned(),
            profiles: profiles.iter().map(|profile| (*profile).to_owned()).collect(),
            ..Project::default()
        };
        let app = load(&project, &Folder(root.join("../examples").join(folder)));
        let shown = shown(&app.unwrap_or_else(|found| panic!("{folder}: {found:#?}")));
        let name: Vec<&str> = std::iter::once(folder).chain(profiles.iter().copied()).collect();
        let expected = root.join("tests/examples").join(format!("{}.json", name.join("-")));
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&expected, &shown).unwrap();
        }
        let written = std::fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(shown, written, "{}; {WRITE}=1 writes what is", expected.display());
    }
}

fn shown(app: &App) -> String {
    let notes: Vec<String> = app.notes.iter().map(|note| note.finding.to_string()).collect();
    let values = app.values.iter().map(|value| format!("{} {}: {:?}", value.kind, value.name, value.content));
    let values: Vec<String> = values.collect();
    let whole =
        serde_json::json!({"app": app.name, "services": app.services, "values": values, "notes": notes});
    serde_json::to_string_pretty(&whole).unwrap() + "\n"
}
