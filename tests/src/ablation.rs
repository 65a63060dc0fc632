//! Our scripts with something taken out: the tests of the invariants have to notice.

use ::redis::Script;

use crate::Redis;

macro_rules! texts {
    ($($name:literal),* $(,)?) => {
        /// Every script's text by name, as the store compiles it in.
        pub const SCRIPTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../common/src/store/lua/", $name, ".lua")))),*];
    };
}

texts!(
    "ack",
    "assign",
    "claim",
    "cordon",
    "declare_dead",
    "drain",
    "finish",
    "guest_ack",
    "guest_beat",
    "heartbeat",
    "lease",
    "letter_requeue",
    "lost",
    "park",
    "pod_requeue",
    "pods_create",
    "pods_stop",
    "register",
    "reject",
    "report",
    "return_orphans",
    "service_delete",
    "service_forget",
    "service_put",
    "service_scale",
    "slot_free",
    "take",
    "take_work",
    "unpark",
    "writes_confirmed",
    "writes_unconfirmed",
);

const PRELUDE: &str = include_str!("../../common/src/store/lua/_prelude.lua");

/// One change to the text of one script, or of what stands before all of them (`_prelude`).
#[derive(Debug, Clone, Copy)]
pub struct Ablation {
    /// The file, without `.lua`.
    pub file: &'static str,
    /// What stands there.
    pub from: &'static str,
    /// What shall stand there instead.
    pub to: &'static str,
}

impl Ablation {
    /// Loads the changed scripts into Redis and gives, for each, the hash of ours and of the changed one.
    pub async fn load(self, redis: &Redis) -> Vec<(String, String)> {
        let mut hashes = Vec::new();
        for (ours, source) in self.changed() {
            let hash: String = redis.cli(&["SCRIPT", "LOAD", &source]).await;
            hashes.push((ours, hash));
        }
        hashes
    }

    /// The scripts it changes: the hash of ours, and the text of the changed one.
    ///
    /// # Panics
    /// When `from` does not stand in the file: the script was changed, and this ablation has to follow.
    pub fn changed(self) -> Vec<(String, String)> {
        let differ = sources(Some(self)).into_iter().filter(|(_, ours, changed)| ours != changed);
        differ.map(|(_, ours, changed)| (hash(&ours), changed)).collect()
    }

    /// What the text of this script is with it.
    fn cut(&self, name: &str, text: &str) -> String {
        if name != self.file {
            return text.to_owned();
        }
        assert!(text.contains(self.from), "{}.lua does not contain {:?} any more", self.file, self.from);
        text.replace(self.from, self.to)
    }
}

/// Every script: its name, its text as the store has it, and its text with this ablation.
///
/// # Panics
/// When the ablation fits no script any more.
pub fn sources(ablation: Option<Ablation>) -> Vec<(&'static str, String, String)> {
    let is_known = |file: &str| file == "_prelude" || SCRIPTS.iter().any(|(name, _)| *name == file);
    assert!(ablation.is_none_or(|ablation| is_known(ablation.file)), "{ablation:?}");
    let cut = |name: &str, text: &str| ablation.map_or_else(|| text.to_owned(), |a| a.cut(name, text));
    let prelude = cut("_prelude", PRELUDE);
    let source = |(name, text): &(&'static str, &'static str)| {
        (*name, format!("{PRELUDE}\n{text}"), format!("{prelude}\n{}", cut(name, text)))
    };
    SCRIPTS.iter().map(source).collect()
}

/// What Redis calls a script.
pub fn hash(source: &str) -> String {
    Script::new(source).get_hash().to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_scripts_are_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../common/src/store/lua");
        let files =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let names: BTreeSet<String> = files
            .filter_map(|name| Some(name.strip_suffix(".lua")?.to_owned()))
            .filter(|n| n != "_prelude")
            .collect();
        assert_eq!(names, SCRIPTS.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
}
