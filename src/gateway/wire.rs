//! A connection with bounds on how long it may hold a place without doing anything.
//!
//! hyper's own bound on heads also ends connections that rest between two requests, which every SDK keeps for a while: a
//! request that crosses that end fails. So a head gets ten seconds from its first byte, a resting connection five minutes,
//! and a reader that takes nothing of an answer one minute.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

const HEAD: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(300);
const READER: Duration = Duration::from_secs(60);

/// A request's head is in, and its answer is not out yet: until this is dropped.
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
    /// As [`Busy`] sets it.
    busy: Arc<AtomicBool>,
    reading: Option<(Pin<Box<Sleep>>, bool)>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, busy: Arc<AtomicBool>) -> Wire<S> {
        Wire { stream, busy, reading: None, writing: None }
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
            this.reading = None;
            return read;
        }
        // The first bytes of a head begin its time; more of them do not begin it anew.
        if buf.filled().len() > before && !matches!(this.reading, Some((_, true))) {
            this.reading = Some((Box::pin(sleep(HEAD)), true));
        }
        let (timer, _) = this.reading.get_or_insert_with(|| (Box::pin(sleep(REST)), false));
        if timer.as_mut().poll(cx).is_ready() { timed_out("no request came in time") } else { read }
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// `written`, or an error where the reader has taken nothing for too long.
    fn unless_stuck<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
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
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn head_has_ten_seconds_and_rest_five_minutes() {
        let clock = crate::clock::Clock::system();
        let began = clock.now();
        let (mut peer, ours) = duplex(64);
        let mut wire = Wire::new(ours, Arc::default());
        let mut buf = [0; 8];
        assert_eq!(wire.read(&mut buf).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(clock.now().since(began).as_secs(), 300);

        let (mut slow, ours) = duplex(64);
        let mut wire = Wire::new(ours, Arc::default());
        let began = clock.now();
        slow.write_all(b"G").await.unwrap();
        assert_eq!(wire.read(&mut buf).await.unwrap(), 1);
        tokio::time::advance(Duration::from_secs(6)).await;
        slow.write_all(b"E").await.unwrap();
        assert_eq!(wire.read(&mut buf).await.unwrap(), 1);
        assert_eq!(wire.read(&mut buf).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(clock.now().since(began).as_secs(), 10, "a byte now and then wins no time");
        peer.shutdown().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn reader_has_a_minute_for_each_piece() {
        let (_peer, ours) = duplex(4);
        let busy = Arc::new(AtomicBool::new(true));
        let mut wire = Wire::new(ours, busy);
        assert_eq!(wire.write(b"12345678").await.unwrap(), 4);
        assert_eq!(wire.write(b"5678").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
