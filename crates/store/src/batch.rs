//! Coalesces concurrent questions: one round trip for all that wait, no added wait when idle.
//!
//! A lone question is asked at once. While its round trip is in flight the next ones gather; when it
//! is back, the first of them asks for all, up to a number and a weight. Only a crowd begins a further round
//! trip beside it, or somebody who has waited for too long: a few questions cost the server more in two
//! statements than in one. Whoever leads does it inside its own request, so nothing is spawned; a leader that is dropped half way fails nobody, because its
//! followers notice and ask again. Those who went away before their turn are not asked for.
//!
//! Architecture invariant: knows neither Postgres nor time, so that tests can run it in every
//! order of events (`tests/interleavings`).

use std::collections::VecDeque;

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError, oneshot};

/// Bounds of the coalescing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Questions in one round trip, at most.
    pub(crate) batch_max: usize,
    /// What the questions of one round trip weigh, at most, but that one is asked whatever it weighs.
    pub(crate) weight_max: usize,
    /// Round trips in flight, at most.
    pub(crate) in_flight_max: usize,
    /// So many wait before a round trip begins beside another one.
    pub(crate) crowd: usize,
    /// Questions that wait for a round trip, at most.
    pub(crate) waiting_max: usize,
}

/// What came of a question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked<A> {
    /// Its answer.
    Answered(A),
    /// The round trip failed, or whoever led it was dropped: ask alone, and see the error oneself.
    Alone,
    /// As many wait as may: it was not asked.
    Full,
}

/// What somebody who waits is told.
enum Told<Q, A> {
    /// The answer to its question.
    Answer(A),
    /// To ask for itself and for those who wait; its question is given back.
    Lead(Turn<Q, A>, Q),
}

type Waiting<Q, A> = (Q, oneshot::Sender<Told<Q, A>>);

/// How a question enters.
enum Entered<Q, A> {
    Lead(Turn<Q, A>, Q),
    Wait(oneshot::Receiver<Told<Q, A>>),
    Full,
}

struct Book<Q, A> {
    waiting: VecDeque<Waiting<Q, A>>,
    in_flight: usize,
}

/// The questions of a process that wait for a round trip.
pub(crate) struct Batches<Q, A> {
    book: Arc<Mutex<Book<Q, A>>>,
    limits: Limits,
    weigh: fn(&Q) -> usize,
}

impl<Q, A> Clone for Batches<Q, A> {
    fn clone(&self) -> Self {
        Self {
            book: Arc::clone(&self.book),
            limits: self.limits,
            weigh: self.weigh,
        }
    }
}

impl<Q, A> Batches<Q, A> {
    /// `weigh`: what a question weighs.
    pub(crate) fn new(limits: Limits, weigh: fn(&Q) -> usize) -> Self {
        let book = Book {
            waiting: VecDeque::new(),
            in_flight: 0,
        };
        Self {
            book: Arc::new(Mutex::new(book)),
            limits,
            weigh,
        }
    }

    /// The answer to a question, asked together with those that wait beside it. `round_trip`
    /// answers in the order of the questions. Whoever waits until `impatient`, and again each time after that,
    /// lets another round trip begin if one more may: one that hangs shall not hold up those who came after it.
    /// Whoever has the turn waits for `pause` before it looks who asks with it.
    pub(crate) async fn ask<F, P, E>(
        &self,
        question: Q,
        impatient: impl Fn() -> P,
        pause: impl Future<Output = ()>,
        round_trip: impl Fn(Vec<Q>) -> F,
    ) -> Asked<A>
    where
        F: Future<Output = Result<Vec<A>, E>>,
        P: Future<Output = ()>,
    {
        let (turn, own) = match self.enter(question) {
            Entered::Lead(turn, question) => (turn, question),
            Entered::Wait(told) => match self.told(told, impatient).await {
                Some(Told::Answer(answer)) => return Asked::Answered(answer),
                Some(Told::Lead(turn, question)) => (turn, question),
                None => return Asked::Alone,
            },
            Entered::Full => return Asked::Full,
        };
        // A crowd is company enough.
        if self.lock().waiting.len() + 1 < self.limits.crowd {
            pause.await;
        }
        let mut questions = vec![own];
        let mut followers = Vec::new();
        self.gather(&mut questions, &mut followers);
        // Beside the future: all of those who wait would carry the room for it.
        let answers = Box::pin(round_trip(questions)).await;
        // The next round trip begins before anybody looks at this one's answers.
        drop(turn);
        // On an error the followers are dropped, and everyone asks by themselves.
        let Ok(answers) = answers else {
            return Asked::Alone;
        };
        let mut answers = answers.into_iter();
        let own = answers.next();
        for (follower, answer) in followers.into_iter().zip(answers) {
            // Whoever asked may be gone.
            let _ = follower.send(Told::Answer(answer));
        }
        own.map_or(Asked::Alone, Asked::Answered)
    }

