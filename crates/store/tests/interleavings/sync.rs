//! What the product takes from `std` and `tokio`, on the scheduler's own primitives.

pub(crate) use shuttle::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;

/// One value from one sender to one receiver; either may go away.
pub(crate) mod oneshot {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use shuttle::sync::{Arc, Mutex};

    struct Slot<T> {
        value: Option<T>,
        sender_gone: bool,
        receiver_gone: bool,
        waker: Option<Waker>,
    }

    pub(crate) struct Sender<T>(Arc<Mutex<Slot<T>>>);
    pub(crate) struct Receiver<T>(Arc<Mutex<Slot<T>>>);

    #[derive(Debug)]
    pub(crate) struct Closed;

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let slot = Arc::new(Mutex::new(Slot {
            value: None,
            sender_gone: false,
            receiver_gone: false,
            waker: None,
        }));
        (Sender(Arc::clone(&slot)), Receiver(slot))
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, value: T) -> Result<(), T> {
            let mut slot = self.0.lock().unwrap();
            if slot.receiver_gone {
                return Err(value);
            }
            slot.value = Some(value);
            Ok(())
        }

        pub(crate) fn is_closed(&self) -> bool {
            self.0.lock().unwrap().receiver_gone
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            let waker = {
                let mut slot = self.0.lock().unwrap();
                slot.sender_gone = true;
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            self.0.lock().unwrap().receiver_gone = true;
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, Closed>;

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            let mut slot = self.0.lock().unwrap();
            if let Some(value) = slot.value.take() {
                return Poll::Ready(Ok(value));
            }
            if slot.sender_gone {
                return Poll::Ready(Err(Closed));
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }
}
