//! Opens connections to a server, and checks that it is a master.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
    TlsCertificates, Value,
};
use tokio::time::timeout;

use super::fault::{ConnectionAction, LinkFault};
use super::transport::{LinkConnection, Transport};
use crate::error::StoreError;
use daemon::backoff::Backoff;
use daemon::redis_url::{HostPort, RedisLogin, RedisTls, RedisUrl};
use daemon::without_error_numbers;

/// A connection this old makes the next reconnects quick.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(5);
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);

pub(super) fn reconnect_backoff() -> Backoff {
    Backoff::starting_at(FIRST_RECONNECT_DELAY)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(HostPort),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

pub(super) struct RedisDialer {
    tls: Option<RedisTls>,
    login: RedisLogin,
    sentinel_login: RedisLogin,
    db: u32,
    has_sentinels: bool,
    connect_timeout: Duration,
    pub(super) transport: Option<Arc<dyn Transport>>,
}

impl RedisDialer {
    pub(super) fn new(
        url: &RedisUrl,
        connect_timeout: Duration,
        transport: Option<Arc<dyn Transport>>,
    ) -> Self {
        Self {
            tls: url.tls.clone(),
            login: url.login.clone(),
            sentinel_login: url.sentinel_login.clone(),
            db: url.db,
            has_sentinels: url.has_sentinels(),
            connect_timeout,
            transport,
        }
    }

    pub(super) async fn connect_to_master(
        &self,
        address: &Address,
        response_timeout: Duration,
    ) -> Result<LinkConnection, LinkFault> {
        let connection = match &self.transport {
            Some(transport) => LinkConnection::Transport { connection: transport.open(), response_timeout },
            None => {
                let client = self.redis_client(address).await?;
                LinkConnection::Redis(self.connect(&client, address, response_timeout).await?)
            }
        };
        match timeout(self.connect_timeout, self.check_master(&connection, address)).await {
            Ok(checked) => checked.map(|()| connection),
            Err(_) => Err(self.no_answer_to_role(address)),
        }
    }

    pub(super) async fn connect_to_sentinel(
        &self,
        at: &HostPort,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, LinkFault> {
        let address = Address::Tcp(at.clone());
        let client = self.sentinel_client(&address).await?;
        self.connect(&client, &address, response_timeout).await
    }

    pub(super) async fn subscribe_at_redis(&self, address: &Address) -> Result<PubSub, LinkFault> {
        let client = self.redis_client(address).await?;
        self.open_pubsub(&client, address).await
    }

    pub(super) async fn subscribe_at_sentinel(&self, at: &HostPort) -> Result<PubSub, LinkFault> {
        let address = Address::Tcp(at.clone());
        let client = self.sentinel_client(&address).await?;
        self.open_pubsub(&client, &address).await
    }

    pub(super) fn pool_manager(
        &self,
        address: &Address,
        tls: TlsFiles,
        response_timeout: Duration,
    ) -> Result<deadpool_redis::Manager, LinkFault> {
        let info = self.connection_info(address, &self.login, self.db, tls)?;
        deadpool_redis::Manager::new_with_config(info, self.connection_config(response_timeout))
            .map_err(|error| LinkFault::of("connect", &error))
    }

    /// Certificates are replaced while processes run.
    pub(super) async fn read_tls_files(&self) -> Result<TlsFiles, LinkFault> {
        let Some(tls) = &self.tls else { return Ok(TlsFiles::default()) };
        Ok(TlsFiles {
            authority: read_pem("certificate authority", tls.ca.as_deref()).await?,
            certificate: read_pem("client certificate", tls.cert.as_deref()).await?,
            key: read_pem("key of the client certificate", tls.key.as_deref()).await?,
        })
    }

    pub(super) fn not_connected(&self, address: &Address, error: &RedisError) -> LinkFault {
        if error.is_timeout() {
            return self.no_answer(address);
        }
        let mut fault = LinkFault::of("connect", error);
        if let StoreError::Unreachable { why, .. } = &mut fault.error {
            let hint = tls_hint(self.tls.as_ref(), &error.to_string());
            *why = without_error_numbers(&format!("{address}: {error}{hint}"));
        }
        fault
    }

    pub(super) fn no_answer_to_role(&self, address: &Address) -> LinkFault {
        LinkFault::lost("ROLE", format!("{address} accepts connections but does not answer"))
    }

    fn no_answer(&self, address: &Address) -> LinkFault {
        LinkFault::lost("connect", format!("no answer from {address} within {:?}", self.connect_timeout))
    }

    async fn connect(
        &self,
        client: &Client,
        address: &Address,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, LinkFault> {
        let config = self.connection_config(response_timeout);
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| self.not_connected(address, &error))
    }

    fn connection_config(&self, response_timeout: Duration) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(response_timeout))
    }

    async fn open_pubsub(&self, client: &Client, address: &Address) -> Result<PubSub, LinkFault> {
        match timeout(self.connect_timeout, client.get_async_pubsub()).await {
            Ok(opened) => opened.map_err(|error| self.not_connected(address, &error)),
            Err(_) => Err(self.no_answer(address)),
        }
    }

    async fn redis_client(&self, address: &Address) -> Result<Client, LinkFault> {
        let tls = self.read_tls_files().await?;
        let info = self.connection_info(address, &self.login, self.db, tls)?;
        Client::open(info).map_err(|error| LinkFault::of("connect", &error))
    }

    async fn sentinel_client(&self, address: &Address) -> Result<Client, LinkFault> {
        let tls = self.read_tls_files().await?;
        let info = self.connection_info(address, &self.sentinel_login, 0, tls)?;
        Client::open(info).map_err(|error| LinkFault::of("connect", &error))
    }

    fn connection_info(
        &self,
        address: &Address,
        login: &RedisLogin,
        db: u32,
        tls: TlsFiles,
    ) -> Result<ConnectionInfo, LinkFault> {
        let mut settings = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_db(db.into())
            .set_lib_name("kubeleet", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let address = match (address, &self.tls) {
            (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
            (Address::Tcp(at), None) => ConnectionAddr::Tcp(at.host.clone(), at.port),
            (Address::Tcp(at), Some(_)) => tls_address(at),
        };
        let with_files = |info: ConnectionInfo| {
            if tls == TlsFiles::default() {
                return Ok(info);
            }
            let TlsFiles { authority, certificate, key } = tls;
            let client_tls = certificate
                .zip(key)
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            // Only a client can attach certificates to an address.
            let client = Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: authority })?;
            Ok(client.get_connection_info().clone())
        };
        address
            .into_connection_info()
            .map(|info| info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))
            .and_then(with_files)
            .map_err(|error| LinkFault::of("connect", &error))
    }
}

