//! A vendor that speaks HTTP/2 frame by frame, so that it knows which requests have reached it and can end connections
//! at any point.
//!
//! A library's server is not enough, because the tests depend on which requests were processed at a GOAWAY and which
//! were still on their way. The heads of requests are counted, but not parsed.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test crate uses a part of it")]

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The names of settings.
const MAX_CONCURRENT_STREAMS: u8 = 3;
const INITIAL_WINDOW_SIZE: u8 = 4;

const REFUSED_STREAM: u32 = 7;
const INTERNAL_ERROR: u32 = 2;

/// Which requests or connections meet which trouble. 0 means never.
#[derive(Clone, Copy, Default)]
pub struct Troubles {
    /// Every n-th request is redirected to `/` by a 307.
    pub moved_every: u64,
    /// Every n-th request is answered with a 503.
    pub failed_every: u64,
    /// Every n-th request is refused with REFUSED_STREAM.
    pub refused_every: u64,
    /// Every n-th request is processed, and its stream is then reset.
    pub reset_every: u64,
    /// A connection ends with a GOAWAY after this many requests; every second connection does not answer the requests
    /// that are open then, unless `answers_open` is set.
    pub goaway_after: u64,
    pub answers_open: bool,
    /// A connection answers this many requests, and disowns all further ones by a GOAWAY that names the last of these.
    pub disown_after: u64,
    /// The error code of that GOAWAY.
    pub goaway_code: u32,
    /// The streams that a connection may have open at once.
    pub most_streams: u32,
    /// How many of the first responses have a body that never ends: the vendor sends `endless_bytes` bytes of it, as far as
    /// the client's windows allow. The responses after them have the body `xx`. If this is 0, no response has a body.
    pub endless_bodies: u64,
    pub endless_bytes: usize,
}

/// Counts of requests by their outcome.
#[derive(Default)]
pub struct Counts {
    /// Request heads that arrived.
    pub heads: AtomicU64,
    /// Requests that the vendor did not disown or refuse: it answered them, or may have acted on them.
    pub processed: AtomicU64,
    pub answered: AtomicU64,
    pub connections: AtomicU64,
    /// GOAWAY frames that were sent.
    pub goaways: AtomicU64,
    /// Streams up to the last one of a GOAWAY that got no response.
    pub cut: AtomicU64,
    /// Streams above the last one of a GOAWAY.
    pub disowned: AtomicU64,
    /// Bytes of bodies that were sent.
    pub body_bytes: AtomicU64,
    /// When each head arrived.
    pub arrivals: Mutex<Vec<std::time::Instant>>,
}

impl Counts {
    /// The largest number of heads that arrived within any interval of this length.
    pub fn most_within(&self, length: Duration) -> usize {
        let arrivals = self.arrivals.lock().unwrap();
        let from = |first: usize| arrivals[first..].iter().take_while(|at| **at - arrivals[first] < length).count();
        (0..arrivals.len()).map(from).max().unwrap_or(0)
    }
}

pub struct Http2Vendor {
    pub address: SocketAddr,
    pub counts: Arc<Counts>,
    task: tokio::task::JoinHandle<()>,
}

impl Http2Vendor {
    pub async fn start(acceptor: TlsAcceptor, troubles: Troubles) -> Http2Vendor {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        #[expect(clippy::disallowed_methods, reason = "a server of its own")]
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (acceptor, counts) = (acceptor.clone(), shared.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let number = counts.connections.fetch_add(1, Relaxed);
                    let cuts = number % 2 == 1 && !troubles.answers_open;
                    let connection = Connection {
                        stream,
                        troubles,
                        counts: &counts,
                        cuts,
                        heads: 0,
                        open: BTreeMap::new(),
                        bodies: BTreeMap::new(),
                        window: FIRST_WINDOW,
                        window_of_streams: FIRST_WINDOW,
                        out: Vec::new(),
                        last: None,
                        acknowledged: false,
                    };
                    // Errors are ignored, because the counts contain everything that happened before.
                    let _ = connection.run().await;
                });
            }
        });
        Http2Vendor { address, counts, task }
    }
}

impl Drop for Http2Vendor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The window of a connection, and of its streams, before the client states another.
const FIRST_WINDOW: i64 = 65_535;

