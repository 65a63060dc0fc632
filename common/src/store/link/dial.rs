//! Opening a connection to one server, and checking that the server is a master.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates, Value,
};
use tokio::time::timeout;

use super::super::error::StoreError;
use super::fault::LinkFault;
use super::transport::{LinkConnection, Transport};
use super::url::{HostPort, RedisLogin, RedisTls, RedisUrl};
use crate::backoff::Backoff;
use crate::without_error_numbers;

/// A connection that lasted this long was stable. After its loss the first attempts to reconnect are quick
/// again.
pub(super) const STABLE_AFTER: Duration = Duration::from_secs(5);
/// The wait before the first attempt to reconnect.
const FIRST_RECONNECT_DELAY: Duration = Duration::from_millis(50);

/// Returns the waits between attempts to connect to a server.
pub(super) fn reconnect_backoff() -> Backoff {
    Backoff::starting_at(FIRST_RECONNECT_DELAY)
}

/// The address of one server.
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

/// Opens connections. Knows the logins, the database, the TLS settings and the connect timeout.
pub(super) struct RedisDialer {
    tls: Option<RedisTls>,
    login: RedisLogin,
    sentinel_login: RedisLogin,
    db: u32,
    connect_timeout: Duration,
    /// Replaces the network if present.
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
            connect_timeout,
            transport,
        }
    }

    /// Connects to a Redis that has just confirmed that it is a master and serves commands.
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
        match timeout(self.connect_timeout, check_master(&connection)).await {
            Ok(checked) => checked.map(|()| connection),
            Err(_) => Err(self.no_answer_to_role(address)),
        }
    }

    /// Connects to a Sentinel.
    pub(super) async fn connect_to_sentinel(
        &self,
        at: &HostPort,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, LinkFault> {
        let address = Address::Tcp(at.clone());
        let client = self.sentinel_client(&address).await?;
        self.connect(&client, &address, response_timeout).await
    }

    /// Opens a connection for messages published at a Redis.
    pub(super) async fn subscribe_at_redis(&self, address: &Address) -> Result<PubSub, LinkFault> {
        let client = self.redis_client(address).await?;
        self.open_pubsub(&client, address).await
    }

    /// Opens a connection for messages published at a Sentinel.
    pub(super) async fn subscribe_at_sentinel(&self, at: &HostPort) -> Result<PubSub, LinkFault> {
        let address = Address::Tcp(at.clone());
        let client = self.sentinel_client(&address).await?;
        self.open_pubsub(&client, &address).await
    }

    /// Returns what a connection pool needs to open connections to the Redis at `address` on its own.
    pub(super) fn pool_manager(
        &self,
        address: &Address,
        authority: Option<Vec<u8>>,
        response_timeout: Duration,
    ) -> Result<deadpool_redis::Manager, LinkFault> {
        let info = self.connection_info(address, &self.login, self.db, authority)?;
        deadpool_redis::Manager::new_with_config(info, self.connection_config(response_timeout))
            .map_err(|error| LinkFault::of("connect", &error))
    }

    /// Reads the certificate authority that the URL names, in PEM; `None` if the system's authorities are
    /// trusted.
    ///
    /// To be called for every new connection: certificates are replaced while processes run.
    pub(super) async fn read_authority(&self) -> Result<Option<Vec<u8>>, LinkFault> {
        let Some(path) = self.tls.as_ref().and_then(|tls| tls.ca.as_ref()) else { return Ok(None) };
        tokio::fs::read(path).await.map(Some).map_err(|error| {
            let why = format!("the certificate authority {} cannot be read: {error}", path.display());
            LinkFault::lost("connect", why)
        })
    }

    /// Explains why no connection to `address` was made.
    pub(super) fn not_connected(&self, address: &Address, error: &RedisError) -> LinkFault {
        if error.is_timeout() {
            return self.no_answer(address);
        }
        let mut fault = LinkFault::of("connect", error);
        if let StoreError::Unreachable { why, .. } = &mut fault.error {
            *why = without_error_numbers(&format!("{address}: {error}"));
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
        let authority = self.read_authority().await?;
        let info = self.connection_info(address, &self.login, self.db, authority)?;
        Client::open(info).map_err(|error| LinkFault::of("connect", &error))
    }

    async fn sentinel_client(&self, address: &Address) -> Result<Client, LinkFault> {
        let authority = self.read_authority().await?;
        let info = self.connection_info(address, &self.sentinel_login, 0, authority)?;
        Client::open(info).map_err(|error| LinkFault::of("connect", &error))
    }

    fn connection_info(
        &self,
        address: &Address,
        login: &RedisLogin,
        db: u32,
        authority: Option<Vec<u8>>,
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
        let with_authority = |info: ConnectionInfo| match authority {
            // Only a client can attach the certificate to an address.
            Some(pem) => {
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
                let client = Client::build_with_tls(info, certificates)?;
                Ok(client.get_connection_info().clone())
            }
            None => Ok(info),
        };
        address
            .into_connection_info()
            .map(|info| info.set_redis_settings(settings).set_tcp_settings(tcp_settings()))
            .and_then(with_authority)
            .map_err(|error| LinkFault::of("connect", &error))
    }
}

fn tls_address(at: &HostPort) -> ConnectionAddr {
    static PROVIDER: Once = Once::new();
    // An error only means that the process has chosen a provider already.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    ConnectionAddr::TcpTls { host: at.host.clone(), port: at.port, insecure: false, tls_params: None }
}

/// A peer that vanishes without closing the connection is noticed by the response timeout. On connections
/// that only listen, the kernel notices it with these settings.
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

/// Checks that the server serves commands and is a master. Only PING fails with LOADING while the data is
/// loaded.
pub(super) async fn check_master(connection: &LinkConnection) -> Result<(), LinkFault> {
    require_master(&mut connection.clone()).await.map_err(|error| LinkFault::of("ROLE", &error))
}

/// See [`check_master`]. The error for a replica is the same READONLY that the server would answer to a
/// write.
pub(super) async fn require_master(connection: &mut impl ConnectionLike) -> RedisResult<()> {
    let mut pipe = redis::pipe();
    pipe.cmd("PING").ignore().cmd("ROLE");
    let (role,): (Value,) = pipe.query_async(connection).await?;
    let name = match &role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match name {
        Some(Value::BulkString(name)) if name == b"master" => Ok(()),
        _ => Err(RedisError::from((
            ErrorKind::Server(ServerErrorKind::ReadOnly),
            "the server is a replica, not the master",
        ))),
    }
}
