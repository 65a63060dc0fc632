//! Carriers of commands to Redis: the `redis` crate, or a [`Transport`], which the schedule simulator uses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Arg, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::time::timeout;

/// Name and arguments.
pub type RedisCommand = Vec<Vec<u8>>;
/// Channel and payload.
pub type MessageHandler = Box<dyn Fn(&str, Bytes) + Send + Sync>;

pub trait Transport: Send + Sync + 'static {
    /// Dropping it closes it.
    fn open(&self) -> Arc<dyn TransportConnection>;

    /// An empty payload means that messages may have been missed.
    fn listen(&self, handler: MessageHandler);
}

/// Replies arrive in the order of the commands.
pub trait TransportConnection: Send + Sync {
    /// One reply to each.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future does not take back sent commands.
    fn send(&self, commands: Vec<RedisCommand>) -> BoxFuture<'static, io::Result<Vec<Value>>>;
}

#[derive(Clone)]
pub(super) enum LinkConnection {
    Redis(MultiplexedConnection),
    Transport { connection: Arc<dyn TransportConnection>, response_timeout: Duration },
}

impl LinkConnection {
    pub(super) fn set_response_timeout(&mut self, limit: Duration) {
        match self {
            Self::Redis(connection) => connection.set_response_timeout(limit),
            Self::Transport { response_timeout, .. } => *response_timeout = limit,
        }
    }
}

async fn send(
    connection: &dyn TransportConnection,
    commands: Vec<RedisCommand>,
    limit: Duration,
) -> RedisResult<Vec<Value>> {
    match timeout(limit, connection.send(commands)).await {
        Ok(replies) => Ok(replies?),
        Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

fn to_arguments(command: &Cmd) -> RedisCommand {
    let argument = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => bytes.to_vec(),
        // The initial cursor of SCAN, which the store does not use.
        _ => b"0".to_vec(),
    };
    command.args_iter().map(argument).collect()
}

impl ConnectionLike for LinkConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Redis(connection) => connection.req_packed_command(command),
            Self::Transport { connection, response_timeout } => Box::pin(async move {
                let replies = send(&**connection, vec![to_arguments(command)], *response_timeout).await?;
                Ok(replies.into_iter().next().unwrap_or(Value::Nil))
            }),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Redis(connection) => connection.req_packed_commands(pipeline, offset, count),
            // Never a transaction: atomic changes are scripts.
            Self::Transport { connection, response_timeout } => {
                let commands = pipeline.cmd_iter().map(to_arguments).collect();
                Box::pin(send(&**connection, commands, *response_timeout))
            }
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Redis(connection) => connection.get_db(),
            Self::Transport { .. } => 0,
        }
    }
}
