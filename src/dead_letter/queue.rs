//! The queue in front of the sink: bounded, by priority, and first come first served within a priority.
//!
//! Only this module uses async-priority-channel, which guarantees less than it seems to. It keeps no order within a
//! priority, so each letter carries a sequence number. A receiver can get "closed" while the channel still holds a
//! letter, and a send can succeed after the receiver has got "closed". So there is a single consumer, and a gate of our
//! own: a send checks the gate and enters the channel under one lock. Once the gate is shut, no producer is in between,
//! and only then is the channel closed. The consumer ends when the channel is closed and empty.

use std::cmp::Reverse;

use async_priority_channel as channel;
use parking_lot::Mutex;

use super::DeadLetter;

/// The order of letters; the greatest comes first, which is the lowest tier number, and then the lowest sequence
/// number.
type Turn = (Reverse<u8>, Reverse<u64>);

/// The sending side of the queue.
pub(super) struct Entrance {
    sender: channel::Sender<Box<DeadLetter>, Turn>,
    gate: Mutex<Gate>,
}

struct Gate {
    open: bool,
    /// The sequence number of the next letter.
    next: u64,
}

/// The receiving side of the queue.
pub(super) struct Exit {
    receiver: channel::Receiver<Box<DeadLetter>, Turn>,
}

/// Why a letter was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// A queue of at most `capacity` letters.
pub(super) fn bounded(capacity: usize) -> (Entrance, Exit) {
    // The channel panics at a capacity of zero.
    let (sender, receiver) = channel::bounded(capacity.max(1) as u64);
    (Entrance { sender, gate: Mutex::new(Gate { open: true, next: 0 }) }, Exit { receiver })
}

impl Entrance {
    /// Queues the letter, or returns it with the reason. Never waits.
    pub(super) fn push(&self, letter: Box<DeadLetter>) -> Result<(), (Box<DeadLetter>, Refused)> {
        let mut gate = self.gate.lock();
        if !gate.open {
            return Err((letter, Refused::Closed));
        }
        let turn = (Reverse(letter.priority.rank()), Reverse(gate.next));
        match self.sender.try_send(letter, turn) {
            Ok(()) => {
                gate.next += 1;
                Ok(())
            }
            Err(channel::TrySendError::Full((letter, _))) => Err((letter, Refused::Full)),
            Err(channel::TrySendError::Closed((letter, _))) => Err((letter, Refused::Closed)),
        }
    }

    /// Accepts no more letters. Those in the queue can still be received.
    pub(super) fn shut(&self) {
        // Under the lock, so that no producer is between the gate and the channel.
        let mut gate = self.gate.lock();
        gate.open = false;
        self.sender.close();
    }
}

impl Exit {
    /// Waits for the next letter. `None` when the queue is closed and empty.
    pub(super) async fn pop(&self) -> Option<Box<DeadLetter>> {
        loop {
            match self.receiver.recv().await {
                Ok((letter, _)) => return Some(letter),
                Err(_) if self.is_empty() => return None,
                // The channel reported "closed" too early. The close is the last change of the channel, so this loop
                // ends.
                Err(_) => {}
            }
        }
    }

    /// The next letter, if there is one.
    pub(super) fn pop_now(&self) -> Option<Box<DeadLetter>> {
        self.receiver.try_recv().ok().map(|(letter, _)| letter)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.receiver.len() == 0
    }
}
