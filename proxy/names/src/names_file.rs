//! The file with known addresses, for a restart without Redis.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daemon::state_file::StateFile;
use model::network::address::{AddressName, PoolAddress};
use serde::{Deserialize, Serialize};

use super::resolver::Resolver;

const SAVE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default, Serialize, Deserialize)]
struct SavedNamesFile {
    addresses: BTreeMap<String, u32>,
}

pub(super) fn read(path: &Path) -> Vec<(AddressName, PoolAddress)> {
    let SavedNamesFile { addresses } =
        StateFile::new(path).load_or_default("no name is known until Redis answers");
    let known = addresses.into_iter();
    known.filter_map(|(name, number)| Some((name.parse().ok()?, PoolAddress::from_number(number)?))).collect()
}

pub(super) async fn keep(resolver: Arc<Resolver>, path: PathBuf) {
    let text = || text(&resolver.known_addresses());
    let loss = "a proxy that is restarted without Redis will know no names";
    StateFile::new(path).private().keep(SAVE_INTERVAL, text(), text, loss).await;
}

fn text(known: &[(AddressName, PoolAddress)]) -> String {
    let addresses = known.iter().map(|(name, address)| (name.to_string(), address.number())).collect();
    serde_json::to_string(&SavedNamesFile { addresses }).expect("texts and numbers serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_is_broken_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.json");
        assert_eq!(read(&path), []);
        let known: Vec<(AddressName, PoolAddress)> = [("0.web", 8), ("web", 7)]
            .map(|(name, number)| (name.parse().unwrap(), PoolAddress::from_number(number).unwrap()))
            .into();
        std::fs::write(&path, text(&known)).unwrap();
        assert_eq!(read(&path), known);
        for broken in ["{", r#"{"addresses":{"Web":7,"web":0,"x":4294967295}}"#] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(read(&path), [], "{broken}");
        }
    }
}
