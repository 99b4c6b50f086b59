//! Keeps the history in memory and in a file, one line an event.

use std::fs::File;
use std::io::{BufReader, BufWriter, Result, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Event, Kind};
use crate::clock;

/// Takes events from any number of clients at once. Clones share one history.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Kept>>);

#[derive(Debug)]
struct Kept {
    file: BufWriter<File>,
    events: Vec<Event>,
    /// The first write that failed; told at the end.
    failed: Option<std::io::Error>,
}

/// A question under way: holds when it was asked.
#[derive(Clone, Debug)]
pub struct Asking {
    recorder: Recorder,
    at_us: u64,
    client: String,
    principal: String,
    gateway: String,
}

impl Recorder {
    /// Begins a history in this file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Kept {
            file: BufWriter::new(File::create(path)?),
            events: Vec::new(),
            failed: None,
        }))))
    }

    /// Say this before the request is sent, and [`Asking::answered`] when its answer is there.
    #[must_use]
    pub fn asking(&self, client: &str, principal: &str, gateway: &str) -> Asking {
        Asking {
            recorder: self.clone(),
            at_us: clock::now_us(),
            client: client.to_owned(),
            principal: principal.to_owned(),
            gateway: gateway.to_owned(),
        }
    }

    /// A fault that began at `at_us` and is over now.
    pub fn fault(&self, at_us: u64, what: &str, target: &str) {
        let (what, target) = (what.to_owned(), target.to_owned());
        self.record(Event {
            at_us,
            until_us: clock::now_us(),
            client: "schedule".to_owned(),
            principal: String::new(),
            gateway: String::new(),
            kind: Kind::Fault { what, target },
        });
    }

    /// Keeps one event.
    pub fn record(&self, event: Event) {
        let line = serde_json::to_vec(&event);
        let mut kept = self.lock();
        let written = line.map_err(Into::into).and_then(|mut line| {
            line.push(b'\n');
            kept.file.write_all(&line)
        });
        if let Err(error) = written {
            kept.failed.get_or_insert(error);
        }
        kept.events.push(event);
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().events.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What there is so far, in no order.
    #[must_use]
    pub fn so_far(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// The whole history, in the order in which things were asked; it begins anew.
    ///
    /// # Errors
    /// When a part of it could not be written to the file.
    pub fn finish(&self) -> Result<Vec<Event>> {
        let mut kept = self.lock();
        kept.file.flush()?;
        if let Some(error) = kept.failed.take() {
            return Err(error);
        }
        let mut events = std::mem::take(&mut kept.events);
        events.sort_by_key(|event| (event.at_us, event.until_us));
        Ok(events)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    /// The answer is there, or will not come.
    pub fn answered(self, kind: Kind) {
        self.recorder.record(Event {
            at_us: self.at_us,
            until_us: clock::now_us(),
            client: self.client,
            principal: self.principal,
            gateway: self.gateway,
            kind,
        });
    }
}

/// Reads a history from its file. A last line that was cut short is left out.
///
/// # Errors
/// When the file cannot be read, or another line is no event.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let mut events: Vec<Event> = crate::lines::read(BufReader::new(File::open(path)?))?;
    events.sort_by_key(|event| (event.at_us, event.until_us));
    Ok(events)
}
