//! A client's connection, by plain TCP or by TLS.

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// Boxed: a TLS session is ten times as large as a plain stream.
pub(crate) type ClientStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;
