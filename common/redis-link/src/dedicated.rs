//! Connections for commands that block, which no other command can share.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::fault::LinkFault;
use super::state::SharedState;
use super::transport::LinkConnection;
use crate::call::{BOUNDARY, ScriptCall, command_name};
use crate::error::StoreError;
use daemon::failpoint::{self, Side};

/// A connection with one user, so that a command can block on it.
///
/// Any error, a dropped future, or a new master ends it: ask the link for a new one. Otherwise a dropped
/// future would leave its reply to the next command, and an element that the server popped would be lost.
pub struct DedicatedConnection {
    shared: Arc<SharedState>,
    term: u64,
    response_timeout: Duration,
    connection: Option<LinkConnection>,
}

impl DedicatedConnection {
    pub(super) async fn open(
        shared: Arc<SharedState>,
        response_timeout: Duration,
    ) -> Result<Self, StoreError> {
        let master = shared.master("connect").await?;
        match shared.dialer.connect_to_master(&master.address, response_timeout).await {
            Ok(connection) => Ok(Self::new(shared, master.term, response_timeout, connection)),
            Err(fault) => {
                shared.handle_dedicated_fault(master.term, &fault);
                Err(fault.error)
            }
        }
    }

    pub(super) fn new(
        shared: Arc<SharedState>,
        term: u64,
        response_timeout: Duration,
        connection: LinkConnection,
    ) -> Self {
        Self { shared, term, response_timeout, connection: Some(connection) }
    }

    /// The command may block for less than the response timeout. Any error, and dropping the future, closes
    /// the connection.
    pub async fn query<T: FromRedisValue>(&mut self, cmd: &Cmd) -> Result<T, StoreError> {
        self.query_blocking(cmd, Duration::ZERO).await
    }

    pub(super) async fn query_blocking<T: FromRedisValue>(
        &mut self,
        cmd: &Cmd,
        block: Duration,
    ) -> Result<T, StoreError> {
        let what = command_name(cmd);
        let mut connection = self.take(&what)?;
        connection.set_response_timeout(self.response_timeout + block);
        failpoint::check(BOUNDARY, &what, Side::Before);
        let reply = self.unless_term_ends(cmd.query_async(&mut connection)).await;
        failpoint::check(BOUNDARY, &what, Side::After);
        self.put_back(&what, connection, reply)
    }

    /// A command that may block and then a script, in one round trip. See [`DedicatedConnection::query`].
    pub async fn query_then<T: FromRedisValue>(
        &mut self,
        cmd: &Cmd,
        then: &ScriptCall<'_>,
    ) -> Result<(T, Value), StoreError> {
        let what = command_name(cmd);
        let mut connection = self.take(&what)?;
        let mut second = connection.clone();
        let names = || [what.as_str(), then.name()].into_iter();
        names().for_each(|name| failpoint::check(BOUNDARY, name, Side::Before));
        let both = async {
            // A biased join! sends the commands in this order.
            let (reply, then) = tokio::join!(
                biased;
                cmd.query_async(&mut connection),
                then.invoke_async::<Value>(&mut second)
            );
            Ok((reply?, then?))
        };
        let reply = self.unless_term_ends(both).await;
        names().for_each(|name| failpoint::check(BOUNDARY, name, Side::After));
        self.put_back(&what, connection, reply)
    }

    /// A script, perhaps a second one, and a command, in one round trip. Loads and repeats unknown scripts. A
    /// reply after the first is `None` on failure.
    pub(super) async fn script_and_query<T: FromRedisValue>(
        &mut self,
        call: &ScriptCall<'_>,
        also: Option<&ScriptCall<'_>>,
        cmd: &Cmd,
    ) -> Result<(Value, Option<Value>, Option<T>), StoreError> {
        let what = call.name();
        let mut connection = self.take(what)?;
        let (mut second, mut third) = (connection.clone(), connection.clone());
        let names = || std::iter::once(what).chain(also.map(ScriptCall::name));
        names().for_each(|name| failpoint::check(BOUNDARY, name, Side::Before));
        let all = async {
            let also = async { also?.invoke_async::<Value>(&mut second).await.ok() };
            // A biased join! polls in this order, also in the second try of unknown scripts.
            let (reply, also, queried) = tokio::join!(
                biased;
                call.invoke_async(&mut connection),
                also,
                cmd.query_async(&mut third)
            );
            reply.map(|reply| (reply, also, queried.ok()))
        };
        let reply = self.unless_term_ends(all).await;
        names().for_each(|name| failpoint::check(BOUNDARY, name, Side::After));
        self.put_back(what, connection, reply)
    }

    /// Does not ask the server.
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_some() && self.shared.is_current_term(self.term)
    }

    /// While a command runs, only its future owns the connection: dropping it closes the connection.
    fn take(&mut self, what: &str) -> Result<LinkConnection, StoreError> {
        let connection = self.connection.take();
        if !self.shared.is_current_term(self.term) {
            return Err(StoreError::NotMaster);
        }
        let why = "this connection was given up after an earlier failure; a new one is needed";
        connection.ok_or_else(|| LinkFault::lost(what, why).error)
    }

    /// `Err(None)` if another server becomes the master before the reply arrives.
    async fn unless_term_ends<T>(
        &self,
        command: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Option<RedisError>> {
        tokio::select! {
            biased;
            reply = command => reply.map_err(Some),
            () = self.shared.term_ended(self.term) => Err(None),
        }
    }

    fn put_back<T>(
        &mut self,
        what: &str,
        connection: LinkConnection,
        reply: Result<T, Option<RedisError>>,
    ) -> Result<T, StoreError> {
        match reply {
            Ok(value) => {
                self.connection = Some(connection);
                Ok(value)
            }
            Err(None) => Err(StoreError::NotMaster),
            Err(Some(error)) => {
                let fault = LinkFault::of(what, &error);
                self.shared.handle_dedicated_fault(self.term, &fault);
                Err(fault.error)
            }
        }
    }
}
