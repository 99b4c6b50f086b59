//! Free loopback ports that stay free.
//!
//! A port from the system's ephemeral range can be taken by any outgoing connection while our
//! process is down for a restart, so ports are drawn at random from below that range, and one
//! process never hands out the same port twice.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// First port that is handed out: above the well-known ones and most fixed development ports.
const FIRST: u16 = 12_000;
/// One past the last: Linux' ephemeral range begins at 32768.
const END: u16 = 32_000;
/// Where [`free_from`] may begin when any port will do.
pub const SOME: u16 = 13_000;
const TRIES: usize = 1_000;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port of 127.0.0.1 that nobody listens on now and that this process has not handed out before.
///
/// # Errors
/// [`Error::Failed`] when a thousand random ports were all taken.
pub fn free() -> Result<u16> {
    for _ in 0..TRIES {
        let random = random()? % u64::from(END - FIRST);
        let port = FIRST + u16::try_from(random).expect("smaller than the range of a u16");
        if is_free(port) && remember(port) {
            return Ok(port);
        }
    }
    Err(Error::Failed {
        what: format!("no free port in {FIRST}..{END}"),
        log: None,
    })
}

/// The first free port at or after `port`: for processes whose first port the user chose.
///
/// # Errors
/// [`Error::Failed`] when there is none up to 65535.
pub fn free_from(port: u16) -> Result<u16> {
    (port..=u16::MAX)
        .find(|&port| is_free(port) && remember(port))
        .ok_or_else(|| Error::Failed {
            what: format!("no free port from {port} on"),
            log: None,
        })
}

/// Whether a listener could be opened on 127.0.0.1 at this port just now.
#[must_use]
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Random bits from the system.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Error::Other(format!("no random bits: {error}")))
}

/// Notes the port as handed out; false if it was already.
fn remember(port: u16) -> bool {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    given.get_or_insert_default().insert(port)
}
