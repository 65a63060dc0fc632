//! Locks of apps.

use super::Api;

async fn lock(api: &Api, id: &str, holder: &str) -> super::Answer {
    let body = serde_json::json!({"id": id, "holder": holder}).to_string();
    api.send("PUT", "/app/shop/lock", &[], &body).await
}

#[tokio::test]
async fn one_client_has_the_lock_of_an_app_until_it_gives_it_up_or_dies() {
    let Some(api) = Api::start() else { return };
    assert_eq!(lock(&api, "a1", "ann@laptop").await.status, 204);
    assert_eq!(lock(&api, "a1", "ann@laptop").await.status, 204, "it is renewed");
    let refused = lock(&api, "b1", "bob@desk").await.problem(409, "app-locked");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.starts_with("ann@laptop has been changing app shop since 2"), "{detail}");
    assert_eq!(api.delete("/app/shop/lock?id=b1").await.status, 204);
    lock(&api, "b1", "bob@desk").await.problem(409, "app-locked");
    assert_eq!(api.delete("/app/shop/lock?id=a1").await.status, 204);
    assert_eq!(lock(&api, "b1", "bob@desk").await.status, 204);
    let left: u64 = api.redis.cli(&["PTTL", "lease:app:shop"]).await;
    assert!((1..=10_000).contains(&left), "{left}");
    let _: u64 = api.redis.cli(&["DEL", "lease:app:shop"]).await;
    assert_eq!(lock(&api, "c1", "cid\n@desk").await.status, 204);
    lock(&api, "b1", "bob@desk").await.problem(409, "app-locked");
    for words in [&["SET", "lease:app:shop", "by hand"][..], &["RPUSH", "lease:app:shop", "x"]] {
        let _: u64 = api.redis.cli(&["DEL", "lease:app:shop"]).await;
        api.redis.cli::<()>(words).await;
        assert_eq!(lock(&api, "d1", "dan@desk").await.status, 204, "{words:?}");
    }
    api.send("PUT", "/app/Not-A-Name/lock", &[], r#"{"id":"a","holder":"x"}"#)
        .await
        .problem(404, "route-not-found");
}
