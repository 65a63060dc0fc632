//! Writes that were answered as "stored, not yet confirmed": each is confirmed later, with one event.

use std::time::Duration;

use kubeleet_tests::ablation::sources;
use kubeleet_tests::{Redis, eventually};
use model::ids::ServiceName;
use model::network::address::AddressName;
use model::spec::ServiceInput;
use store::{Durability, GivenAddress, PutMode, PutOutcome, Store, WriteReceipt, WriteState};

const SOON: Duration = Duration::from_secs(20);
const UNCONFIRMED: Durability = Durability::Unconfirmed { confirmed: 0, known: 1 };

struct Pair {
    master: Redis,
    replica: Redis,
    store: Store,
    web: ServiceName,
    confirmations_before: usize,
}

impl Pair {
    async fn new() -> Self {
        let master = Redis::start().await;
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]).await;
        let (store, web) = (master.store(), ServiceName::new("web").unwrap());
        let mut pair = Self { master, replica, store, web, confirmations_before: 0 };
        eventually(SOON, "the replica follows", || async {
            match pair.put("first", 1).await.1.durability {
                Durability::Confirmed { replicas: 1 } => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        pair.confirmations_before = pair.confirmations().await;
        pair
    }

    async fn put(&self, image: &str, replicas: u32) -> (PutOutcome, WriteReceipt) {
        let input = serde_json::json!({"name": "web", "image": image, "replicas": replicas});
        let desired = ServiceInput::from_value(&input).unwrap().normalize().unwrap();
        self.store.put_service(&desired, PutMode::Upsert, None).await.unwrap()
    }

    async fn put_unconfirmed(&self, image: &str) -> WriteReceipt {
        self.replica.freeze();
        let (_, written) = self.put(image, 1).await;
        assert_eq!(written.durability, UNCONFIRMED);
        written
    }

    async fn abandon_by_writer(&self) {
        let note: String = self.master.cli(&["HGET", "unconfirmed", "web"]).await;
        let parts: Vec<&str> = note.split(' ').collect();
        let [id, _, owed] = parts[..] else { panic!("{note:?} is not a note") };
        let () = self.master.cli(&["HSET", "unconfirmed", "web", &format!("{id} 1 {owed}")]).await;
    }

    async fn confirmations(&self) -> usize {
        let events = self.store.last_events(1000).await.unwrap();
        events.iter().filter(|event| event.reason == "WriteConfirmed" && event.object == "web").count()
            - self.confirmations_before
    }

    async fn state(&self, written: &WriteReceipt) -> WriteState {
        self.store.write_state(&self.web, &written.id).await.unwrap()
    }
}

#[tokio::test]
async fn an_address_is_told_once_the_replica_has_it() {
    let pair = Pair::new().await;
    let name = AddressName { service: pair.web.clone(), slot: None };
    pair.replica.freeze();
    for _ in 0..2 {
        assert_eq!(pair.store.address(&name).await.unwrap(), GivenAddress::Unconfirmed);
    }
    assert_eq!(pair.store.addresses().await.unwrap(), []);
    pair.replica.thaw();
    eventually(SOON, "the replica has it", || async {
        match pair.store.address(&name).await.unwrap() {
            GivenAddress::Confirmed(address) => {
                assert_eq!(pair.store.addresses().await.unwrap(), [(name.clone(), address)]);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn an_unconfirmed_write_is_confirmed_later_with_one_event() {
    let pair = Pair::new().await;
    assert_eq!(
        pair.store.unconfirmed_writes().await.unwrap(),
        0,
        "a write that is confirmed at once leaves no note"
    );
    let written = pair.put_unconfirmed("second").await;
    assert_eq!(pair.store.unconfirmed_writes().await.unwrap(), 1);
    pair.abandon_by_writer().await;
    assert_eq!(pair.store.confirm_writes().await.unwrap(), 0, "the replica has not confirmed it yet");
    assert_eq!(pair.state(&written).await, WriteState::Waiting);
    pair.replica.thaw();
    // No write waits for a replica that was silent for long.
    eventually(SOON, "the write is confirmed", || async {
        let (one, other) = tokio::join!(pair.store.confirm_writes(), pair.store.confirm_writes());
        match one.unwrap() + other.unwrap() {
            0 => Err("not yet".to_owned()),
            confirmed => {
                assert_eq!(confirmed, 1, "of two concurrent callers, one confirms it");
                Ok(())
            }
        }
    })
    .await;
    assert_eq!(pair.store.confirm_writes().await.unwrap(), 0);
    assert_eq!(pair.confirmations().await, 1);
    assert_eq!(pair.state(&written).await, WriteState::Confirmed);
    pair.put("third", 1).await;
    assert_eq!(pair.state(&written).await, WriteState::Gone);
}

#[tokio::test]
async fn a_write_whose_writer_may_still_wait_is_left_alone() {
    let pair = Pair::new().await;
    pair.put_unconfirmed("second").await;
    pair.replica.thaw();
    assert_eq!(pair.store.confirm_writes().await.unwrap(), 0);
    assert_eq!(pair.store.unconfirmed_writes().await.unwrap(), 1);
}

#[tokio::test]
async fn a_newer_write_is_not_confirmed_by_an_earlier_wait() {
    let pair = Pair::new().await;
    let script = |name: &str| {
        let found = sources(None).into_iter().find(|(script, ..)| script.name == name);
        found.expect("it is a script").1
    };
    let keys = ["3", "events", "meta", "unconfirmed"];
    pair.put_unconfirmed("second").await;
    pair.abandon_by_writer().await;
    let (unconfirmed, confirmed) = (script("writes_unconfirmed"), script("writes_confirmed"));
    let ask = [&["EVAL", &unconfirmed], &keys[..], &["0", "10"]].concat();
    let seen: Vec<String> = pair.master.cli(&ask).await;
    let newer = pair.put_unconfirmed("third").await;
    let confirm = async |id: &str| -> usize {
        let words = [&["EVAL", &confirmed], &keys[..], &["all", "stored", "web", id]].concat();
        pair.master.cli(&words).await
    };
    assert_eq!((seen[0].as_str(), confirm(&seen[1]).await), ("web", 0));
    assert_eq!((pair.confirmations().await, pair.state(&newer).await), (0, WriteState::Waiting));
    assert_eq!(confirm(newer.id.as_str()).await, 1);
    assert_eq!((pair.confirmations().await, pair.state(&newer).await), (1, WriteState::Confirmed));
}

#[tokio::test]
async fn a_confirmed_write_also_announces_an_earlier_unconfirmed_one() {
    let pair = Pair::new().await;
    pair.put_unconfirmed("second").await;
    pair.replica.thaw();
    let (_, later) = pair.put("third", 1).await;
    assert_eq!(later.durability, Durability::Confirmed { replicas: 1 });
    assert_eq!(pair.confirmations().await, 1);
    assert_eq!(pair.store.unconfirmed_writes().await.unwrap(), 0);
}

#[tokio::test]
async fn a_repeated_write_is_no_more_durable_than_the_first() {
    let pair = Pair::new().await;
    let first = pair.put_unconfirmed("second").await;
    let offset = async || -> String {
        let info: String = pair.master.cli(&["INFO", "replication"]).await;
        info.lines().find(|line| line.starts_with("master_repl_offset")).unwrap_or_default().to_owned()
    };
    // WAIT covers only writes of its own connection, so a repeated write must write something.
    let before = offset().await;
    let (outcome, repeated) = pair.put("second", 1).await;
    assert_eq!((outcome, repeated.durability), (PutOutcome::Unchanged { generation: 2 }, UNCONFIRMED));
    assert_ne!(before, offset().await);
    assert_eq!(
        (pair.state(&first).await, pair.state(&repeated).await),
        (WriteState::Waiting, WriteState::Waiting)
    );
    let before = offset().await;
    let (_, scaled) = pair.store.scale_service(&pair.web, 1).await.unwrap();
    assert_eq!(scaled.durability, UNCONFIRMED);
    assert_ne!(before, offset().await);
    for _ in 0..2 {
        let before = offset().await;
        let (found, deleted) = pair.store.delete_service(&pair.web).await.unwrap();
        assert_eq!((found, deleted.durability), (true, UNCONFIRMED));
        assert_ne!(before, offset().await);
    }
}
