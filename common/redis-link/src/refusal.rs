//! Conditions under which Redis answers but refuses commands: their names and remedies. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalCause {
    NoReplicas,
    Memory,
    Disk,
    NoLogin,
    WrongLogin,
    Permission,
    Channel,
    ClusterMode,
    Database,
    Clients,
    Loading,
    Busy,
}

use RefusalCause::{
    Busy, Channel, Clients, ClusterMode, Database, Disk, Loading, Memory, NoLogin, NoReplicas, Permission,
    WrongLogin,
};

const BY_CODE: &[(&str, RefusalCause)] = &[
    ("NOREPLICAS", NoReplicas),
    ("OOM", Memory),
    ("MISCONF", Disk),
    ("NOAUTH", NoLogin),
    ("WRONGPASS", WrongLogin),
    ("CROSSSLOT", ClusterMode),
    ("MOVED", ClusterMode),
    ("ASK", ClusterMode),
    ("CLUSTERDOWN", ClusterMode),
    ("TRYAGAIN", ClusterMode),
    ("LOADING", Loading),
    ("BUSY", Busy),
];

/// Words of Redis 6.2 to 8 and Valkey.
const BY_WORDS: &[(&str, RefusalCause)] = &[
    ("can't publish to the channel", Channel),
    ("permissions to access one of the channels", Channel),
    ("permissions to access a channel", Channel),
    ("permissions to access the channel", Channel),
    ("permissions to access the '", Permission),
    ("NOPERM", Permission),
    ("The user executing the script can't", Permission),
    ("DB index is out of range", Database),
    ("SELECT is not allowed in cluster mode", ClusterMode),
    ("non local key in a cluster node", ClusterMode),
    ("max number of clients", Clients),
];

impl RefusalCause {
    /// `None` if it concerns only the command or its key.
    pub(super) fn of(text: &str) -> Option<Self> {
        let code = text.split([' ', ':']).next().unwrap_or_default();
        let coded = BY_CODE.iter().find(|(known, _)| *known == code);
        coded.or_else(|| BY_WORDS.iter().find(|(words, _)| text.contains(words))).map(|(_, cause)| *cause)
    }

    /// Without a change of the configuration.
    pub(super) fn passes(self) -> bool {
        match self {
            NoReplicas | Memory | Disk | Clients | Loading | Busy => true,
            NoLogin | WrongLogin | Permission | Channel | ClusterMode | Database => false,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            NoReplicas => "noreplicas",
            Memory => "oom",
            Disk => "misconf",
            NoLogin => "noauth",
            WrongLogin => "wrongpass",
            Permission | Channel => "noperm",
            ClusterMode => "cluster",
            Database => "database",
            Clients => "maxclients",
            Loading => "loading",
            Busy => "busy",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            NoReplicas => {
                "it takes no writes while fewer replicas keep up than its min-replicas-to-write asks for; start them, \
                 or `CONFIG SET min-replicas-to-write 0` until they are back"
            }
            Memory => "delete or scale down services, or raise maxmemory",
            Disk => {
                "it takes no writes while it cannot save to its disk; make room there, its log has the cause"
            }
            NoLogin => {
                "give KUBELEET_REDIS_URL its password: redis://USER:PASSWORD@HOST, or redis://:PASSWORD@HOST"
            }
            WrongLogin => "correct user and password in KUBELEET_REDIS_URL, or in Redis with ACL SETUSER",
            Permission => {
                "give its user what kubeleet needs: `ACL SETUSER USER ~* &* +@all -@admin -@dangerous +info +role \
                 +script|load +script|exists`, as in sentinel/users-redis.acl"
            }
            Channel => "let its user use all channels: `ACL SETUSER USER &*`",
            ClusterMode => {
                "this Redis is a cluster of shards, and kubeleet needs one without cluster mode \
                 (`cluster-enabled no`); Sentinels make that highly available"
            }
            Database => {
                "KUBELEET_REDIS_URL names a database that it does not have; use /0, or raise `databases`"
            }
            Clients => "raise maxclients in redis.conf, or end clients that are not needed",
            Loading => "it reads its data after a start, and answers when it has them",
            Busy => "a script of another program runs for too long; `SCRIPT KILL` ends it",
        }
    }
}