    /// What somebody who waits is told; `None`: whoever asked for it failed or is gone.
    async fn told<P: Future<Output = ()>>(
        &self,
        mut told: oneshot::Receiver<Told<Q, A>>,
        impatient: impl Fn() -> P,
    ) -> Option<Told<Q, A>> {
        loop {
            tokio::select! {
                biased;
                told = &mut told => return told.ok(),
                () = impatient() => {}
            }
            let begins = {
                let mut book = self.lock();
                let begins = book.in_flight < self.limits.in_flight_max;
                book.in_flight += usize::from(begins);
                begins
            };
            if begins {
                self.hand_on(true);
            }
        }
    }

    /// Takes a turn, or joins those who wait, if there is room.
    fn enter(&self, question: Q) -> Entered<Q, A> {
        let mut book = self.lock();
        let limits = self.limits;
        let crowded =
            book.in_flight < limits.in_flight_max && book.waiting.len() + 1 >= limits.crowd;
        if book.in_flight == 0 || crowded {
            book.in_flight += 1;
            return Entered::Lead(Turn(Some(self.clone())), question);
        }
        if book.waiting.len() >= limits.waiting_max {
            // Those who went away take nobody's place.
            book.waiting.retain(|(_, told)| !told.is_closed());
            if book.waiting.len() >= limits.waiting_max {
                return Entered::Full;
            }
        }
        let (tell, told) = oneshot::channel();
        book.waiting.push_back((question, tell));
        Entered::Wait(told)
    }

    /// Those who are asked for beside whoever leads, in the order in which they came.
    fn gather(&self, questions: &mut Vec<Q>, followers: &mut Vec<oneshot::Sender<Told<Q, A>>>) {
        let mut weight: usize = questions.iter().map(self.weigh).sum();
        let mut book = self.lock();
        while questions.len() < self.limits.batch_max
            && let Some((question, told)) = book.waiting.pop_front()
        {
            if told.is_closed() {
                continue;
            }
            weight = weight.saturating_add((self.weigh)(&question));
            if weight > self.limits.weight_max {
                book.waiting.push_front((question, told));
                return;
            }
            questions.push(question);
            followers.push(told);
        }
    }

    /// Gives a turn to who waits longest.
    fn hand_on(&self, beside: bool) {
        while let Some((question, told)) = self.next(beside) {
            let turn = Turn(Some(self.clone()));
            match told.send(Told::Lead(turn, question)) {
                Err(Told::Lead(mut back, _)) => back.0 = None,
                Ok(()) | Err(Told::Answer(_)) => return,
            }
        }
    }

    /// Who leads next, `beside` another round trip or where that makes sense; `None`: nobody, and one less is
    /// in flight.
    fn next(&self, beside: bool) -> Option<Waiting<Q, A>> {
        let mut book = self.lock();
        if beside || book.in_flight == 1 || book.waiting.len() >= self.limits.crowd {
            while let Some((question, told)) = book.waiting.pop_front() {
                if !told.is_closed() {
                    return Some((question, told));
                }
            }
        }
        book.in_flight -= 1;
        None
    }

    fn lock(&self) -> MutexGuard<'_, Book<Q, A>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A round trip that may be made. Dropped, however that comes, it goes to who waits.
struct Turn<Q, A>(Option<Batches<Q, A>>);

impl<Q, A> Drop for Turn<Q, A> {
    fn drop(&mut self) {
        if let Some(batches) = self.0.take() {
            batches.hand_on(false);
        }
    }
}
