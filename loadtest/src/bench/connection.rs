//! One HTTP/1.1 connection of a client that costs little, because it shares the cores with what it
//! measures: requests are bytes made beforehand, and of an answer only its frame is read.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEADERS: usize = 32;
const ROOM: usize = 8 * 1024;

/// A connection. One request at a time.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// What was read, up to the end of the last read.
    read: Vec<u8>,
    /// Where in `read` the next answer begins.
    from: usize,
    body: Vec<u8>,
}

/// How an answer is framed.
struct Head {
    status: u16,
    /// Bytes of the head.
    len: usize,
    body: Body,
}

enum Body {
    Length(usize),
    Chunks,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If nobody listens there.
    pub async fn open(at: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            stream,
            read: Vec::new(),
            from: 0,
            body: Vec::new(),
        })
    }

    /// Sends a request and reads the whole answer; its status. The body is then in [`Connection::body`].
    ///
    /// # Errors
    /// If the connection breaks, or what comes is no answer.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        self.body.clear();
        match head.body {
            Body::Length(length) => {
                while self.read.len() - self.from < length {
                    self.more().await?;
                }
                let all = &self.read[self.from..self.from + length];
                self.body.extend_from_slice(all);
                self.from += length;
            }
            Body::Chunks => while self.chunk().await? {},
        }
        Ok(head.status)
    }

    /// The body of the last answer; the data of all chunks.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the last answer holds this text.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        memchr::memmem::find(&self.body, text.as_bytes()).is_some()
    }

    /// Sends a request whose answer is a stream, and reads its head.
    ///
    /// # Errors
    /// As [`Connection::ask`], or if the answer is no stream.
    pub async fn begin(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        self.body.clear();
        match head.body {
            Body::Chunks if head.status == 200 => Ok(()),
            Body::Chunks | Body::Length(_) => Err(io::Error::other(format!(
                "a stream was asked for, and answered with {}",
                head.status
            ))),
        }
    }

    /// The data of the next event of a stream, without comments; `None` at its end.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn event(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            while let Some(end) = memchr::memmem::find(&self.body, b"\n\n") {
                let event: Vec<u8> = self.body.drain(..end + 2).collect();
                let data: Vec<u8> = event
                    .split(|byte| *byte == b'\n')
                    .filter_map(|line| line.strip_prefix(b"data:"))
                    .flatten()
                    .copied()
                    .collect();
                if !data.is_empty() {
                    return Ok(Some(data));
                }
            }
            if !self.chunk().await? {
                return Ok(None);
            }
        }
    }

    async fn head(&mut self) -> io::Result<Head> {
        self.read.drain(..self.from);
        self.from = 0;
        loop {
            if let Some(head) = head(&self.read)? {
                self.from = head.len;
                return Ok(head);
            }
            self.more().await?;
        }
    }

    /// Adds the next chunk to the body; false if it was the last one.
    async fn chunk(&mut self) -> io::Result<bool> {
        if self.from > ROOM {
            self.read.drain(..self.from);
            self.from = 0;
        }
        loop {
            let rest = &self.read[self.from..];
            let size = httparse::parse_chunk_size(rest)
                .map_err(|_| io::Error::other("an answer's chunk has no size"))?;
            if let httparse::Status::Complete((head, length)) = size {
                let length = usize::try_from(length).map_err(io::Error::other)?;
                if rest.len() >= head + length + 2 {
                    self.body.extend_from_slice(&rest[head..head + length]);
                    self.from += head + length + 2;
                    return Ok(length > 0);
                }
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        self.read.reserve(ROOM);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn head(read: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(read).map_err(io::Error::other)?;
    let httparse::Status::Complete(len) = parsed else {
        return Ok(None);
    };
    let mut body = Body::Length(0);
    for header in answer.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(header.value).map_err(io::Error::other)?;
            body = Body::Length(length.trim().parse().map_err(io::Error::other)?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            body = Body::Chunks;
        }
    }
    Ok(Some(Head {
        status: answer.code.unwrap_or_default(),
        len,
        body,
    }))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Answers every request of one connection with these bytes, in pieces.
    async fn server(pieces: &'static [&'static str]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio_util::task::TaskTracker::new().spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0_u8; 1];
            while stream.read_exact(&mut asked).await.is_ok() {
                for piece in pieces {
                    stream.write_all(piece.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        at
    }

    #[tokio::test]
    async fn answers_are_read_whole_however_they_come() {
        const WHOLE: &[&str] = &["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhel", "lo"];
        let at = server(WHOLE).await;
        let mut connection = Connection::open(at).await.unwrap();
        for _ in 0..2 {
            assert_eq!(connection.ask(b"?").await.unwrap(), 200);
            assert_eq!(connection.body(), b"hello");
        }
        const CHUNKS: &[&str] = &[
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nda",
            "ta:\r\n2\r\nx\n\r\n1\r",
            "\n\n\r\n0\r\n\r\n",
        ];
        let at = server(CHUNKS).await;
        let mut connection = Connection::open(at).await.unwrap();
        assert_eq!(connection.ask(b"?").await.unwrap(), 200);
        assert_eq!(connection.body(), b"data:x\n\n");
        connection.begin(b"?").await.unwrap();
        assert_eq!(connection.event().await.unwrap().unwrap(), b"x");
        assert_eq!(connection.event().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        let at = server(&["SSH-2.0\r\n\r\n"]).await;
        let mut connection = Connection::open(at).await.unwrap();
        assert!(connection.ask(b"?").await.is_err());
    }
}
