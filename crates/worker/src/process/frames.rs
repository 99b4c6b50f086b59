//! What worker and supervisor say to each other: a kind, a length, and so many bytes.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const HEAD_BYTES: usize = 5;
/// Room for one read.
const READ_BYTES: usize = 64 * 1024;
/// Longer than any frame; a longer one comes from a stranger.
const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// From worker to supervisor. The end of the stream means [`Order::Kill`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Part of the command's standard input.
    Input(Bytes),
    /// There is no more of it.
    InputEnd,
    /// The command may live until then: `CLOCK_MONOTONIC` in microseconds. The first one starts
    /// it.
    Live { until_us: u64 },
    /// Each process of the command may have so much address space. Before the first `Live`.
    Memory { bytes: u64 },
    /// Ask all to end, and kill what is left after so many milliseconds.
    Terminate { grace_ms: u64 },
    /// Kill all now.
    Kill,
}

/// From supervisor to worker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It lives. The mark is in the environment of whatever it starts.
    Ready { mark: String },
    /// The command runs.
    Started,
    /// Part of its standard output, where the worker does not read that itself.
    Output(Bytes),
    /// The command could not be started, or the supervisor not do its duty (`errno` 0).
    Refused { errno: i32, message: String },
    /// It ends, and has started nothing.
    Idle,
    /// The command and all that it started are gone. `status` as `wait(2)` gives it.
    Gone { status: i32, how: How },
}

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Nobody had asked it to.
    ByItself,
    /// It was asked, or killed.
    Stopped,
}

pub(super) trait Frame: Sized {
    fn kind(&self) -> u8;
    fn body(&self) -> Bytes;
    fn decode(kind: u8, body: Bytes) -> Option<Self>;

    fn encode(&self, into: &mut BytesMut) {
        let body = self.body();
        into.put_u8(self.kind());
        into.put_u32(u32::try_from(body.len()).expect("frames are far shorter than 4 GiB"));
        into.extend_from_slice(&body);
    }
}

