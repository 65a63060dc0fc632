//! Opening one connection to one server, and asking that server what it is.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, TlsCertificates, Value,
};
use tokio::time::timeout;

use super::super::error::StoreError;
use super::fault::Fault;
use super::url::{HostPort, Login, RedisUrl, Tls};
use super::wire::{Connection, Wire};

/// One server.
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

/// Knows how to open connections: the logins, the database, TLS and the patience.
pub(super) struct Dialer {
    tls: Option<Tls>,
    login: Login,
    sentinel_login: Login,
    db: u32,
    connect_timeout: Duration,
    /// In the place of the network.
    pub(super) wire: Option<Arc<dyn Wire>>,
}

impl Dialer {
    pub(super) fn new(url: &RedisUrl, connect_timeout: Duration) -> Self {
        Self {
            tls: url.tls.clone(),
            login: url.login.clone(),
            sentinel_login: url.sentinel_login.clone(),
            db: url.db,
            connect_timeout,
            wire: None,
        }
    }

    /// A connection to a Redis that just said it is the master and serves.
    pub(super) async fn master(&self, to: &Address, response_timeout: Duration) -> Result<Connection, Fault> {
        let connection = match &self.wire {
            Some(wire) => Connection::Wire { line: wire.open(), response_timeout },
            None => {
                let client = self.client(to, &self.login, self.db).await?;
                Connection::Redis(self.open(&client, to, response_timeout).await?)
            }
        };
        match timeout(self.connect_timeout, check_master(&connection)).await {
            Ok(verdict) => verdict.map(|()| connection),
            Err(_) => Err(Fault::lost("ROLE", format!("{to} accepts connections but does not answer"))),
        }
    }

    /// A connection to a sentinel.
    pub(super) async fn sentinel(
        &self,
        to: &HostPort,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, Fault> {
        let to = Address::Tcp(to.clone());
        let client = self.client(&to, &self.sentinel_login, 0).await?;
        self.open(&client, &to, response_timeout).await
    }

    /// A connection for messages from a Redis.
    pub(super) async fn redis_messages(&self, to: &Address) -> Result<PubSub, Fault> {
        let client = self.client(to, &self.login, self.db).await?;
        self.messages(&client, to).await
    }

    /// A connection for messages from a sentinel.
    pub(super) async fn sentinel_messages(&self, to: &HostPort) -> Result<PubSub, Fault> {
        let to = Address::Tcp(to.clone());
        let client = self.client(&to, &self.sentinel_login, 0).await?;
        self.messages(&client, &to).await
    }

    async fn open(
        &self,
        client: &Client,
        to: &Address,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, Fault> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(response_timeout));
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|error| self.not_connected(to, &error))
    }

    async fn messages(&self, client: &Client, to: &Address) -> Result<PubSub, Fault> {
        match timeout(self.connect_timeout, client.get_async_pubsub()).await {
            Ok(opened) => opened.map_err(|error| self.not_connected(to, &error)),
            Err(_) => Err(self.no_answer(to)),
        }
    }

    fn not_connected(&self, to: &Address, error: &redis::RedisError) -> Fault {
        if error.is_timeout() {
            return self.no_answer(to);
        }
        let mut fault = Fault::of("connect", error);
        if let StoreError::Unreachable { why, .. } = &mut fault.error {
            *why = format!("{to}: {error}");
        }
        fault
    }

    fn no_answer(&self, to: &Address) -> Fault {
        Fault::lost("connect", format!("no answer from {to} within {:?}", self.connect_timeout))
    }

    async fn client(&self, to: &Address, login: &Login, db: u32) -> Result<Client, Fault> {
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
        let complain = |error: redis::RedisError| Fault::of("connect", &error);
        let (address, certificates) = match (to, &self.tls) {
            (Address::Unix(path), _) => (ConnectionAddr::Unix(path.clone()), None),
            (Address::Tcp(at), None) => (ConnectionAddr::Tcp(at.host.clone(), at.port), None),
            (Address::Tcp(at), Some(tls)) => (secure(at), certificates(tls).await?),
        };
        let info: ConnectionInfo = address.into_connection_info().map_err(complain)?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp_settings());
        match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates).map_err(complain),
            None => Client::open(info).map_err(complain),
        }
    }
}

fn secure(at: &HostPort) -> ConnectionAddr {
    static PROVIDER: Once = Once::new();
    // An error only says that the process has chosen a provider already.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    ConnectionAddr::TcpTls { host: at.host.clone(), port: at.port, insecure: false, tls_params: None }
}

/// Read at every connection: certificates are replaced while processes run.
async fn certificates(tls: &Tls) -> Result<Option<TlsCertificates>, Fault> {
    let Some(path) = &tls.ca else { return Ok(None) };
    match tokio::fs::read(path).await {
        Ok(pem) => Ok(Some(TlsCertificates { client_tls: None, root_cert: Some(pem) })),
        Err(error) => {
            let why = format!("the certificate authority {} can not be read: {error}", path.display());
            Err(Fault::lost("connect", why))
        }
    }
}

/// A peer that vanishes without a word is noticed by the response timeout, and by the kernel on connections that
/// only listen.
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

/// Asks whether the server serves (PING: a server that loads its data says LOADING) and is the master.
pub(super) async fn check_master(connection: &Connection) -> Result<(), Fault> {
    let mut pipe = redis::pipe();
    pipe.cmd("PING").ignore().cmd("ROLE");
    let reply: Result<(Value,), _> = pipe.query_async(&mut connection.clone()).await;
    let (role,) = reply.map_err(|error| Fault::of("ROLE", &error))?;
    let name = match &role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match name {
        Some(Value::BulkString(name)) if name == b"master" => Ok(()),
        _ => Err(Fault::not_master()),
    }
}
