//! Connections for commands that block.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::fault::LinkFault;
use super::state::SharedState;
use super::transport::LinkConnection;
use crate::call::{BOUNDARY, ScriptCall, command_name};
use crate::error::StoreError;
use daemon::failpoint::{self, Side};

/// A connection with one user. Any error, a dropped future, or a new master ends it: ask the link for a new
/// one. Otherwise the next command would get the reply of a dropped future, and a popped element would be
/// lost.
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

    /// `cmd` may block for less than the response timeout.
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

    /// In one round trip; `cmd` may block.
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
            // Biased: sends the commands in this order.
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

    /// In one round trip. Loads unknown scripts and repeats. A reply after the first is `None` on failure.
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
            // Biased: this order also holds in the second try of unknown scripts.
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

    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_some() && self.shared.is_current_term(self.term)
    }

    /// Only the future owns the connection: dropping it closes the connection.
    fn take(&mut self, what: &str) -> Result<LinkConnection, StoreError> {
        let connection = self.connection.take();
        if !self.shared.is_current_term(self.term) {
            return Err(StoreError::NotMaster);
        }
        let why = "this connection was given up after an earlier failure; a new one is needed";
        connection.ok_or_else(|| LinkFault::lost(what, why).error)
    }

    /// `Err(None)` if the term ends first.
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
