//! A connection for one loop of blocking commands.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, Value};

use super::super::error::StoreError;
use super::super::scripts::Call;
use super::fault::Fault;
use super::state::Shared;
use super::wire::Connection;
use super::{SEAM, name_of};
use crate::failpoint::{self, Side};

/// A connection nobody else uses, so that a command may block on it.
///
/// It is given up after any error, when the future of a command is dropped (the answer would be taken for that of
/// the next command, or what the server popped would be lost in between), and as soon as there is another master.
/// From then on every call fails at once: ask the link for a new one.
pub(crate) struct Dedicated {
    shared: Arc<Shared>,
    term: u64,
    response_timeout: Duration,
    connection: Option<Connection>,
}

impl Dedicated {
    /// Opens one to the present master.
    pub(super) async fn open(shared: Arc<Shared>, response_timeout: Duration) -> Result<Self, StoreError> {
        let up = shared.up("connect").await?;
        match shared.dialer.master(&up.master, response_timeout).await {
            Ok(connection) => {
                Ok(Self { shared, term: up.term, response_timeout, connection: Some(connection) })
            }
            Err(fault) => {
                shared.act_on_own(up.term, &fault);
                Err(fault.error)
            }
        }
    }

    /// Runs one command. It may block for less than the response timeout this connection was asked for with.
    ///
    /// # Errors
    /// Any; the connection is of no use any more after it.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, cmd: &Cmd) -> Result<T, StoreError> {
        self.query_for(cmd, Duration::ZERO).await
    }

    /// As [`Dedicated::query`], for a command that blocks `longer` than foreseen.
    pub(super) async fn query_for<T: FromRedisValue>(
        &mut self,
        cmd: &Cmd,
        longer: Duration,
    ) -> Result<T, StoreError> {
        let what = name_of(cmd);
        let mut connection = self.take(&what)?;
        connection.set_response_timeout(self.response_timeout + longer);
        failpoint::pass(SEAM, &what, Side::Before);
        let reply = self.unless_another_master(cmd.query_async(&mut connection)).await;
        failpoint::pass(SEAM, &what, Side::After);
        self.put_back(&what, connection, reply)
    }

    /// Runs a command that may block, see [`Dedicated::query`], and a script as soon as that is over.
    pub(crate) async fn query_then<T: FromRedisValue>(
        &mut self,
        cmd: &Cmd,
        then: &Call<'_>,
    ) -> Result<(T, Value), StoreError> {
        let what = name_of(cmd);
        let mut connection = self.take(&what)?;
        let mut second = connection.clone();
        let names = || [what.as_str(), then.name()].into_iter();
        names().for_each(|name| failpoint::pass(SEAM, name, Side::Before));
        let both = async {
            // They are sent in this order.
            let (reply, then) =
                tokio::join!(cmd.query_async(&mut connection), then.invoke_async::<Value>(&mut second));
            Ok((reply?, then?))
        };
        let reply = self.unless_another_master(both).await;
        names().for_each(|name| failpoint::pass(SEAM, name, Side::After));
        self.put_back(&what, connection, reply)
    }

    /// Runs a script by its hash; Redis is given its text when it does not know it. Perhaps another script, and a command
    /// follow in the same breath: gives all answers, where those after the first may have failed alone.
    pub(super) async fn script_and<T: FromRedisValue>(
        &mut self,
        call: &Call<'_>,
        also: Option<&Call<'_>>,
        then: &Cmd,
    ) -> Result<(Value, Option<Value>, Option<T>), StoreError> {
        let what = call.name();
        let mut connection = self.take(what)?;
        let (mut second, mut third) = (connection.clone(), connection.clone());
        let names = || std::iter::once(what).chain(also.map(Call::name));
        names().for_each(|name| failpoint::pass(SEAM, name, Side::Before));
        let all = async {
            let also = async { also?.invoke_async::<Value>(&mut second).await.ok() };
            // They are sent in this order.
            let (reply, also, then) =
                tokio::join!(call.invoke_async(&mut connection), also, then.query_async(&mut third));
            reply.map(|reply| (reply, also, then.ok()))
        };
        let reply = self.unless_another_master(all).await;
        names().for_each(|name| failpoint::pass(SEAM, name, Side::After));
        self.put_back(what, connection, reply)
    }

    /// Whether it can still be used, as far as one can tell without asking.
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_some() && self.shared.in_term(self.term)
    }

    /// While a command runs the connection is in the future's hands alone: dropping the one closes the other.
    fn take(&mut self, what: &str) -> Result<Connection, StoreError> {
        let connection = self.connection.take();
        if !self.shared.in_term(self.term) {
            return Err(StoreError::NotMaster);
        }
        let why = "this connection was given up after an earlier failure; a new one is needed";
        connection.ok_or_else(|| Fault::lost(what, why).error)
    }

    async fn unless_another_master<T>(
        &self,
        command: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Option<RedisError>> {
        tokio::select! {
            biased;
            reply = command => reply.map_err(Some),
            () = self.shared.term_over(self.term) => Err(None),
        }
    }

    fn put_back<T>(
        &mut self,
        what: &str,
        connection: Connection,
        reply: Result<T, Option<RedisError>>,
    ) -> Result<T, StoreError> {
        match reply {
            Ok(value) => {
                self.connection = Some(connection);
                Ok(value)
            }
            Err(None) => Err(StoreError::NotMaster),
            Err(Some(error)) => {
                let fault = Fault::of(what, &error);
                self.shared.act_on_own(self.term, &fault);
                Err(fault.error)
            }
        }
    }
}
