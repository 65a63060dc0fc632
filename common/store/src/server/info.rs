//! The Redis server: its version, mode, eviction, persistence, and the format of its data.

use redis::cmd;
use redis_link::{AttachedReplica, attached_replicas};

use crate::{Store, StoreError, keys};
use model::RedisMillis;

/// The newest known data format. A version whose data would mislead earlier ones writes its number into the
/// field `format` of `meta`. None has done so yet; a missing field means 1.
const FORMAT: u64 = 1;

const MIN_VERSION: (u32, u32) = (6, 2);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// `Redis 7.0.15`, `Valkey 9.1.2`. Empty if unknown.
    pub product: String,
    pub replicas: Vec<AttachedReplica>,
    /// Replicas that keep up, if `min-replicas-to-write` is set.
    pub good_replicas: Option<u64>,
    pub has_aof: Option<bool>,
}

impl ServerInfo {
    pub(crate) fn read(info: &str) -> Self {
        let number = |name: &str| field(info, name).and_then(|value| value.parse().ok());
        Self {
            product: product(info).unwrap_or_default(),
            replicas: attached_replicas(info),
            good_replicas: number("min_slaves_good_slaves"),
            has_aof: field(info, "aof_enabled").map(|value| value != "0"),
        }
    }
}

pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    fields.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Valkey still reports `redis_version:7.2.4` beside its own version.
fn product(info: &str) -> Option<String> {
    let own = |name: &str| {
        let version = field(info, &format!("{name}_version"))?;
        let (first, rest) = name.split_at_checked(1)?;
        Some(format!("{}{rest} {version}", first.to_uppercase()))
    };
    field(info, "server_name").and_then(own).or_else(|| own("valkey")).or_else(|| own("redis"))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConcern {
    pub severity: Severity,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Data may be lost when Redis restarts.
    Advice,
    /// Data may be lost while Redis runs.
    Problem,
    /// kubeleet cannot work, or Redis deletes its data.
    Unusable,
}

impl Store {
    pub async fn server_concerns(&self) -> Result<Vec<ServerConcern>, StoreError> {
        let info: String = self.link.query(&cmd("INFO")).await?;
        // A broken `meta` is another problem, with a message of its own.
        let format: Option<String> =
            self.link.query(cmd("HGET").arg(keys::META).arg("format")).await.unwrap_or_default();
        Ok(concerns(&info).into_iter().chain(newer_data(format.as_deref())).collect())
    }

    /// Returns the time of Redis if no script has noticed the change yet.
    pub async fn master_changed_at(&self) -> Result<Option<RedisMillis>, StoreError> {
        let mut noted = cmd("HMGET");
        noted.arg(keys::META).arg("run_id").arg("changed_at");
        let noted: Vec<Option<Vec<u8>>> = match self.link.query(&noted).await {
            // As above.
            Err(error) if error.is_broken_key() => return Ok(None),
            noted => noted?,
        };
        let mut noted = noted.into_iter().map(|text| text.and_then(|text| String::from_utf8(text).ok()));
        let (known_run, at) = (noted.next().flatten(), noted.next().flatten());
        let info: String = self.link.query(cmd("INFO").arg("server")).await?;
        let run = field(&info, "run_id");
        if known_run.is_some() && run.is_some() && known_run.as_deref() != run {
            return self.redis_now().await.map(Some);
        }
        Ok(at.and_then(|at| at.parse().ok()).filter(|at| *at > 0))
    }
}

fn concerns(info: &str) -> Vec<ServerConcern> {
    let value = |name: &str| field(info, name);
    [
        version(value("redis_version")),
        mode(value("redis_mode")),
        eviction(value("maxmemory_policy"), value("maxmemory")),
        persistence(value("aof_enabled")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn newer_data(format: Option<&str>) -> Option<ServerConcern> {
    let format = format?.parse::<u64>().ok().filter(|format| *format > FORMAT)?;
    Some(ServerConcern {
        severity: Severity::Unusable,
        text: format!(
            "the data in this Redis are of a newer kubeleet (format {format}; kubeleet {} understands {FORMAT}): \
             install that version or a newer one",
            env!("CARGO_PKG_VERSION")
        ),
    })
}

fn version(text: Option<&str>) -> Option<ServerConcern> {
    let text = text?;
    let mut numbers = text.split('.').map(str::parse::<u32>);
    let version = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (version < MIN_VERSION).then(|| ServerConcern {
        severity: Severity::Unusable,
        text: format!("Redis {text} lacks commands that kubeleet needs: use Redis 6.2 or newer, or Valkey"),
    })
}

/// Redis Cluster has no scripts over keys of several shards.
fn mode(mode: Option<&str>) -> Option<ServerConcern> {
    (mode? == "cluster").then(|| ServerConcern {
        severity: Severity::Unusable,
        text: "this Redis is a cluster of shards (cluster-enabled yes), and kubeleet needs one Redis without cluster \
               mode; Sentinels make that highly available"
            .to_owned(),
    })
}

fn eviction(policy: Option<&str>, limit: Option<&str>) -> Option<ServerConcern> {
    let policy = policy.filter(|policy| *policy != "noeviction")?;
    let is_limited = limit.is_some_and(|limit| limit != "0");
    let severity = match is_limited && policy.starts_with("allkeys") {
        true => Severity::Unusable,
        false => Severity::Problem,
    };
    Some(ServerConcern {
        severity,
        text: format!(
            "Redis has maxmemory-policy {policy}: when its memory is full, it deletes pods and services; set \
             `maxmemory-policy noeviction` in redis.conf and with CONFIG SET"
        ),
    })
}

fn persistence(aof_enabled: Option<&str>) -> Option<ServerConcern> {
    (aof_enabled? == "0").then(|| ServerConcern {
        severity: Severity::Advice,
        text: "Redis has no append-only file: a restart loses all writes since its last snapshot; set \
               `appendonly yes` in redis.conf and with CONFIG SET"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_newer_version_are_unusable() {
        for format in [None, Some(""), Some("garbage"), Some("1"), Some("0")] {
            assert_eq!(newer_data(format), None, "{format:?}");
        }
        let concern = newer_data(Some("2")).unwrap();
        assert_eq!(concern.severity, Severity::Unusable);
        assert!(concern.text.contains("format 2") && concern.text.contains("understands 1"), "{concern:?}");
    }

    #[test]
    fn an_old_version_eviction_and_missing_persistence_are_concerns() {
        use Severity::{Advice, Problem, Unusable};
        for (info, expected) in [
            ("", &[][..]),
            ("# Server\r\nredis_version:7.2.4\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n", &[]),
            ("redis_version:6.2.0\r\n", &[]),
            ("redis_version:6.0.16\r\n", &[Unusable]),
            ("redis_version:255.255.255\r\n", &[]),
            ("redis_version:unstable\r\n", &[]),
            ("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", &[Problem]),
            ("maxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n", &[Unusable]),
            ("maxmemory:1000\r\nmaxmemory_policy:volatile-ttl\r\n", &[Problem]),
            ("aof_enabled:0\r\n", &[Advice]),
            ("redis_mode:cluster\r\n", &[Unusable]),
            ("redis_mode:standalone\r\n", &[]),
        ] {
            let found: Vec<Severity> = concerns(info).into_iter().map(|concern| concern.severity).collect();
            assert_eq!(found, expected, "{info:?}");
        }
    }

    #[test]
    fn the_product_is_read_from_info() {
        for (info, product) in [
            ("redis_version:7.0.15\r\n", "Redis 7.0.15"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", "Valkey 9.1.2"),
            ("redis_version:7.2.4\r\nvalkey_version:8.0.0\r\n", "Valkey 8.0.0"),
            ("server_name:other\r\nredis_version:7.2.4\r\n", "Redis 7.2.4"),
            ("", ""),
        ] {
            assert_eq!(ServerInfo::read(info).product, product, "{info:?}");
        }
    }

    #[test]
    fn attached_replicas_are_read_from_info() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:1\r\n\
            slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0\r\n\
            slave1:ip=fd00::3,port=6380,state=wait_bgsave,offset=0,lag=1\r\n\
            slave2:ip=10.0.0.4,port=6379,state=online,offset=9,lag=7,type=replica\r\n\
            slave_read_repl_offset:3\r\nmaster_replid:abc\r\naof_enabled:1\r\n";
        let read = ServerInfo::read(info);
        let replicas: Vec<(&str, bool)> =
            read.replicas.iter().map(|replica| (replica.address.as_str(), replica.is_behind)).collect();
        assert_eq!(replicas, [("10.0.0.2:6379", false), ("10.0.0.4:6379", true), ("fd00::3:6380", true)]);
        assert_eq!((read.good_replicas, read.has_aof), (Some(1), Some(true)));
    }
}