/// A response's body that is being sent.
struct OutgoingBody {
    /// How many more bytes the client allows on the stream.
    window: i64,
    left: usize,
    ends: bool,
}

struct Connection<'a, S> {
    stream: S,
    troubles: Troubles,
    counts: &'a Counts,
    /// Whether the connection ends without answering its open requests.
    cuts: bool,
    /// The number of requests on this connection.
    heads: u64,
    /// The streams without a response, and whether their request is complete.
    open: BTreeMap<u32, bool>,
    /// The responses whose bodies have not ended.
    bodies: BTreeMap<u32, OutgoingBody>,
    /// How many more bytes of bodies the client allows on the connection, and on a new stream.
    window: i64,
    window_of_streams: i64,
    out: Vec<u8>,
    /// The last stream that the GOAWAY names, once it was sent.
    last: Option<u32>,
    /// Whether the client has read the GOAWAY, so that no more heads are on their way.
    acknowledged: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(mut self) -> io::Result<()> {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface).await?;
        let most = self.troubles.most_streams.to_be_bytes();
        let settings = [&[0, MAX_CONCURRENT_STREAMS][..], &most].concat();
        self.frame(SETTINGS, 0, 0, if self.troubles.most_streams > 0 { &settings } else { &[] });
        let mut input = Vec::new();
        let mut held = false;
        loop {
            // Reads all input before it answers a request, so that several requests are open at once.
            let taken = self.take_in(&input);
            input.drain(..taken);
            if self.acknowledged && self.cuts {
                self.counts.cut.fetch_add(self.open.len() as u64, Relaxed);
                self.stream.write_all(&self.out).await?;
                return self.stream.shutdown().await;
            }
            let due = self.last.is_none() && self.troubles.goaway_after > 0 && self.heads >= self.troubles.goaway_after;
            // The GOAWAY is sent while at least four requests are open. Until then the responses are held back, but
            // only for 5 ms if no more requests come.
            let holds = due && self.open.len() < 4 && !held;
            if due && self.open.len() >= 4 {
                self.go_away();
            }
            if !holds {
                self.answer();
            }
            self.send_bodies();
            self.stream.write_all(&std::mem::take(&mut self.out)).await?;
            self.stream.flush().await?;
            let patience = if holds { Duration::from_millis(5) } else { Duration::from_secs(3600) };
            held = match tokio::time::timeout(patience, self.stream.read_buf(&mut input)).await {
                Ok(Ok(0)) => return Ok(()),
                Ok(Ok(_)) => false,
                Ok(Err(error)) => return Err(error),
                Err(_) => true,
            };
        }
    }

    /// Processes all complete frames, and returns their length in bytes.
    fn take_in(&mut self, input: &[u8]) -> usize {
        let mut at = 0;
        while let Some(head) = input.get(at..at + 9) {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let (kind, flags, id) = (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
            let Some(payload) = input.get(at + 9..at + 9 + length) else { break };
            self.receive(kind, flags, id, payload);
            at += 9 + length;
        }
        at
    }

    fn receive(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for setting in payload.chunks_exact(6).filter(|setting| setting[..2] == [0, INITIAL_WINDOW_SIZE]) {
                    self.window_of_streams = figure(&setting[2..]);
                }
                self.frame(SETTINGS, ACK, 0, &[]);
            }
            WINDOW_UPDATE if id == 0 => self.window += figure(payload),
            WINDOW_UPDATE => {
                if let Some(body) = self.bodies.get_mut(&id) {
                    body.window += figure(payload);
                }
            }
            PING if flags & ACK == 0 => {
                let payload = payload.to_vec();
                self.frame(PING, ACK, 0, &payload);
            }
            PING => self.acknowledged = true,
            HEADERS => self.head(id, flags & END_STREAM != 0),
            DATA => {
                if !payload.is_empty() {
                    self.frame(WINDOW_UPDATE, 0, 0, &(payload.len() as u32).to_be_bytes());
                }
                if flags & END_STREAM != 0
                    && let Some(whole) = self.open.get_mut(&id)
                {
                    *whole = true;
                }
            }
            // The client gave up on the stream.
            RST_STREAM => {
                self.open.remove(&id);
                self.bodies.remove(&id);
            }
            _ => {}
        }
    }

    fn head(&mut self, id: u32, whole: bool) {
        let number = self.counts.heads.fetch_add(1, Relaxed) + 1;
        #[expect(clippy::disallowed_methods, reason = "a test measures")]
        self.counts.arrivals.lock().unwrap().push(std::time::Instant::now());
        self.heads += 1;
        if self.last.is_none() && self.troubles.disown_after > 0 && self.heads > self.troubles.disown_after {
            // Streams of a client have odd numbers, so `id - 2` is the one before.
            self.say_goaway(id - 2, self.troubles.goaway_code);
        }
        if self.last.is_some_and(|last| id > last) {
            // The client has read the GOAWAY already, or will read it soon.
            self.counts.disowned.fetch_add(1, Relaxed);
            return;
        }
        let every = |n: u64| n > 0 && number.is_multiple_of(n);
        if every(self.troubles.refused_every) {
            return self.frame(RST_STREAM, 0, id, &REFUSED_STREAM.to_be_bytes());
        }
        self.counts.processed.fetch_add(1, Relaxed);
        if every(self.troubles.reset_every) {
            return self.frame(RST_STREAM, 0, id, &INTERNAL_ERROR.to_be_bytes());
        }
        self.open.insert(id, whole);
    }

    /// Sends a GOAWAY that names a stream in the middle of the open ones. Nothing was done for the streams above.
    fn go_away(&mut self) {
        let Some(&last) = self.open.keys().nth(self.open.len() / 2) else { return };
        let above = self.open.split_off(&(last + 1)).len() as u64;
        self.counts.processed.fetch_sub(above, Relaxed);
        self.counts.disowned.fetch_add(above, Relaxed);
        self.say_goaway(last, 0);
        // The client's response to this ping comes after all frames that it sent before it read the GOAWAY.
        self.frame(PING, 0, 0, b"all read");
    }

    fn say_goaway(&mut self, last: u32, code: u32) {
        self.counts.goaways.fetch_add(1, Relaxed);
        self.last = Some(last);
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend(code.to_be_bytes());
        self.frame(GOAWAY, 0, 0, &payload);
    }

    /// Answers all complete requests.
    fn answer(&mut self) {
        if self.last.is_some() && self.cuts && self.troubles.disown_after == 0 {
            return;
        }
        let whole: Vec<u32> = self.open.iter().filter(|(_, whole)| **whole).map(|(id, _)| *id).collect();
        for id in whole {
            self.open.remove(&id);
            let number = self.counts.answered.fetch_add(1, Relaxed) + 1;
            let every = |n: u64| n > 0 && number.is_multiple_of(n);
            // HPACK with the static table: status 200 is one byte; other statuses are a literal after the index of the
            // name. Nothing enters the dynamic table.
            let head: &[u8] = if every(self.troubles.moved_every) {
                b"\x08\x03307\x0f\x1f\x01/"
            } else if every(self.troubles.failed_every) {
                b"\x08\x03503"
            } else {
                b"\x88"
            };
            if self.troubles.endless_bodies == 0 {
                self.frame(HEADERS, END_HEADERS | END_STREAM, id, head);
                continue;
            }
            self.frame(HEADERS, END_HEADERS, id, head);
            let ends = number > self.troubles.endless_bodies;
            let left = if ends { 2 } else { self.troubles.endless_bytes };
            self.bodies.insert(id, OutgoingBody { window: self.window_of_streams, left, ends });
        }
    }

    /// Sends what the client's windows allow of the bodies.
    fn send_bodies(&mut self) {
        for (id, mut body) in std::mem::take(&mut self.bodies) {
            while body.left > 0 && body.window.min(self.window) > 0 {
                let most = body.window.min(self.window).min(16_384) as usize;
                let size = body.left.min(most);
                body.left -= size;
                body.window -= size as i64;
                self.window -= size as i64;
                self.counts.body_bytes.fetch_add(size as u64, Relaxed);
                let is_last = body.ends && body.left == 0;
                self.frame(DATA, if is_last { END_STREAM } else { 0 }, id, &vec![b'x'; size]);
            }
            if body.left > 0 || !body.ends {
                self.bodies.insert(id, body);
            }
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend([kind, flags]);
        self.out.extend(id.to_be_bytes());
        self.out.extend(payload);
    }
}

/// The figure in four bytes.
fn figure(bytes: &[u8]) -> i64 {
    i64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
