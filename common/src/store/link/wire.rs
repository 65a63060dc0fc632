//! The seam of the link: what carries commands, which is a connection of the redis crate, or a [`Wire`] of whoever
//! wants to be the network and the server itself. The schedule explorer does, and decides the order of all commands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Arg, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::time::timeout;

/// A command: its words.
pub type Words = Vec<Vec<u8>>;
/// Tells whoever listens to a channel what was said there.
pub type Ear = Box<dyn Fn(&str, Bytes) + Send + Sync>;

/// What carries commands to a Redis, in the place of a network.
pub trait Wire: Send + Sync + 'static {
    /// A new connection. Dropping the line closes it.
    fn open(&self) -> Arc<dyn Line>;

    /// From now on `ear` is to be told of messages. An empty one says that some may have been missed.
    fn listen(&self, ear: Ear);
}

/// One connection: what is sent over it is answered in the order in which it was sent.
pub trait Line: Send + Sync {
    /// Sends commands in one go; gives an answer to each. Dropping the future does not take back what was sent.
    fn send(&self, commands: Vec<Words>) -> BoxFuture<'static, io::Result<Vec<Value>>>;
}

/// A connection to the master.
#[derive(Clone)]
pub(super) enum Connection {
    Redis(MultiplexedConnection),
    Wire { line: Arc<dyn Line>, response_timeout: Duration },
}

impl Connection {
    pub(super) fn set_response_timeout(&mut self, limit: Duration) {
        match self {
            Self::Redis(connection) => connection.set_response_timeout(limit),
            Self::Wire { response_timeout, .. } => *response_timeout = limit,
        }
    }
}

async fn send(line: &dyn Line, commands: Vec<Words>, limit: Duration) -> RedisResult<Vec<Value>> {
    match timeout(limit, line.send(commands)).await {
        Ok(replies) => Ok(replies?),
        Err(_) => Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut))),
    }
}

fn words(command: &Cmd) -> Words {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(word) => word.to_vec(),
        // The cursor of an iterator over a SCAN, at its beginning; nothing here makes one.
        _ => b"0".to_vec(),
    };
    command.args_iter().map(word).collect()
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Redis(connection) => connection.req_packed_command(command),
            Self::Wire { line, response_timeout } => Box::pin(async move {
                let replies = send(&**line, vec![words(command)], *response_timeout).await?;
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
            // No verb is a transaction: each that has to be one is a script.
            Self::Wire { line, response_timeout } => {
                Box::pin(send(&**line, pipeline.cmd_iter().map(words).collect(), *response_timeout))
            }
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Redis(connection) => connection.get_db(),
            Self::Wire { .. } => 0,
        }
    }
}
