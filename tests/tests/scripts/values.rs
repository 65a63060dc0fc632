//! Secrets, configs and logins for registries: versions, limits, and their data in Redis.

use kubeleet_tests::Fixture;
use kubeleet_tests::keyspace::KeyEntry;
use model::ids::{AppName, RegistryHost, ValueName};
use model::value::registry::{RegistryLogin, StoredLogin};
use model::value::secret_key::SecretKey;
use model::value::{KEPT_VERSIONS, StoredValue, ValueBytes, ValueKind};
use store::{PutLoginOutcome, PutValueOutcome, RestartOutcome, StoreError, ValueRollout};

fn name(text: &str) -> ValueName {
    ValueName::new(text).unwrap()
}

fn config(text: &str, version: u64, content: &str) -> StoredValue {
    let content = ValueBytes::new(content.as_bytes().to_vec());
    StoredValue::seal(ValueKind::Config, name(text), version, &content, None).unwrap()
}

async fn put(fixture: &Fixture, value: &StoredValue) -> PutValueOutcome {
    fixture.store.put_value(value, 2, None).await.unwrap().0
}

/// Otherwise its app could not be applied again after a restore.
#[tokio::test]
async fn a_restored_config_belongs_to_its_app() {
    let fixture = Fixture::new().await;
    let (store, name) = (&fixture.store, name("shop_conf"));
    let shop = AppName::new("shop").unwrap();
    store.put_value(&config("shop_conf", 1, "a"), 2, Some(&shop)).await.unwrap();
    let saved = store.backup_value(ValueKind::Config, &name).await.unwrap().unwrap();
    store.delete_value(ValueKind::Config, &name).await.unwrap();
    assert!(store.restore_value(&saved).await.unwrap());
    let restored = store.value_info(ValueKind::Config, &name).await.unwrap().unwrap();
    assert_eq!(restored.app, Some(shop));
}

#[tokio::test]
async fn versions_follow_each_other_and_the_oldest_are_dropped() {
    let fixture = Fixture::new().await;
    let [first, second] = [1, 2].map(|version| config("a", version, &version.to_string()));
    assert_eq!(
        put(&fixture, &second).await,
        PutValueOutcome::Conflict { current: 0 },
        "there is no first one"
    );
    assert_eq!(put(&fixture, &first).await, PutValueOutcome::Stored);
    assert_eq!(put(&fixture, &first).await, PutValueOutcome::Same, "the reply to the first call was lost");
    let other = config("a", 1, "other");
    assert_eq!(put(&fixture, &other).await, PutValueOutcome::Conflict { current: 1 });
    for version in 2..=KEPT_VERSIONS + 2 {
        let next = config("a", version, &version.to_string());
        assert_eq!(put(&fixture, &next).await, PutValueOutcome::Stored);
    }
    let keyspace = fixture.keyspace().await;
    let Some(KeyEntry::Hash(fields)) = keyspace.get("config:a") else { panic!("{keyspace:?}") };
    let kept: Vec<&String> = fields.keys().filter(|field| field.starts_with("v:")).collect();
    assert_eq!(kept, ["v:3", "v:4", "v:5", "v:6", "v:7"]);
    let current = fixture.store.current_value(ValueKind::Config, &name("a")).await.unwrap().unwrap();
    assert_eq!((current.version(), current.open(None).unwrap().expose()), (7, &b"7"[..]));
    let info = fixture.store.value_info(ValueKind::Config, &name("a")).await.unwrap().unwrap();
    assert!(info.version == 7 && info.created_at <= info.updated_at && info.created_at > 0, "{info:?}");
}

#[tokio::test]
async fn no_more_than_the_allowed_number_is_stored() {
    let fixture = Fixture::new().await;
    for text in ["a", "b"] {
        assert_eq!(put(&fixture, &config(text, 1, "x")).await, PutValueOutcome::Stored);
    }
    assert_eq!(put(&fixture, &config("c", 1, "x")).await, PutValueOutcome::Full { count: 2 });
    assert_eq!(put(&fixture, &config("a", 2, "y")).await, PutValueOutcome::Stored, "a version is no new one");
    assert_eq!(fixture.store.value_names(ValueKind::Config).await.unwrap(), [name("a"), name("b")]);
    assert!(fixture.store.delete_value(ValueKind::Config, &name("a")).await.unwrap().0);
    assert!(!fixture.store.delete_value(ValueKind::Config, &name("a")).await.unwrap().0);
    assert_eq!(put(&fixture, &config("c", 1, "x")).await, PutValueOutcome::Stored);
    assert_eq!(fixture.store.value_info(ValueKind::Config, &name("a")).await.unwrap(), None);
}

