//! Below HTTP: bytes on a socket, for requests that no HTTP library would send.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Error, Result};

/// A plain TCP connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
}

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Io`] if it is refused.
    pub async fn connect(address: SocketAddr) -> Result<Socket> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(Error::io(format!("connect to {address}")))?;
        stream
            .set_nodelay(true)
            .map_err(Error::io("set TCP_NODELAY"))?;
        Ok(Socket { stream })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the other side has closed.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(Error::io("write to a socket"))
    }

    /// Sends the bytes one by one with a pause before each: a slow client.
    ///
    /// # Errors
    /// As [`Socket::write`].
    pub async fn write_slowly(&mut self, bytes: &[u8], pause: Duration) -> Result<()> {
        for byte in bytes {
            tokio::time::sleep(pause).await;
            self.write(&[*byte]).await?;
        }
        Ok(())
    }

    /// Closes our half; the other side may still answer.
    ///
    /// # Errors
    /// [`Error::Io`] if the other side has closed.
    pub async fn half_close(&mut self) -> Result<()> {
        self.stream
            .shutdown()
            .await
            .map_err(Error::io("half-close a socket"))
    }

    /// Everything until the other side closes, or what had come when `within` is over.
    pub async fn read_to_end(&mut self, within: Duration) -> Vec<u8> {
        let mut all = Vec::new();
        // A reset after the answer is an end like any other.
        let _ = tokio::time::timeout(within, self.stream.read_to_end(&mut all)).await;
        all
    }
}

/// Sends these bytes on a new connection and returns everything that comes back until the other side
/// closes or `within` is over.
///
/// # Errors
/// [`Error::Io`] if the connection is refused.
pub async fn exchange(address: SocketAddr, bytes: &[u8], within: Duration) -> Result<Vec<u8>> {
    let mut socket = Socket::connect(address).await?;
    // The server may answer and close before it has read all of a bad request.
    let _ = socket.write(bytes).await;
    Ok(socket.read_to_end(within).await)
}
