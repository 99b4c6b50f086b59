//! An answer as `text/event-stream`: messages while something runs, a last one when it ends,
//! and comments in between so that proxies keep the connection.
//!
//! What runs belongs to the stream: when the client goes away, hyper drops the stream, and with
//! it everything that was done for that client. It runs in a task of its own all the same: a client that
//! takes nothing in (HTTP/2's window) keeps hyper from asking for more, and what runs may hold a
//! connection to Postgres, or ask for others, just then.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Sleep};

use crate::deliveries::Mark;

/// Messages that wait for a client that reads slowly.
pub(crate) const WAITING_MAX: usize = 32;

/// One JSON-RPC message, on one line.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) json: Bytes,
    /// What it means for a task that it was written.
    pub(crate) mark: Option<Mark>,
}

/// What runs behind a stream; gives the last message.
pub(crate) type Running = Pin<Box<dyn Future<Output = Message> + Send>>;

/// An open answer.
pub(crate) struct EventStream {
    first: Option<Message>,
    messages: mpsc::Receiver<Message>,
    /// Aborted when dropped.
    running: Option<JoinSet<Message>>,
    last: Option<Message>,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
    begun: bool,
    /// Of a message that is written in pieces.
    pub(crate) marked: Option<Mark>,
}

/// What a stream does next.
pub(crate) enum Next {
    Message(Message),
    Comment,
    End,
}

impl EventStream {
    /// A stream of `messages` while `running` runs.
    pub(crate) fn new(
        messages: mpsc::Receiver<Message>,
        running: Running,
        keep_alive: Duration,
    ) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(running);
        Self {
            running: Some(tasks),
            ..Self::of(messages, keep_alive)
        }
    }

    fn of(messages: mpsc::Receiver<Message>, keep_alive: Duration) -> Self {
        Self {
            first: None,
            messages,
            running: None,
            last: None,
            keep_alive,
            quiet: Box::pin(tokio::time::sleep(keep_alive)),
            begun: false,
            marked: None,
        }
    }

    /// The same stream, with a message that was taken from it already.
    pub(crate) fn beginning_with(mut self, first: Option<Message>) -> Self {
        self.first = first;
        self
    }

    /// A stream whose work has ended while messages still wait.
    pub(crate) fn ended(
        messages: mpsc::Receiver<Message>,
        last: Message,
        keep_alive: Duration,
    ) -> Self {
        Self {
            last: Some(last),
            ..Self::of(messages, keep_alive)
        }
    }

    /// The mark of the message whose pieces are being written, with the last of them.
    pub(crate) fn mark_of_last(&mut self, is_last: bool) -> Option<Mark> {
        self.marked.take_if(|_| is_last)
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Next> {
        let next = match self.poll_message(cx) {
            Poll::Ready(Some(message)) => Next::Message(message),
            Poll::Ready(None) => return Poll::Ready(Next::End),
            // The head of the answer leaves with the first bytes on some proxies.
            Poll::Pending if !self.begun => Next::Comment,
            Poll::Pending => match self.quiet.as_mut().poll(cx) {
                Poll::Ready(()) => Next::Comment,
                Poll::Pending => return Poll::Pending,
            },
        };
        self.begun = true;
        self.quiet.as_mut().reset(Instant::now() + self.keep_alive);
        // Registers the wake-up of the new deadline, should nothing else come before.
        let _ = self.quiet.as_mut().poll(cx);
        Poll::Ready(next)
    }

    /// Waiting messages come before the last one.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        if let Poll::Ready(Some(message)) = self.messages.poll_recv(cx) {
            return Poll::Ready(Some(message));
        }
        if let Some(running) = &mut self.running {
            match running.poll_join_next(cx) {
                Poll::Ready(ended) => {
                    self.running = None;
                    match ended.map(|ended| ended.map_err(JoinError::try_into_panic)) {
                        Some(Ok(last)) => self.last = Some(last),
                        // As if it had happened here.
                        Some(Err(Ok(panic))) => std::panic::resume_unwind(panic),
                        // The runtime ends, and this with it.
                        Some(Err(Err(_))) | None => {}
                    }
                }
                Poll::Pending => {
                    // It may have sent something just now.
                    return match self.messages.poll_recv(cx) {
                        Poll::Ready(Some(message)) => Poll::Ready(Some(message)),
                        Poll::Ready(None) | Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
        match self.messages.try_recv() {
            Ok(message) => Poll::Ready(Some(message)),
            Err(_) => Poll::Ready(self.last.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn message(json: &'static str) -> Message {
        Message {
            json: Bytes::from_static(json.as_bytes()),
            mark: None,
        }
    }

    async fn all(mut stream: EventStream) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            match poll_fn(|cx| stream.poll_next(cx)).await {
                Next::Message(message) => {
                    seen.push(String::from_utf8(message.json.to_vec()).unwrap());
                }
                Next::Comment => seen.push(":".to_owned()),
                Next::End => return seen,
            }
        }
    }

    #[tokio::test]
    async fn messages_come_before_the_last_one_however_fast_it_was() {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let running = Box::pin(async move {
            for json in ["1", "2", "3"] {
                sender.send(message(json)).await.unwrap();
            }
            message("last")
        });
        let stream = EventStream::new(receiver, running, Duration::from_secs(1));
        let stream = stream.beginning_with(Some(message("0")));
        assert_eq!(all(stream).await, ["0", "1", "2", "3", "last"]);
    }

    #[tokio::test]
    async fn a_full_channel_makes_the_work_wait() {
        let (sender, receiver) = mpsc::channel(1);
        let running = Box::pin(async move {
            for json in ["1", "2", "3"] {
                sender.send(message(json)).await.unwrap();
            }
            message("last")
        });
        let stream = EventStream::new(receiver, running, Duration::from_secs(1));
        // The head of the answer may leave before the first message is there.
        let seen = all(stream).await;
        let seen: Vec<_> = seen.iter().filter(|text| *text != ":").collect();
        assert_eq!(seen, ["1", "2", "3", "last"]);
    }

    #[tokio::test]
    async fn what_runs_goes_on_though_nobody_asks_for_more_and_ends_with_the_stream() {
        let (sender, receiver) = mpsc::channel(1);
        let (at, mut reached) = mpsc::unbounded_channel();
        let running = Box::pin(async move {
            at.send(()).unwrap();
            tokio::task::yield_now().await;
            at.send(()).unwrap();
            let _sender = sender;
            std::future::pending().await
        });
        let stream = EventStream::new(receiver, running, Duration::from_secs(1));
        assert_eq!(
            (reached.recv().await, reached.recv().await),
            (Some(()), Some(()))
        );
        drop(stream);
        assert_eq!(reached.recv().await, None, "it was dropped with the stream");
    }

    #[tokio::test]
    async fn comments_fill_the_silence() {
        let (_sender, receiver) = mpsc::channel(1);
        let running = Box::pin(async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            message("last")
        });
        let stream = EventStream::new(receiver, running, Duration::from_millis(100));
        let seen = all(stream).await;
        assert!(seen.len() >= 3 && seen[0] == ":", "{seen:?}");
        assert_eq!(seen.last().unwrap(), "last");
    }
}
