//! Wraps a connection, and bounds how long it may stay open without progress.
//!
//! hyper's `header_read_timeout` also closes connections that are idle between two requests. Every SDK keeps idle
//! connections for a while, and a request that is sent just as the connection closes fails. So this wrapper allows ten
//! seconds for a request's head from its first byte, five minutes for a connection that is idle after a response, and
//! one minute for a reader that accepts no bytes of a response. A connection that has sent nothing yet is closed after
//! ten seconds: with five minutes too, a program that opens connections and uses none would lock all others out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::clock::{Clock, Time};

const HEAD: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(300);
const READER: Duration = Duration::from_secs(60);

/// Marks a connection as busy, from a request's head to the end of its response, until this value is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub(super) fn begin(connection: &Arc<AtomicBool>) -> Busy {
        connection.store(true, Relaxed);
        Busy(connection.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    /// Set and cleared by [`Busy`].
    busy: Arc<AtomicBool>,
    clock: Clock,
    /// How long the connection may send nothing.
    silence: Duration,
    /// What the connection waits for while no request is under way, and until when.
    awaits: Option<(Awaits, Time)>,
    /// Wakes the connection at the end of its wait or earlier. A wait does not set it anew unless it ends sooner: nearly
    /// all waits end by themselves, and each timer that is set takes the lock of the runtime's timers twice.
    alarm: Option<Pin<Box<Sleep>>>,
    writing: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    /// The first byte of a request.
    Request,
    /// The rest of a request's head.
    Head,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, busy: Arc<AtomicBool>, clock: Clock) -> Wire<S> {
        Wire { stream, busy, clock, silence: HEAD, awaits: None, alarm: None, writing: None }
    }

    /// Whether the wait has lasted too long; `has_come` if bytes have just arrived. Wakes the task when it has.
    fn is_over(&mut self, cx: &mut Context<'_>, has_come: bool) -> bool {
        let until = match self.awaits {
            // The timeout of a head runs from its first bytes; further bytes do not restart it.
            Some((Awaits::Head, until)) => until,
            Some((Awaits::Request, until)) if !has_come => until,
            _ => {
                let (what, time) = if has_come { (Awaits::Head, HEAD) } else { (Awaits::Request, self.silence) };
                let until = self.clock.now() + time;
                self.awaits = Some((what, until));
                until
            }
        };
        let at = self.clock.instant(until);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(HEAD)));
        if alarm.deadline() > at {
            alarm.as_mut().reset(at);
        }
        while alarm.as_mut().poll(cx).is_ready() {
            if self.clock.now() >= until {
                return true;
            }
            alarm.as_mut().reset(at);
        }
        false
    }
}

fn timed_out(what: &str) -> Poll<io::Result<()>> {
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what.to_owned())))
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if this.busy.load(Relaxed) {
            this.awaits = None;
            return read;
        }
        let has_come = buf.filled().len() > before;
        if this.is_over(cx, has_come) { timed_out("no request came in time") } else { read }
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Returns `written`, or an error if the reader has accepted no bytes for too long.
    fn unless_stuck<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            // These bytes are a response's. Whatever is awaited next belongs to another request.
            (self.silence, self.awaits) = (REST, None);
            return written;
        }
        match self.writing.get_or_insert_with(|| Box::pin(sleep(READER))).as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the answer was not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stuck(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.unless_stuck(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