fn tls_address(at: &HostPort) -> ConnectionAddr {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    ConnectionAddr::TcpTls { host: at.host.clone(), port: at.port, insecure: false, tls_params: None }
}

/// Connections that only listen have no response timeout.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(3))
        .with_retries(3);
    TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_user_timeout(Duration::from_secs(20))
}

/// PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    authority: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
}

async fn read_pem(what: &str, path: Option<&Path>) -> Result<Option<Vec<u8>>, LinkFault> {
    let Some(path) = path else { return Ok(None) };
    tokio::fs::read(path).await.map(Some).map_err(|error| {
        LinkFault::lost("connect", format!("the {what} {} cannot be read: {error}", path.display()))
    })
}

fn tls_hint(tls: Option<&RedisTls>, error: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| error.contains(word));
    match tls {
        None if has(&["Connection reset", "Broken pipe", "end of file", "eof", "broken pipe"]) => {
            " (if this is a TLS port, write rediss:// in the Redis URL)"
        }
        Some(_) if has(&["InvalidContentType", "corrupt message"]) => {
            " (if this port speaks no TLS, write redis:// in the Redis URL)"
        }
        Some(_) if has(&["CertificateRequired"]) => {
            " (it asks for a client certificate: set `tls-auth-clients no` in redis.conf, or add \
             ?cert=FILE&key=FILE to the Redis URL)"
        }
        _ => "",
    }
}

enum ServerRole {
    Master,
    ReplicaOf(String),
}

impl RedisDialer {
    /// While data is loaded, only PING fails.
    pub(super) async fn check_master(
        &self,
        connection: &LinkConnection,
        address: &Address,
    ) -> Result<(), LinkFault> {
        match ask_role(&mut connection.clone()).await {
            Ok(ServerRole::Master) => Ok(()),
            Ok(ServerRole::ReplicaOf(master)) => Err(self.replica(address, master)),
            Err(error) => Err(LinkFault::of("ROLE", &error)),
        }
    }

    fn replica(&self, address: &Address, master: String) -> LinkFault {
        let advice = match self.has_sentinels {
            true => {
                "the Sentinels call it the master; if that lasts for longer than a failover, `kubeleet status` says \
                 which of them watch a replica"
                    .to_owned()
            }
            false => {
                format!("name {master} in KUBELEET_REDIS_URL, or the Sentinels (redis+sentinel://…/mymaster)")
            }
        };
        let error = StoreError::Replica { at: address.to_string(), master, advice };
        LinkFault { error, action: ConnectionAction::NewMaster }
    }
}

/// With the READONLY error of a refused write.
pub(super) async fn require_master(connection: &mut impl ConnectionLike) -> RedisResult<()> {
    match ask_role(connection).await? {
        ServerRole::Master => Ok(()),
        ServerRole::ReplicaOf(_) => Err(RedisError::from((
            ErrorKind::Server(ServerErrorKind::ReadOnly),
            "the server is a replica, not the master",
        ))),
    }
}

async fn ask_role(connection: &mut impl ConnectionLike) -> RedisResult<ServerRole> {
    let mut pipe = redis::pipe();
    pipe.cmd("PING").ignore().cmd("ROLE");
    let (role,): (Value,) = pipe.query_async(connection).await?;
    let Value::Array(parts) = role else { return Ok(ServerRole::ReplicaOf("another".to_owned())) };
    let text = |index: usize| match parts.get(index) {
        Some(Value::BulkString(text)) => String::from_utf8_lossy(text).into_owned(),
        Some(Value::Int(number)) => number.to_string(),
        _ => String::new(),
    };
    match text(0).as_str() {
        "master" => Ok(ServerRole::Master),
        _ => Ok(ServerRole::ReplicaOf(format!("{}:{}", text(1), text(2)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_without_the_tls_of_the_server_gets_a_hint() {
        let tls = RedisTls::default();
        for (tls, error, hint) in [
            (None, "Connection reset by peer (os error 104)", "write rediss://"),
            (None, "Connection refused (os error 111)", ""),
            (Some(&tls), "received corrupt message of type InvalidContentType", "write redis://"),
            (Some(&tls), "received fatal alert: CertificateRequired", "tls-auth-clients no"),
            (Some(&tls), "invalid peer certificate: UnknownIssuer", ""),
        ] {
            let said = tls_hint(tls, error);
            assert!(said.contains(hint) && said.is_empty() == hint.is_empty(), "{error}: {said}");
        }
    }
}
