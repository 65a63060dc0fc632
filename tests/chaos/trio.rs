//! Three Redis and three Sentinels on loopback, with the configuration of `sentinel/`: its settings, its users, and its
//! way of starting a Redis as what the Sentinels say it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kubeleet_tests::leash::Leashed;
use kubeleet_tests::ports::free_port;
use kubeleet_tests::wait::that;
use kubeleet_tests::{Keyspace, eventually};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::net::{Machine, Net};

const REDIS_CONF: &str = include_str!("../../sentinel/redis.conf");
const SENTINEL_CONF: &str = include_str!("../../sentinel/sentinel.conf");
const REDIS_USERS: &str = include_str!("../../sentinel/users-redis.acl");
const SENTINEL_USERS: &str = include_str!("../../sentinel/users-sentinel.acl");

/// Everybody's password.
const PASSWORD: &str = "secret";
/// Silence after which each Sentinel calls a server down, milliseconds: half of what `docker-compose.yml` says, for time.
const DOWN_AFTER: [u32; 3] = [1200, 1500, 1800];
/// How long a failover may take here: a machine that stalls for 2 s sends Sentinels into TILT, and they trust no clock for
/// 30 s. That happens where several test runs share two cores.
const FAILOVER: Duration = Duration::from_secs(90);
/// How long it may take until all six are well again; it may come to that on top.
const WELL: Duration = Duration::from_secs(120);

/// A server process.
pub struct Server {
    process: Option<Leashed>,
    /// Its own port: this harness speaks to it directly.
    port: u16,
    /// Where everybody else reaches it.
    public: u16,
    folder: PathBuf,
}

impl Server {
    async fn new(net: &mut Net, machine: Machine, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        Self { process: None, port, public: net.proxy(machine, port).await, folder }
    }

    fn launch(&mut self, sentinel: bool) {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let program = if sentinel { "redis-sentinel" } else { "redis-server" };
        // A write beyond a limit is then an error as with a full disk, and not a signal.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$1\"", program]).arg(self.folder.join("conf"));
        command.current_dir(&self.folder).stdout(log.try_clone().unwrap()).stderr(log);
        self.process =
            Some(Leashed::spawn(&mut command).expect("redis-server can be started; is it installed?"));
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Whether it runs, frozen or not.
    pub fn lives(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    /// From now on none of its files may grow beyond so many bytes; none takes the limit away.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let process = self.process.as_ref().and_then(|process| Pid::from_raw(process.id().cast_signed()));
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(process, Resource::Fsize, limit).expect("the limits of a child of ours can be set");
    }

    /// The size of its append-only files.
    pub fn log_size(&self) -> u64 {
        let files = fs::read_dir(self.folder.join("appendonlydir")).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).max().unwrap_or(0)
    }

    /// As a person would ask it, directly.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, RedisError> {
        Door(self.port).ask(words).await
    }
}

/// A server's own door, for this harness.
#[derive(Clone, Copy)]
pub struct Door(u16);

impl Door {
    /// As a person would ask it, directly.
    pub async fn ask<T: FromRedisValue>(self, words: &[&str]) -> Result<T, RedisError> {
        redis::cmd(words[0]).arg(&words[1..]).query_async(&mut self.connection().await?).await
    }

    async fn connection(self) -> Result<MultiplexedConnection, RedisError> {
        let url = format!("redis://admin:{PASSWORD}@127.0.0.1:{}", self.0);
        let limit = Some(Duration::from_secs(3));
        let config = AsyncConnectionConfig::new().set_connection_timeout(limit).set_response_timeout(limit);
        Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
    }
}

/// The trio of both.
pub struct Trio {
    /// By machine.
    pub redis: Vec<Server>,
    /// By machine.
    pub sentinels: Vec<Server>,
}

