//! Sentinels that watch a master named `mymaster`.

use std::fs;
use std::time::Duration;

use ::redis::{FromRedisValue, RedisError};
use tempfile::TempDir;

use crate::eventually::{check, eventually};
use crate::redis::{Redis, RedisProgram, query};

pub const MASTER_NAME: &str = "mymaster";
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
const QUORUM: usize = 2;

pub struct SentinelTrio {
    /// Until a failover.
    pub master: Redis,
    /// Until a failover.
    pub replicas: Vec<Redis>,
    pub sentinels: SentinelProcesses,
}

pub struct SentinelProcesses {
    pub processes: Vec<Redis>,
    _folder: TempDir,
}

impl SentinelTrio {
    /// Returns once all replicas are in sync and all Sentinels know each other. `arguments` are those of
    /// Redis.
    pub async fn start(replicas: usize, arguments: &[&str], down_after: [Duration; 3]) -> Self {
        let master = Redis::start_with(arguments).await;
        let port = master.port().to_string();
        let mut started = Vec::new();
        for _ in 0..replicas {
            let replica =
                Redis::start_with(&[arguments, &["--replicaof", "127.0.0.1", &port]].concat()).await;
            replica.wait_in_sync_with(&master).await;
            started.push(replica);
        }
        let sentinels = SentinelProcesses::start(master.port(), down_after);
        eventually("the Sentinels know each other and the replicas", || {
            check_complete(sentinels.processes.iter().map(Redis::url), replicas)
        })
        .await;
        Self { master, replicas: started, sentinels }
    }
}

impl SentinelProcesses {
    fn start(master: u16, down_after: [Duration; 3]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |(number, down_after): (usize, Duration)| {
            let sentinel =
                Redis::with_conf(RedisProgram::Sentinel, &folder.path().join(number.to_string()), "");
            let conf = format!(
                "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER_NAME} 127.0.0.1 {master} {QUORUM}\n\
                 sentinel down-after-milliseconds {MASTER_NAME} {}\n\
                 sentinel failover-timeout {MASTER_NAME} 3000\nsentinel parallel-syncs {MASTER_NAME} 2\n",
                sentinel.port(),
                sentinel.folder().display(),
                down_after.as_millis()
            );
            fs::write(sentinel.conf_path(), conf).unwrap();
            sentinel.launch();
            sentinel
        };
        let processes = down_after.into_iter().enumerate().map(start).collect();
        Self { processes, _folder: folder }
    }

    /// `redis+sentinel://…/mymaster`
    pub fn url(&self) -> String {
        let peers: Vec<String> =
            self.processes.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", peers.join(","))
    }

    pub async fn agreed_master(&self) -> Option<u16> {
        agreed_master(&self.processes).await
    }
}

/// At least two Sentinels must name it.
pub async fn agreed_master(sentinels: impl IntoIterator<Item = &Redis>) -> Option<u16> {
    let mut named: Vec<u16> = Vec::new();
    for sentinel in sentinels {
        let answer: Result<(String, u16), _> =
            ask(&sentinel.url(), &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).await;
        named.extend(answer.map(|(_, port)| port));
    }
    named.iter().copied().find(|port| named.iter().filter(|other| *other == port).count() >= QUORUM)
}

/// Sentinels ask the master only every 10 s: an earlier failover finds no replica to promote, or leaves one
/// behind.
pub async fn check_complete(
    sentinels: impl IntoIterator<Item = String>,
    replicas: usize,
) -> Result<(), String> {
    for url in sentinels {
        let quorum: Result<String, _> = ask(&url, &["SENTINEL", "CKQUORUM", MASTER_NAME]).await;
        let quorum = quorum.map_err(|error| error.to_string())?;
        check(quorum.starts_with("OK 3"), || quorum.clone())?;
        let known: Result<Vec<::redis::Value>, _> = ask(&url, &["SENTINEL", "REPLICAS", MASTER_NAME]).await;
        let known = known.map_err(|error| error.to_string())?.len();
        check(known == replicas, || format!("a Sentinel knows {known} replicas instead of {replicas}"))?;
    }
    Ok(())
}

async fn ask<T: FromRedisValue>(url: &str, words: &[&str]) -> Result<T, RedisError> {
    query(url, QUERY_TIMEOUT, words).await
}
