//! Live events, as a body that stays open for up to five minutes. Every quarter of a second it sends the events that
//! have happened since, 50 events a second at most.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::feed::Wanted;
use super::reply::{self, Failed, Reply};
use super::shared::Shared;
use crate::clock::Time;
use crate::error::BoxError;
use crate::ingress::gateway::answer::GatewayBody;

const EVERY: Duration = Duration::from_millis(250);
/// The most events in one piece, which is about 50 a second.
const MOST: usize = 12;
/// The number of past events with which a stream begins.
const BACK: usize = 50;
/// After this many intervals without an event an empty piece is sent, so that both sides notice a lost connection.
const BEAT: u32 = 60;
/// How long a stream lasts. Then the page opens a new one, for which the rights of its user are checked again.
const LASTS: Duration = Duration::from_secs(300);

/// The condition under which a stream goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alive {
    /// The session with this digest of its id still exists.
    Session([u8; 32]),
    /// No condition. A token is checked again with the next stream only.
    Token,
}

struct Live {
    shared: Arc<Shared>,
    wanted: Wanted,
    alive: Alive,
    place: u64,
    ends: Time,
    quiet: u32,
    tick: Interval,
    /// The permit for one of the streams that may be open at the same time.
    _place: OwnedSemaphorePermit,
}

/// Begins a stream.
pub(super) fn open(shared: &Arc<Shared>, wanted: Wanted, alive: Alive) -> Result<Reply, Failed> {
    let Ok(permit) = shared.streams.clone().try_acquire_owned() else {
        return Err(Failed::new(StatusCode::SERVICE_UNAVAILABLE, "too many look at events already"));
    };
    let core = shared.client.core();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let live = Live {
        place: shared.feed.place(core, BACK, &wanted),
        ends: core.clock.now() + LASTS,
        shared: shared.clone(),
        wanted,
        alive,
        quiet: 0,
        tick,
        _place: permit,
    };
    Ok(reply::events(GatewayBody::live(live)))
}

impl Live {
    fn is_over(&self, now: Time) -> bool {
        let has_session = match &self.alive {
            Alive::Session(id) => self.shared.sessions.lock().find(now, id).is_some(),
            Alive::Token => true,
        };
        now >= self.ends || !has_session || self.shared.closed.load(Relaxed)
    }

    /// Returns the next piece: the events since the last one, in the form of server-sent events. `None` if there is
    /// nothing to send.
    fn piece(&mut self) -> Option<String> {
        let (read, place) = self.shared.feed.read(self.shared.client.core(), self.place, MOST, &self.wanted);
        let is_first = self.quiet == 0;
        self.place = place;
        let mut text = String::new();
        for event in read.events {
            let json = serde_json::to_string(&*event).unwrap_or_default();
            let _ = write!(text, "data: {json}\n\n");
        }
        if read.more > 0 {
            let _ = write!(text, "data: {{\"event\":\"more\",\"count\":{}}}\n\n", read.more);
        }
        self.quiet += 1;
        if text.is_empty() && (is_first || self.quiet >= BEAT) {
            text.push_str(":\n\n");
        }
        if !text.is_empty() {
            self.quiet = 1;
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

impl Body for Live {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.tick.poll_tick(cx).is_ready() {
            if self.is_over(self.shared.client.core().clock.now()) {
                return Poll::Ready(None);
            }
            if let Some(piece) = self.piece() {
                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
            }
        }
        Poll::Pending
    }
}
