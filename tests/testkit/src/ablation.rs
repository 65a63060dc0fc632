//! The store's scripts with a safeguard removed, which the tests of the invariants must notice.

use store::{PRELUDE, Prelude, SCRIPTS, Script};

use crate::Redis;

const PRELUDE_NAME: &str = "_prelude";

/// To a script, or to the prelude of all scripts (`_prelude`).
#[derive(Debug, Clone, Copy)]
pub struct Ablation {
    /// Without `.lua`.
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

impl Ablation {
    /// Returns the hashes of original and changed scripts.
    pub async fn load(self, redis: &Redis) -> Vec<(String, String)> {
        let mut hashes = Vec::new();
        for (original, source) in self.changed() {
            let hash: String = redis.cli(&["SCRIPT", "LOAD", &source]).await;
            hashes.push((original, hash));
        }
        hashes
    }

    /// With the original's hash. Panics if the file does not contain `from`.
    pub fn changed(self) -> Vec<(String, String)> {
        let concerned = sources_where(Some(self), |script| self.concerns(script));
        let changed = concerned.into_iter().filter(|(_, original, changed)| original != changed);
        changed.map(|(_, original, changed)| (hash(&original), changed)).collect()
    }

    fn concerns(&self, script: &str) -> bool {
        self.file == PRELUDE_NAME || self.file == script
    }

    fn apply(&self, file: &str, text: &str) -> String {
        if file != self.file {
            return text.to_owned();
        }
        assert!(text.contains(self.from), "{}.lua does not contain {:?} any more", self.file, self.from);
        text.replace(self.from, self.to)
    }
}

/// Each script's source without and with the ablation.
pub fn sources(ablation: Option<Ablation>) -> Vec<(&'static Script, String, String)> {
    sources_where(ablation, |_| true)
}

fn sources_where(
    ablation: Option<Ablation>,
    is_wanted: impl Fn(&str) -> bool,
) -> Vec<(&'static Script, String, String)> {
    let is_known = |file: &str| file == PRELUDE_NAME || SCRIPTS.iter().any(|script| script.name == file);
    assert!(ablation.is_none_or(|ablation| is_known(ablation.file)), "{ablation:?}");
    let text_of = |file: &str, text: &str| match &ablation {
        Some(ablation) => ablation.apply(file, text),
        None => text.to_owned(),
    };
    let prelude = text_of(PRELUDE_NAME, PRELUDE);
    let prelude = Prelude::new(&prelude);
    let source = |script: &&'static Script| {
        let original = script.source();
        let changed = match &ablation {
            Some(ablation) if ablation.concerns(script.name) => {
                script.source_of(&prelude, &text_of(script.name, script.text))
            }
            _ => original.clone(),
        };
        (*script, original, changed)
    };
    SCRIPTS.iter().filter(|script| is_wanted(script.name)).map(source).collect()
}

pub fn hash(source: &str) -> String {
    ::redis::Script::new(source).get_hash().to_owned()
}