fn number(value: u64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

impl Frame for Order {
    fn kind(&self) -> u8 {
        match self {
            Self::Input(_) => b'I',
            Self::InputEnd => b'E',
            Self::Live { .. } => b'L',
            Self::Memory { .. } => b'M',
            Self::Terminate { .. } => b'T',
            Self::Kill => b'K',
        }
    }

    fn body(&self) -> Bytes {
        match self {
            Self::Input(bytes) => bytes.clone(),
            Self::Live { until_us: value }
            | Self::Memory { bytes: value }
            | Self::Terminate { grace_ms: value } => number(*value),
            Self::InputEnd | Self::Kill => Bytes::new(),
        }
    }

    fn decode(kind: u8, mut body: Bytes) -> Option<Self> {
        Some(match kind {
            b'I' => Self::Input(body),
            b'E' => Self::InputEnd,
            b'L' => Self::Live {
                until_us: body.try_get_u64().ok()?,
            },
            b'M' => Self::Memory {
                bytes: body.try_get_u64().ok()?,
            },
            b'T' => Self::Terminate {
                grace_ms: body.try_get_u64().ok()?,
            },
            b'K' => Self::Kill,
            _ => return None,
        })
    }
}

impl Frame for Report {
    fn kind(&self) -> u8 {
        match self {
            Self::Ready { .. } => b'R',
            Self::Started => b'S',
            Self::Output(_) => b'O',
            Self::Refused { .. } => b'N',
            Self::Idle => b'0',
            Self::Gone { .. } => b'G',
        }
    }

    fn body(&self) -> Bytes {
        match self {
            Self::Ready { mark } => Bytes::from(mark.clone()),
            Self::Output(bytes) => bytes.clone(),
            Self::Started | Self::Idle => Bytes::new(),
            Self::Refused { errno, message } => {
                let mut body = BytesMut::new();
                body.put_i32(*errno);
                body.extend_from_slice(message.as_bytes());
                body.freeze()
            }
            Self::Gone { status, how } => {
                let mut body = BytesMut::new();
                body.put_i32(*status);
                body.put_u8(match how {
                    How::ByItself => b'i',
                    How::Stopped => b's',
                });
                body.freeze()
            }
        }
    }

    fn decode(kind: u8, mut body: Bytes) -> Option<Self> {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        Some(match kind {
            b'R' => Self::Ready { mark: text(&body) },
            b'S' => Self::Started,
            b'O' => Self::Output(body),
            b'N' => Self::Refused {
                errno: body.try_get_i32().ok()?,
                message: text(&body),
            },
            b'0' => Self::Idle,
            b'G' => Self::Gone {
                status: body.try_get_i32().ok()?,
                how: match body.try_get_u8().ok()? {
                    b'i' => How::ByItself,
                    b's' => How::Stopped,
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

/// Takes frames off a stream. Waiting for the next one may be given up and taken up again.
#[derive(Default)]
pub(super) struct Frames(BytesMut);

impl Frames {
    /// The next frame; `None` when the stream ended.
    ///
    /// # Errors
    /// When the stream broke, or holds anything else.
    pub(super) async fn next<F: Frame>(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<F>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            self.0.reserve(READ_BYTES);
            if from.read_buf(&mut self.0).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take<F: Frame>(&mut self) -> io::Result<Option<F>> {
        let stranger = || io::Error::new(io::ErrorKind::InvalidData, "this is no frame of ours");
        let Some(mut head) = self.0.get(..HEAD_BYTES) else {
            return Ok(None);
        };
        let (kind, bytes) = (head.get_u8(), head.get_u32());
        let bytes = usize::try_from(bytes).map_err(|_| stranger())?;
        if bytes > FRAME_BYTES_MAX {
            return Err(stranger());
        }
        if self.0.len() < HEAD_BYTES + bytes {
            return Ok(None);
        }
        self.0.advance(HEAD_BYTES);
        let body = self.0.split_to(bytes).freeze();
        F::decode(kind, body).ok_or_else(stranger).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_survive_any_cut() {
        let orders = [
            Order::Input(Bytes::from_static(b"some input")),
            Order::InputEnd,
            Order::Live { until_us: u64::MAX },
            Order::Memory { bytes: 1 << 30 },
            Order::Terminate { grace_ms: 5 },
            Order::Kill,
        ];
        let mut sent = BytesMut::new();
        for order in &orders {
            order.encode(&mut sent);
        }
        for cut in 0..sent.len() {
            let (mut first, mut second) = (&sent[..cut], &sent[cut..]);
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            while let Some(order) = frames.next::<Order>(&mut first).await.unwrap() {
                seen.push(order);
            }
            while let Some(order) = frames.next::<Order>(&mut second).await.unwrap() {
                seen.push(order);
            }
            assert_eq!(seen, orders, "cut at {cut}");
        }
    }

    #[tokio::test]
    async fn reports_come_as_they_were_sent() {
        let reports = [
            Report::Ready {
                mark: "m".to_owned(),
            },
            Report::Started,
            Report::Output(Bytes::from_static(b"some output")),
            Report::Refused {
                errno: 2,
                message: "no such file".to_owned(),
            },
            Report::Idle,
            Report::Gone {
                status: 9,
                how: How::Stopped,
            },
            Report::Gone {
                status: 0,
                how: How::ByItself,
            },
        ];
        let mut sent = BytesMut::new();
        for report in &reports {
            report.encode(&mut sent);
        }
        let (mut frames, mut sent) = (Frames::default(), &sent[..]);
        for report in reports {
            assert_eq!(
                frames.next::<Report>(&mut sent).await.unwrap(),
                Some(report)
            );
        }
        assert_eq!(frames.next::<Report>(&mut sent).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_stranger_is_refused() {
        for stranger in [&b"?\0\0\0\0"[..], b"I\xff\xff\xff\xff", b"L\0\0\0\x01x"] {
            let mut from = stranger;
            assert!(Frames::default().next::<Order>(&mut from).await.is_err());
        }
    }
}