pub(super) fn with_remedy(text: &str) -> String {
    let shown = text.trim_end().trim_end_matches('.');
    match (RefusalCause::of(text), denied_command(text)) {
        (Some(Permission), Some((user, command))) => {
            format!("{shown}: kubeleet needs that command; `ACL SETUSER {user} +{command}`")
        }
        (Some(cause), _) => format!("{shown}: {}", cause.remedy()),
        (None, _) => text.to_owned(),
    }
}

/// Before 7 Redis names no user, and inside a script no command.
fn denied_command(text: &str) -> Option<(&str, &str)> {
    let between = |before: &str, after: &str| text.split_once(before)?.1.split_once(after).map(|(it, _)| it);
    let command = between("permissions to run the '", "'")?;
    Some((between("User ", " has no").unwrap_or("USER"), command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_cause_and_the_line_that_mends_it() {
        let script = "ERR The user executing the script can't";
        let table: &[(&str, &str, bool, &str)] = &[
            ("NOREPLICAS Not enough good replicas to write.", "noreplicas", true, "min-replicas-to-write 0"),
            ("OOM command not allowed when used memory > 'maxmemory'.", "oom", true, "raise maxmemory"),
            ("MISCONF Errors writing to the AOF file: No space left", "misconf", true, "make room"),
            ("NOAUTH Authentication required.", "noauth", false, "redis://USER:PASSWORD@HOST"),
            ("WRONGPASS invalid username-password pair", "wrongpass", false, "ACL SETUSER"),
            (
                "NOPERM User kl has no permissions to run the 'info' command",
                "noperm",
                false,
                "`ACL SETUSER kl +info`",
            ),
            (
                "NOPERM this user has no permissions to run the 'script|load' command or its subcommand",
                "noperm",
                false,
                "`ACL SETUSER USER +script|load`",
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                "noperm",
                false,
                "~* &* +@all",
            ),
            (
                "NOPERM this user has no permissions to access one of the channels used as arguments",
                "noperm",
                false,
                "`ACL SETUSER USER &*`",
            ),
            (&format!("{script} run this command or subcommand script: ab"), "noperm", false, "+info +role"),
            (
                &format!("{script} publish to the channel mentioned in the command"),
                "noperm",
                false,
                "USER &*`",
            ),
            ("CROSSSLOT Keys in request don't hash to the same slot", "cluster", false, "cluster-enabled no"),
            ("MOVED 3999 127.0.0.1:6381", "cluster", false, "cluster-enabled no"),
            ("CLUSTERDOWN Hash slot not served", "cluster", false, "cluster-enabled no"),
            ("ERR Script attempted to access a non local key in a cluster node", "cluster", false, "shards"),
            ("ERR DB index is out of range", "database", false, "use /0"),
            ("ERR max number of clients reached", "maxclients", true, "raise maxclients"),
            ("LOADING Redis is loading the dataset in memory", "loading", true, "answers when"),
            ("BUSY Redis is busy running a script.", "busy", true, "SCRIPT KILL"),
        ];
        for (text, name, passes, remedy) in table {
            let cause = RefusalCause::of(text).unwrap_or_else(|| panic!("{text}: no cause"));
            assert_eq!((cause.name(), cause.passes()), (*name, *passes), "{text}");
            let said = with_remedy(text);
            assert!(said.contains(remedy) && said.starts_with(text.trim_end_matches('.')), "{said}");
        }
    }

    #[test]
    fn an_error_about_one_command_or_key_is_no_condition_of_the_installation() {
        for text in
            ["ERR unknown command 'FOO'", "NOSCRIPT No matching script", "EXECABORT x", "", "ERR value"]
        {
            assert_eq!(RefusalCause::of(text), None, "{text}");
            assert_eq!(with_remedy(text), text);
        }
    }
}
