//! Three Redis and three Sentinels on loopback, with the settings, users and start scripts of `sentinel/`.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use kubeleet_tests::Keyspace;
use redis::{FromRedisValue, RedisError};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testkit::eventually::{check, eventually_within};
use testkit::redis::{Redis, RedisProgram, connect};
use testkit::sentinel;

use crate::net::{Machine, Net};

const REDIS_CONF: &str = include_str!("../../sentinel/redis.conf");
const SENTINEL_CONF: &str = include_str!("../../sentinel/sentinel.conf");
const REDIS_USERS: &str = include_str!("../../sentinel/users-redis.acl");
const SENTINEL_USERS: &str = include_str!("../../sentinel/users-sentinel.acl");

const PASSWORD: &str = "secret";
/// Half of `docker-compose.yml`, to save time.
const DOWN_AFTER: [u32; 3] = [1200, 1500, 1800];
const LIMIT: Duration = Duration::from_secs(3);
/// A machine that stalls for 2 s sends Sentinels into TILT: they trust no clock for 30 s.
const FAILOVER: Duration = Duration::from_secs(90);
/// In addition to a failover.
const WELL: Duration = Duration::from_secs(120);

pub struct Server {
    redis: Redis,
    /// The proxy's, for all but this harness.
    public: u16,
}

impl Deref for Server {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.redis
    }
}

impl Server {
    async fn new(net: &mut Net, machine: Machine, program: RedisProgram, folder: &Path) -> Self {
        let redis = Redis::with_conf(program, folder, &format!("admin:{PASSWORD}@"));
        let public = net.proxy(machine, redis.port()).await;
        Self { redis, public }
    }

    pub fn limit_files(&self, bytes: Option<u64>) {
        let process = self.redis.process_id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(process, Resource::Fsize, limit).expect("the limits of a child of ours can be set");
    }

    pub fn log_size(&self) -> u64 {
        let files = fs::read_dir(self.redis.folder().join("appendonlydir")).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).max().unwrap_or(0)
    }

    /// Not through the proxy.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        ask(&self.redis.url(), words).await
    }
}

pub async fn ask<T: FromRedisValue>(url: &str, words: &[&str]) -> Result<T, RedisError> {
    testkit::redis::query(url, LIMIT, words).await
}

pub struct SentinelStack {
    pub redis: Vec<Server>,
    pub sentinels: Vec<Server>,
}

pub struct SavedData(Vec<(Vec<u8>, Vec<u8>)>);

impl SentinelStack {
    pub async fn start(net: &mut Net, folder: &Path) -> Self {
        let mut trio = Self { redis: Vec::new(), sentinels: Vec::new() };
        for machine in 0..3 {
            let redis = folder.join(format!("redis{}", machine + 1));
            trio.redis.push(Server::new(net, machine, RedisProgram::Server, &redis).await);
            let sentinel = folder.join(format!("sentinel{}", machine + 1));
            trio.sentinels.push(Server::new(net, machine, RedisProgram::Sentinel, &sentinel).await);
        }
        for machine in 0..3 {
            trio.launch_redis(machine, 0);
        }
        // Otherwise a Sentinel would hear of the replicas only ten seconds later.
        eventually_within(WELL, "both replicas follow", || trio.both_follow(0)).await;
        for machine in 0..3 {
            trio.write_sentinel(machine);
            trio.sentinels[machine].launch();
        }
        trio.wait_until_well().await;
        trio
    }