#[tokio::test]
async fn a_secret_and_a_config_can_have_one_name_and_redis_has_no_secret_in_clear() {
    let fixture = Fixture::new().await;
    let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let content = ValueBytes::new(b"hunter2-in-clear".to_vec());
    let secret = StoredValue::seal(ValueKind::Secret, name("a"), 1, &content, Some(&key)).unwrap();
    assert_eq!(put(&fixture, &secret).await, PutValueOutcome::Stored);
    assert_eq!(put(&fixture, &config("a", 1, "x")).await, PutValueOutcome::Stored);
    let found = fixture.store.current_value(ValueKind::Secret, &name("a")).await.unwrap().unwrap();
    assert_eq!(found.open(Some(&key)).unwrap(), content);
    let stored: String = fixture.redis.cli(&["HGET", "secret:a", "v:1"]).await;
    assert!(stored.starts_with("chacha20poly1305:") && !stored.contains("hunter2"), "{stored}");
    let () = fixture.redis.cli(&["RENAME", "secret:a", "secret:b"]).await;
    let moved = fixture.store.current_value(ValueKind::Secret, &name("b")).await.unwrap().unwrap();
    assert!(moved.open(Some(&key)).is_err());
}

#[tokio::test]
async fn a_broken_record_harms_no_other_one() {
    let fixture = Fixture::new().await;
    for text in ["a", "b"] {
        put(&fixture, &config(text, 1, "x")).await;
    }
    let _: u64 = fixture.redis.cli(&["HSET", "config:a", "current", "many"]).await;
    let both = [name("a"), name("b")];
    let infos = fixture.store.value_infos(ValueKind::Config, &both).await.unwrap();
    assert!(matches!(infos[0], Err(StoreError::Corrupt { .. })), "{infos:?}");
    assert_eq!(infos[1].as_ref().unwrap().as_ref().map(|info| info.version), Some(1));
}

#[tokio::test]
async fn a_change_of_a_value_restarts_a_service_once_and_not_one_that_is_newer() {
    let fixture = Fixture::new().await;
    let [older, newer] = [fixture.service("older", 1).await.name, fixture.service("newer", 1).await.name];
    for version in 1..=2 {
        put(&fixture, &config("a", version, "x")).await;
    }
    let notes = fixture.store.value_rollout_notes().await.unwrap();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    let rollout = note.rollout().unwrap();
    assert_eq!((rollout.kind, rollout.version), (ValueKind::Config, 2));
    let created = |name: &str, at: &str| [name, "created_at", at].map(str::to_owned);
    let set = async |[name, field, at]: [String; 3]| {
        let _: u64 = fixture.redis.cli(&["HSET", &format!("service:{name}"), &field, &at]).await;
    };
    let rollout = ValueRollout { at: 1000, ..rollout };
    set(created("older", "999")).await;
    set(created("newer", "1001")).await;
    let restart = async |name| fixture.store.restart_for(name, &rollout).await.unwrap();
    assert_eq!(restart(&older).await, RestartOutcome::Restarted { generation: 2 });
    assert_eq!(
        restart(&older).await,
        RestartOutcome::DoneBefore,
        "a scheduler died before it forgot the note"
    );
    assert_eq!(restart(&newer).await, RestartOutcome::DoneBefore);
    // The clock of a former master was ahead.
    set(created("newer", "99999999999999")).await;
    assert_eq!(restart(&newer).await, RestartOutcome::Restarted { generation: 2 });
    put(&fixture, &config("a", 3, "x")).await;
    fixture.store.forget_value_rollout(note).await.unwrap();
    let again = fixture.store.value_rollout_notes().await.unwrap();
    assert_eq!(again[0].rollout().unwrap().version, 3, "it has changed again meanwhile");
    fixture.store.forget_value_rollout(&again[0]).await.unwrap();
    assert!(fixture.store.value_rollout_notes().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_login_that_lost_its_password_can_be_stored_again_at_the_limit_of_registries() {
    let fixture = Fixture::new().await;
    let key = SecretKey::parse(&SecretKey::generate().unwrap()).unwrap();
    let put = async |host: &str| {
        let password = ValueBytes::new(b"hunter2".to_vec());
        let login = RegistryLogin { user: "bob".to_owned(), password };
        let login = StoredLogin::seal(RegistryHost::new(host).unwrap(), &login, &key).unwrap();
        fixture.store.put_login(&login, 1).await.unwrap().0
    };
    assert_eq!(put("a.example").await, PutLoginOutcome::Stored);
    for lose in [&["HDEL", "registry:a.example", "password"][..], &["DEL", "registry:a.example"]] {
        let _: u64 = fixture.redis.cli(lose).await;
        assert_eq!(put("a.example").await, PutLoginOutcome::Stored, "{lose:?}: it counts already");
    }
    assert_eq!(put("b.example").await, PutLoginOutcome::Full { count: 1 });
}
