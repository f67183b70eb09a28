//! A vendor that speaks HTTP/2 frame by frame, so that it knows what has reached it and can end connections at will.
//!
//! A library's server would not do: which requests it has taken for processed when it says GOAWAY, and which were still
//! on their way, is what the tests are about. The heads of requests are counted and not read.
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

const REFUSED_STREAM: u32 = 7;
const INTERNAL_ERROR: u32 = 2;

/// Which requests, or connections, meet what; 0 is never.
#[derive(Clone, Copy, Default)]
pub struct Troubles {
    /// Each so many-th request is told to go to `/` by a 307.
    pub moved_every: u64,
    /// … is answered with a 503.
    pub failed_every: u64,
    /// … is refused by REFUSED_STREAM.
    pub refused_every: u64,
    /// … is acted upon, and then reset.
    pub reset_every: u64,
    /// A connection ends by GOAWAY after so many requests, and every second one without the answers that it owes.
    pub goaway_after: u64,
    /// A connection takes so many requests, answers them, and disowns all others by a GOAWAY that names the last of them.
    pub disown_after: u64,
    /// The error code of that GOAWAY.
    pub goaway_code: u32,
}

/// What came of requests.
#[derive(Default)]
pub struct Counts {
    /// Heads that arrived.
    pub heads: AtomicU64,
    /// Those that the vendor did not disown: answered, or possibly acted upon.
    pub processed: AtomicU64,
    pub answered: AtomicU64,
    pub connections: AtomicU64,
    /// GOAWAYs that were said.
    pub goaways: AtomicU64,
    /// Streams below the last one of a GOAWAY that got no answer.
    pub cut: AtomicU64,
    /// Streams above it.
    pub disowned: AtomicU64,
    /// When each head arrived.
    pub arrivals: Mutex<Vec<std::time::Instant>>,
}

impl Counts {
    /// The most heads that arrived within any interval of this length.
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
                    let cuts = number % 2 == 1;
                    let connection = Connection {
                        stream,
                        troubles,
                        counts: &counts,
                        cuts,
                        heads: 0,
                        open: BTreeMap::new(),
                        out: Vec::new(),
                        last: None,
                        acknowledged: false,
                    };
                    // However it ends, it is counted.
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

struct Connection<'a, S> {
    stream: S,
    troubles: Troubles,
    counts: &'a Counts,
    /// Ends without the answers that it owes.
    cuts: bool,
    /// Requests of this connection.
    heads: u64,
    /// Streams without an answer, and whether their request is whole.
    open: BTreeMap<u32, bool>,
    out: Vec<u8>,
    /// The last stream that GOAWAY names, once it is said.
    last: Option<u32>,
    /// The client knows of the GOAWAY: no head is on its way any more.
    acknowledged: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    async fn run(mut self) -> io::Result<()> {
        let mut preface = [0; 24];
        self.stream.read_exact(&mut preface).await?;
        self.frame(SETTINGS, 0, 0, &[]);
        let mut input = Vec::new();
        let mut held = false;
        loop {
            // All that has come is taken in before anything is answered, so that several are open at once.
            let taken = self.take_in(&input);
            input.drain(..taken);
            if self.acknowledged && self.cuts {
                self.counts.cut.fetch_add(self.open.len() as u64, Relaxed);
                self.stream.write_all(&self.out).await?;
                return self.stream.shutdown().await;
            }
            let due = self.last.is_none() && self.troubles.goaway_after > 0 && self.heads >= self.troubles.goaway_after;
            // It is said in the middle of several. When no more come, that has to wait.
            let holds = due && self.open.len() < 4 && !held;
            if due && self.open.len() >= 4 {
                self.go_away();
            }
            if !holds {
                self.answer();
            }
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

    /// Takes whole frames, and returns how many bytes they are.
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
            SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]),
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
            // The client gave up on it.
            RST_STREAM => drop(self.open.remove(&id)),
            _ => {}
        }
    }

    fn head(&mut self, id: u32, whole: bool) {
        let number = self.counts.heads.fetch_add(1, Relaxed) + 1;
        #[expect(clippy::disallowed_methods, reason = "a test measures")]
        self.counts.arrivals.lock().unwrap().push(std::time::Instant::now());
        self.heads += 1;
        if self.last.is_none() && self.troubles.disown_after > 0 && self.heads > self.troubles.disown_after {
            // Client streams have odd numbers from 1 on.
            self.say_goaway(id - 2, self.troubles.goaway_code);
        }
        if self.last.is_some_and(|last| id > last) {
            // It was told so already, or will read it soon.
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

    /// Names a stream in the middle of those that are open: nothing was done for those above.
    fn go_away(&mut self) {
        let Some(&last) = self.open.keys().nth(self.open.len() / 2) else { return };
        let above = self.open.split_off(&(last + 1)).len() as u64;
        self.counts.processed.fetch_sub(above, Relaxed);
        self.counts.disowned.fetch_add(above, Relaxed);
        self.say_goaway(last, 0);
        // The client answers this after all that it had sent before it read the GOAWAY.
        self.frame(PING, 0, 0, b"all read");
    }

    fn say_goaway(&mut self, last: u32, code: u32) {
        self.counts.goaways.fetch_add(1, Relaxed);
        self.last = Some(last);
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend(code.to_be_bytes());
        self.frame(GOAWAY, 0, 0, &payload);
    }

    /// Answers what is whole.
    fn answer(&mut self) {
        if self.last.is_some() && self.cuts && self.troubles.disown_after == 0 {
            return;
        }
        let whole: Vec<u32> = self.open.iter().filter(|(_, whole)| **whole).map(|(id, _)| *id).collect();
        for id in whole {
            self.open.remove(&id);
            let number = self.counts.answered.fetch_add(1, Relaxed) + 1;
            let every = |n: u64| n > 0 && number.is_multiple_of(n);
            // HPACK, by the static table: status 200 is one byte; others are a literal behind the name's index. Nothing
            // enters the dynamic table.
            let head: &[u8] = if every(self.troubles.moved_every) {
                b"\x08\x03307\x0f\x1f\x01/"
            } else if every(self.troubles.failed_every) {
                b"\x08\x03503"
            } else {
                b"\x88"
            };
            self.frame(HEADERS, END_HEADERS | END_STREAM, id, head);
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        self.out.extend(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend([kind, flags]);
        self.out.extend(id.to_be_bytes());
        self.out.extend(payload);
    }
}