    /// `proxy` is a daemon that can be cut off by itself.
    pub fn url(&self, user: &str, machine: Machine) -> String {
        let peers: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.public)).collect();
        let user = format!("{user}{}", machine + 1);
        format!(
            "redis+sentinel://{user}:{PASSWORD}@{}/mymaster?sentinel_user={user}&sentinel_password={PASSWORD}",
            peers.join(",")
        )
    }

    fn launch_redis(&mut self, machine: Machine, master: Machine) {
        let Server { redis, public } = &self.redis[machine];
        let mut conf = relocated(REDIS_CONF, redis.folder(), redis.port());
        conf.push_str(&format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {public}\n"));
        conf.push_str(&format!("masteruser replication{}\nmasterauth {PASSWORD}\n", machine + 1));
        if master != machine {
            conf.push_str(&format!("replicaof 127.0.0.1 {}\n", self.redis[master].public));
        }
        fs::write(redis.conf_path(), conf).unwrap();
        fs::write(redis.folder().join("users.acl"), users(REDIS_USERS)).unwrap();
        redis.launch();
    }

    fn write_sentinel(&self, machine: Machine) {
        let sentinel = &self.sentinels[machine];
        let mut conf = relocated(SENTINEL_CONF, sentinel.folder(), sentinel.port());
        conf = conf.replace("@MASTER@ 6379", &format!("127.0.0.1 {}", self.redis[0].public));
        conf = conf.replace("@DOWN_AFTER@", &DOWN_AFTER[machine].to_string());
        let user = format!("sentinel{}", machine + 1);
        conf.push_str(&format!(
            "sentinel announce-ip 127.0.0.1\nsentinel announce-port {}\n",
            sentinel.public
        ));
        conf.push_str(&format!(
            "sentinel auth-user mymaster {user}\nsentinel auth-pass mymaster {PASSWORD}\n"
        ));
        conf.push_str(&format!("sentinel sentinel-user {user}\nsentinel sentinel-pass {PASSWORD}\n"));
        fs::write(sentinel.conf_path(), conf).unwrap();
        fs::write(sentinel.folder().join("users.acl"), users(SENTINEL_USERS)).unwrap();
    }

    /// As `sentinel/start-redis` does. Without agreement after a while, a replica follows its former master.
    pub async fn start_redis(&mut self, machine: Machine) {
        let begun = Instant::now();
        loop {
            if let Some(master) = self.agreed_master().await {
                return self.launch_redis(machine, master);
            }
            let conf = fs::read_to_string(self.redis[machine].conf_path()).unwrap();
            let followed = conf.lines().rev().find_map(|line| line.strip_prefix("replicaof 127.0.0.1 "));
            let followed = followed.and_then(|port| self.by_public(port.trim().parse().ok()?));
            match followed {
                Some(master) if begun.elapsed() > Duration::from_secs(5) => {
                    return self.launch_redis(machine, master);
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    pub fn start_sentinel(&mut self, machine: Machine) {
        self.sentinels[machine].launch();
    }

    /// Not through the proxies.
    pub fn redis_urls(&self) -> Vec<String> {
        self.redis.iter().map(|redis| redis.url()).collect()
    }

    pub async fn agreed_master(&self) -> Option<Machine> {
        self.by_public(sentinel::agreed_master(self.sentinel_processes()).await?)
    }

    fn sentinel_processes(&self) -> impl Iterator<Item = &Redis> {
        self.sentinels.iter().map(Deref::deref)
    }

    fn by_public(&self, port: u16) -> Option<Machine> {
        self.redis.iter().position(|redis| redis.public == port)
    }

    /// The master confirms its role to two Sentinels.
    pub async fn master(&self) -> Machine {
        eventually_within(FAILOVER, "there is a master", || async {
            let machine = self.agreed_master().await.ok_or("no two Sentinels agree")?;
            let role: Result<redis::Value, _> = self.redis[machine].ask(&["ROLE"]).await;
            check(role.as_ref().is_ok_and(is_master), || format!("redis{}: {role:?}", machine + 1))?;
            Ok::<_, String>(machine)
        })
        .await
    }

    pub async fn other_master_than(&self, old: Machine) -> Machine {
        eventually_within(FAILOVER, "another Redis is the master", || async {
            match self.agreed_master().await {
                Some(machine) if machine != old => Ok(machine),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        self.master().await
    }

    pub async fn wait_until_well(&self) {
        eventually_within(WELL, "three Redis and three Sentinels are well", || async {
            sentinel::check_complete(self.sentinel_processes().map(Redis::url), 2).await?;
            let master = self.agreed_master().await.ok_or("no master")?;
            self.both_follow(master).await
        })
        .await;
    }

    async fn both_follow(&self, master: Machine) -> Result<(), String> {
        let info: Result<String, _> = self.redis[master].ask(&["INFO", "replication"]).await;
        let info = info.map_err(|error| error.to_string())?;
        let online = info.matches("state=online").count();
        check(info.contains("role:master") && online == 2, || info.clone())
    }

    pub async fn save(&self) -> SavedData {
        let master = self.master().await;
        let mut connection = connect(&self.redis[master].url(), LIMIT).await.unwrap();
        let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        let mut pipe = redis::pipe();
        for key in &keys {
            pipe.cmd("DUMP").arg(key);
        }
        let dumps: Vec<Option<Vec<u8>>> = pipe.query_async(&mut connection).await.unwrap();
        SavedData(keys.into_iter().zip(dumps).filter_map(|(key, dump)| Some((key, dump?))).collect())
    }

    /// In one step: with saved data, or with none.
    pub async fn replace(&self, saved: Option<&SavedData>) {
        let master = self.master().await;
        let mut connection = connect(&self.redis[master].url(), LIMIT).await.unwrap();
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("FLUSHALL");
        for (key, dump) in saved.iter().flat_map(|saved| &saved.0) {
            pipe.cmd("RESTORE").arg(key).arg(0).arg(dump);
        }
        let _replies: redis::Value = pipe.query_async(&mut connection).await.unwrap();
    }

    pub async fn keyspace(&self) -> Option<Keyspace> {
        let master = self.agreed_master().await?;
        let mut connection = connect(&self.redis[master].url(), LIMIT).await.ok()?;
        Keyspace::read_over(&mut connection).await.ok()
    }
}

fn is_master(role: &redis::Value) -> bool {
    let redis::Value::Array(parts) = role else { return false };
    parts.first() == Some(&redis::Value::BulkString(b"master".to_vec()))
}

fn relocated(conf: &str, folder: &Path, port: u16) -> String {
    let folder = folder.display();
    let line = |line: &str| match line.split_once(' ') {
        Some(("port", _)) => format!("port {port}"),
        Some(("dir", _)) => format!("dir {folder}"),
        Some(("aclfile", _)) => format!("aclfile {folder}/users.acl"),
        _ => line.to_owned(),
    };
    let bind = "bind 127.0.0.1\n".to_owned();
    std::iter::once(bind).chain(conf.lines().map(|text| line(text) + "\n")).collect()
}

/// Each machine has its own users, by which the network knows callers.
fn users(template: &str) -> String {
    let mut users = String::new();
    for line in template.lines().filter(|line| line.starts_with("user ")) {
        match line.split_once(" on @") {
            Some((user, _)) if user != "user admin" => {
                let (name, rights) = (user, line.split_once("@ ").map_or("", |(_, rights)| rights));
                let names = if name == "user kubeleet" { vec![name, "user proxy"] } else { vec![name] };
                for name in names {
                    users.extend((1..=3).map(|n| format!("{name}{n} on >{PASSWORD} {rights}\n")));
                }
            }
            _ => users.push_str(&format!("{}\n", line.replace("@admin@", &format!(">{PASSWORD}")))),
        }
    }
    users
}