impl Trio {
    /// Starts all; returns when Sentinels agree, know each other, and both replicas are in sync.
    pub async fn start(net: &mut Net, folder: &Path) -> Self {
        let mut trio = Self { redis: Vec::new(), sentinels: Vec::new() };
        for machine in 0..3 {
            trio.redis.push(Server::new(net, machine, folder.join(format!("redis{}", machine + 1))).await);
            let folder = folder.join(format!("sentinel{}", machine + 1));
            trio.sentinels.push(Server::new(net, machine, folder).await);
        }
        for machine in 0..3 {
            trio.launch_redis(machine, 0);
        }
        // A Sentinel that comes before the replicas would hear of them only ten seconds later.
        eventually(WELL, "both replicas follow", || trio.both_follow(0)).await;
        for machine in 0..3 {
            trio.write_sentinel(machine);
            trio.sentinels[machine].launch(true);
        }
        trio.is_well().await;
        trio
    }

    /// Where daemons of a machine find it.
    pub fn url(&self, machine: Machine) -> String {
        let peers: Vec<String> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.public)).collect();
        let user = format!("kubeleet{}", machine + 1);
        format!(
            "redis+sentinel://{user}:{PASSWORD}@{}/mymaster?sentinel_user={user}&sentinel_password={PASSWORD}",
            peers.join(",")
        )
    }

    fn launch_redis(&mut self, machine: Machine, master: Machine) {
        let (folder, public) = (self.redis[machine].folder.clone(), self.redis[machine].public);
        let mut conf = relocated(REDIS_CONF, &folder, self.redis[machine].port);
        conf.push_str(&format!("replica-announce-ip 127.0.0.1\nreplica-announce-port {public}\n"));
        conf.push_str(&format!("masteruser replication{}\nmasterauth {PASSWORD}\n", machine + 1));
        if master != machine {
            conf.push_str(&format!("replicaof 127.0.0.1 {}\n", self.redis[master].public));
        }
        fs::write(folder.join("conf"), conf).unwrap();
        fs::write(folder.join("users.acl"), users(REDIS_USERS)).unwrap();
        self.redis[machine].launch(false);
    }

    fn write_sentinel(&self, machine: Machine) {
        let sentinel = &self.sentinels[machine];
        let mut conf = relocated(SENTINEL_CONF, &sentinel.folder, sentinel.port);
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
        fs::write(sentinel.folder.join("conf"), conf).unwrap();
        fs::write(sentinel.folder.join("users.acl"), users(SENTINEL_USERS)).unwrap();
    }

    /// Starts a Redis that is down, as `sentinel/start-redis` does: as what two Sentinels say it is. Where they do not
    /// agree after a while, a former replica follows whom it followed.
    pub async fn start_redis(&mut self, machine: Machine) {
        let begun = Instant::now();
        loop {
            if let Some(master) = self.agreed_master().await {
                return self.launch_redis(machine, master);
            }
            let conf = fs::read_to_string(self.redis[machine].folder.join("conf")).unwrap();
            let followed = conf.lines().rev().find_map(|line| line.strip_prefix("replicaof 127.0.0.1 "));
            let followed = followed.and_then(|port| self.by_public(port.trim()));
            match followed {
                Some(master) if begun.elapsed() > Duration::from_secs(5) => {
                    return self.launch_redis(machine, master);
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Starts a Sentinel that is down, with what it had learned.
    pub fn start_sentinel(&mut self, machine: Machine) {
        self.sentinels[machine].launch(true);
    }

    /// The doors of all Redis, by machine.
    pub fn doors(&self) -> Vec<Door> {
        self.redis.iter().map(|redis| Door(redis.port)).collect()
    }

    /// The master that at least two Sentinels name.
    pub async fn agreed_master(&self) -> Option<Machine> {
        let mut votes = [0; 3];
        for sentinel in &self.sentinels {
            let named: Result<(String, String), _> =
                sentinel.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"]).await;
            if let Some(machine) = named.ok().and_then(|(_, port)| self.by_public(&port)) {
                votes[machine] += 1;
            }
        }
        votes.iter().position(|votes| *votes >= 2)
    }

    fn by_public(&self, port: &str) -> Option<Machine> {
        self.redis.iter().position(|redis| redis.public.to_string() == port)
    }

    /// The master; waits until two Sentinels name one that says so itself.
    pub async fn master(&self) -> Machine {
        eventually(FAILOVER, "there is a master", || async {
            let machine = self.agreed_master().await.ok_or("no two Sentinels agree")?;
            let role: Result<redis::Value, _> = self.redis[machine].ask(&["ROLE"]).await;
            that(role.as_ref().is_ok_and(is_master), || format!("redis{}: {role:?}", machine + 1))?;
            Ok::<_, String>(machine)
        })
        .await
    }

    /// Waits until somebody else is the master than this one.
    pub async fn other_master_than(&self, old: Machine) -> Machine {
        eventually(FAILOVER, "another Redis is the master", || async {
            match self.agreed_master().await {
                Some(machine) if machine != old => Ok(machine),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        self.master().await
    }

    /// Waits until all six are there and agree, and both replicas are in sync.
    pub async fn is_well(&self) {
        eventually(WELL, "three Redis and three Sentinels are well", || async {
            for sentinel in &self.sentinels {
                let quorum: Result<String, _> = sentinel.ask(&["SENTINEL", "CKQUORUM", "mymaster"]).await;
                let quorum = quorum.map_err(|error| error.to_string())?;
                that(quorum.starts_with("OK 3"), || quorum.clone())?;
            }
            for sentinel in &self.sentinels {
                let replicas: Result<Vec<redis::Value>, _> =
                    sentinel.ask(&["SENTINEL", "REPLICAS", "mymaster"]).await;
                let known = replicas.map_err(|error| error.to_string())?.len();
                that(known == 2, || format!("a Sentinel knows {known} replicas"))?;
            }
            let master = self.agreed_master().await.ok_or("no master")?;
            self.both_follow(master).await
        })
        .await;
    }

    async fn both_follow(&self, master: Machine) -> Result<(), String> {
        let info: Result<String, _> = self.redis[master].ask(&["INFO", "replication"]).await;
        let info = info.map_err(|error| error.to_string())?;
        let online = info.matches("state=online").count();
        that(info.contains("role:master") && online == 2, || info.clone())
    }

    /// All that stands at the master.
    pub async fn keyspace(&self) -> Option<Keyspace> {
        let master = self.agreed_master().await?;
        let mut connection = Door(self.redis[master].port).connection().await.ok()?;
        Keyspace::read_over(&mut connection).await.ok()
    }
}

fn is_master(role: &redis::Value) -> bool {
    let redis::Value::Array(parts) = role else { return false };
    parts.first() == Some(&redis::Value::BulkString(b"master".to_vec()))
}

/// The configuration of a container, on loopback and in a folder.
fn relocated(conf: &str, folder: &Path, port: u16) -> String {
    let folder = folder.display();
    let line = |line: &str| match line.split_once(' ') {
        Some(("bind", _)) => "bind 127.0.0.1".to_owned(),
        Some(("port", _)) => format!("port {port}"),
        Some(("dir", _)) => format!("dir {folder}"),
        Some(("aclfile", _)) => format!("aclfile {folder}/users.acl"),
        _ => line.to_owned(),
    };
    conf.lines().map(|text| line(text) + "\n").collect()
}

/// The users file from its template: one user of each kind for each machine, so that the network knows who calls.
fn users(template: &str) -> String {
    let mut users = String::new();
    for line in template.lines().filter(|line| line.starts_with("user ")) {
        match line.split_once(" on @") {
            Some((user, _)) if user != "user admin" => {
                let (name, rights) = (user, line.split_once("@ ").map_or("", |(_, rights)| rights));
                users.extend((1..=3).map(|n| format!("{name}{n} on >{PASSWORD} {rights}\n")));
            }
            _ => users.push_str(&format!("{}\n", line.replace("@admin@", &format!(">{PASSWORD}")))),
        }
    }
    users
}
