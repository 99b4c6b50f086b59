//! Moves the bytes of one connection.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::{Lost, Mode, Shared, State, reset};

const CHUNK_BYTES: usize = 16 * 1024;

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The sender closed its half.
    Closed,
    /// It is to be reset.
    Reset,
    /// It is to stay dead but open.
    Dead,
}

/// Moves bytes both ways until both sides have closed or the mode ends it.
pub(super) async fn both_ways(
    client: TcpStream,
    server: TcpStream,
    mut state: watch::Receiver<State>,
    shared: &Shared,
) {
    let born = *state.borrow();
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // Set by a request whose reply is to be lost.
    let doomed = AtomicBool::new(false);
    let pump = || Pump {
        state: state.clone(),
        shared,
        doomed: &doomed,
        seen: (0, 0),
    };
    let (mut up, mut down) = (pump(), pump());
    let end = {
        let moved = async {
            let there = up.run(&mut from_client, &mut to_server, Pump::request);
            let back = down.run(&mut from_server, &mut to_client, Pump::reply);
            tokio::pin!(there, back);
            tokio::select! {
                end = &mut there => if end == End::Closed { back.await } else { end },
                end = &mut back => if end == End::Closed { there.await } else { end },
            }
        };
        tokio::select! {
            end = async { End::Dead }, if born.mode == Mode::HalfOpen => end,
            end = moved, if born.mode != Mode::HalfOpen => end,
            end = ended_by_mode(&mut state, born) => end,
        }
    };
    if end == End::Dead {
        // The server sees an end, the client sees nothing until it is cut or the proxy goes.
        drop((from_server, to_server));
        let _ = state.wait_for(|now| now.cuts != born.cuts).await;
    }
    if end != End::Closed {
        reset(to_client.as_ref());
    }
}

/// Waits until the mode ends a connection that was made in the state `born`.
async fn ended_by_mode(state: &mut watch::Receiver<State>, born: State) -> End {
    let over = |now: &State| now.cuts != born.cuts || now.vanishings != born.vanishings;
    match state.wait_for(over).await {
        Ok(now) if now.cuts == born.cuts => End::Dead,
        _ => End::Reset,
    }
}

/// What becomes of a chunk.
enum Fate {
    Passes,
    /// It does not, and the connection is reset.
    Reset,
    /// It does not, and nothing follows it.
    Held,
}

struct Pump<'a> {
    state: watch::Receiver<State>,
    shared: &'a Shared,
    doomed: &'a AtomicBool,
    /// How many texts of which arming this connection's requests have contained.
    seen: (u64, usize),
}

impl Pump<'_> {
    /// Moves one direction. `look` sees every chunk and says what becomes of it.
    async fn run(
        &mut self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        look: fn(&mut Self, &[u8]) -> Fate,
    ) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let Ok(count) = from.read(&mut chunk).await else {
                return End::Reset;
            };
            self.hold().await;
            if count == 0 {
                let _ = to.shutdown().await;
                return End::Closed;
            }
            match look(self, &chunk[..count]) {
                Fate::Passes if to.write_all(&chunk[..count]).await.is_ok() => {}
                Fate::Passes | Fate::Reset => return End::Reset,
                // Ended by the mode, or by the server.
                Fate::Held => std::future::pending().await,
            }
        }
    }

    /// Waits for as long as the mode holds back what was just read.
    async fn hold(&mut self) {
        let mode = self.state.borrow_and_update().mode;
        match mode {
            Mode::Delay(by) => tokio::time::sleep(by).await,
            // An error means that the proxy has gone, which ends the connection elsewhere.
            Mode::Stall => drop(self.state.wait_for(|state| state.mode != Mode::Stall).await),
            Mode::Pass | Mode::Cut | Mode::HalfOpen => {}
        }
    }

    fn request(&mut self, bytes: &[u8]) -> Fate {
        let mut swallow = self
            .shared
            .swallow
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(armed) = swallow.as_ref() else {
            return Fate::Passes;
        };
        if self.seen.0 != armed.number {
            self.seen = (armed.number, 0);
        }
        let mut rest = bytes;
        while let Some(needle) = armed.needles.get(self.seen.1) {
            let Some(after) = after(rest, needle) else {
                return Fate::Passes;
            };
            rest = after;
            self.seen.1 += 1;
        }
        let lost = armed.lost;
        *swallow = None;
        match lost {
            Lost::Request => Fate::Held,
            Lost::Reply => {
                self.doomed.store(true, Ordering::SeqCst);
                Fate::Passes
            }
        }
    }

    fn reply(&mut self, _: &[u8]) -> Fate {
        if !self.doomed.load(Ordering::SeqCst) {
            return Fate::Passes;
        }
        self.shared.swallowed.send_modify(|count| *count += 1);
        Fate::Reset
    }
}

/// What follows the needle; `None` if it is not there.
fn after<'a>(bytes: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    if needle.is_empty() {
        return Some(bytes);
    }
    let mut windows = bytes.windows(needle.len());
    let at = windows.position(|window| window == needle)?;
    Some(&bytes[at + needle.len()..])
}
