//! The queue in front of the sink: bounded, high priority first, first come first within one.
//!
//! The only place that knows async-priority-channel, which does less than it seems to. Within a priority it keeps no
//! order, so each letter brings its number. A receiver can be told "closed" while a letter that was taken is still
//! inside, and a send can succeed after the drainer has seen "closed": so there is one consumer, and a gate of our own.
//! A send passes the gate and enters the queue under one lock; whoever has shut the gate knows that every producer has
//! left, and only then is the channel closed. The consumer ends when it is told so and nothing is left.

use std::cmp::Reverse;

use async_priority_channel as channel;
use parking_lot::Mutex;

use super::DeadLetter;

/// The greatest is next: the lowest tier number, and then the lowest letter number.
type Turn = (Reverse<u8>, Reverse<u64>);

/// Where letters go in.
pub(super) struct Entrance {
    sender: channel::Sender<Box<DeadLetter>, Turn>,
    gate: Mutex<Gate>,
}

struct Gate {
    open: bool,
    /// The number of the next letter.
    next: u64,
}

/// Where letters come out.
pub(super) struct Exit {
    receiver: channel::Receiver<Box<DeadLetter>, Turn>,
}

/// Why a letter was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// A queue of at most `capacity` letters.
pub(super) fn bounded(capacity: usize) -> (Entrance, Exit) {
    // Zero makes the channel panic.
    let (sender, receiver) = channel::bounded(capacity.max(1) as u64);
    (Entrance { sender, gate: Mutex::new(Gate { open: true, next: 0 }) }, Exit { receiver })
}

impl Entrance {
    /// Takes the letter or gives it back, at once.
    pub(super) fn push(&self, letter: Box<DeadLetter>) -> Result<(), (Box<DeadLetter>, Refused)> {
        let mut gate = self.gate.lock();
        if !gate.open {
            return Err((letter, Refused::Closed));
        }
        let turn = (Reverse(letter.priority.tier()), Reverse(gate.next));
        match self.sender.try_send(letter, turn) {
            Ok(()) => {
                gate.next += 1;
                Ok(())
            }
            Err(channel::TrySendError::Full((letter, _))) => Err((letter, Refused::Full)),
            Err(channel::TrySendError::Closed((letter, _))) => Err((letter, Refused::Closed)),
        }
    }

    /// Takes nothing more. What is inside comes out.
    pub(super) fn shut(&self) {
        // Under the lock, so that no producer is between the gate and the channel.
        let mut gate = self.gate.lock();
        gate.open = false;
        self.sender.close();
    }
}

impl Exit {
    /// The next letter; waits for one. `None` when the entrance is shut and nothing is left.
    pub(super) async fn pop(&self) -> Option<Box<DeadLetter>> {
        loop {
            match self.receiver.recv().await {
                Ok((letter, _)) => return Some(letter),
                Err(_) if self.is_empty() => return None,
                // Told "closed" too early: closing is the last thing that happened, so this ends.
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
