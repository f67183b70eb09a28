//! Listeners and connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::answer::RestSlot;
use super::door::{Door, Shutdown};
use super::listen::{At, Listen};
use super::problem::Problem;
use super::shared::Shared;
#[cfg(unix)]
use super::socket_file::{self, SocketFile};
use super::wire::{Busy, Wire};
use crate::error::Error;

/// Largest total size of a request's headers.
const HEAD_BYTES: usize = 64 * 1024;
/// The least time between two log lines about connections that cannot be accepted.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Connections that the system holds for the gateway until it accepts them. A caller opens as many at once as it has
/// workers. With tokio's 128, Linux resets some of several hundred while the process is busy.
const BACKLOG: u32 = 4_096;
/// How long requests refused at the end of a shutdown have to receive their responses.
const LAST: Duration = Duration::from_secs(2);

/// A gateway that listens. Dropping it ends the gateway and all its connections at once.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    shutdown: Arc<Shutdown>,
    address: Option<SocketAddr>,
    lanes: Vec<SocketAddr>,
    token: Option<String>,
    phase: watch::Sender<Phase>,
    tasks: JoinSet<()>,
    /// The console's work in the background. It does not end while the gateway has another listener, so a shutdown does
    /// not wait for it.
    background: JoinSet<()>,
    #[cfg(unix)]
    socket: Option<Arc<SocketFile>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// The gateway accepts no new connections; each open connection ends with its current request.
    Closing,
}

impl Serving {
    /// The address on which the gateway listens; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The addresses of the lanes, in the order in which [`Listen::lane`] named them.
    pub fn lanes(&self) -> &[SocketAddr] {
        &self.lanes
    }

    /// The base URL for an SDK that calls `vendor` on behalf of `tenant`; for a Unix socket, only the URL's path.
    pub fn base_url(&self, tenant: &str, vendor: &str) -> String {
        let host = self.address.map(|address| format!("http://{address}")).unwrap_or_default();
        format!("{host}/{tenant}/{vendor}")
    }

    /// The token that the gateway generated because the configuration states no callers. SDKs use it as their API key,
    /// and the console asks for it. It is valid as long as this gateway runs, for all tenants and vendors.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Reports from now on that the gateway is not ready (`/~/readyz`), so that load balancers stop sending to it. The
    /// gateway still serves requests.
    pub fn drain(&self) {
        self.shutdown.draining.store(true, Relaxed);
    }

    /// Shuts these listeners down: refuses new connections, and lets requests go on for `grace`. Requests that still
    /// wait for a permit then are answered 503 as not sent; those that the vendor has end with 422 if they may act
    /// twice when they are sent again, and with 503 otherwise. Returns whether all requests had ended within `grace`.
    /// The client keeps running, and so does what else the gateway serves.
    pub async fn shutdown(mut self, grace: Duration) -> bool {
        self.drain();
        if let Some(console) = &self.shared.console
            && self.shared.servings.load(Relaxed) == 1
        {
            console.close();
        }
        self.phase.send_replace(Phase::Closing);
        let tasks = &mut self.tasks;
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_ok() {
            return true;
        }
        self.shutdown.over.send_replace(true);
        let tasks = &mut self.tasks;
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST, all).await;
        false
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // The listener's task has removed the file, or is still there.
        #[cfg(unix)]
        if let Some(file) = &self.socket {
            file.remove();
        }
        self.shared.servings.fetch_sub(1, Relaxed);
    }
}

/// Binds the addresses and starts to accept connections.
pub(super) async fn start(shared: Arc<Shared>, listen: Listen) -> Result<Serving, Error> {
    let has_callers = !shared.client.config().current().callers().is_empty();
    let addresses = listen.lanes.iter().map(|(address, ..)| *address).chain(match &listen.at {
        At::Tcp(address) => Some(*address),
        At::Unix(_) => None,
    });
    if let Some(open) = addresses.into_iter().find(|address| !address.ip().is_loopback()) {
        if !shared.asks_for_tokens {
            let why =
                format!("a gateway that asks for no token would be open to all who reach {open}; listen on 127.0.0.1");
            return Err(Error::config(why));
        }
        if !has_callers {
            let why =
                format!("the configuration states no [[callers]], and {open} is not loopback; state who may call");
            return Err(Error::config(why));
        }
    }
    let mut token = None;
    if (shared.asks_for_tokens || shared.console.is_some()) && !has_callers {
        let mut bytes = [0; 16];
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::config("the system has no random numbers for a token"))?;
        let made = format!("{:032x}", u128::from_be_bytes(bytes));
        shared.callers.add_own(&made);
        token = Some(made);
    }
    shared.client.core().telemetry.gateway.begin();
    let places = Arc::new(Semaphore::new(shared.max_connections));
    let (phase, phases) = watch::channel(Phase::Open);
    shared.servings.fetch_add(1, Relaxed);
    let shutdown = Arc::<Shutdown>::default();
    let mut serving = Serving {
        shared: shared.clone(),
        shutdown: shutdown.clone(),
        address: None,
        lanes: Vec::new(),
        token,
        phase,
        tasks: JoinSet::new(),
        background: JoinSet::new(),
        #[cfg(unix)]
        socket: None,
    };
    let accepting = |door: Door| {
        let door = Door { shutdown: shutdown.clone(), ..door };
        Accepting { shared: shared.clone(), places: places.clone(), phases: phases.clone(), door }
    };
    match &listen.at {
        At::Tcp(address) => {
            let (listener, address) = bind(*address)?;
            serving.address = Some(address);
            let door = Door { host: address.to_string().into(), ..Door::default() };
            serving.tasks.spawn(accepting(door).tcp(listener));
        }
        #[cfg(unix)]
        At::Unix(path) => {
            let (listener, file) = socket_file::bind(path).await.map_err(|error| failed(&path.display(), error))?;
            let file = Arc::new(file);
            serving.socket = Some(file.clone());
            serving.tasks.spawn(accepting(Door::default()).unix(listener, file));
        }
        #[cfg(not(unix))]
        At::Unix(_) => return Err(Error::config("this system has no Unix sockets")),
    }
    if let Some(console) = &shared.console {
        serving.background.spawn(console.run());
    }
    let registry = &shared.client.core().registry;
    for (address, tenant, vendor) in listen.lanes {
        if let Err(error) = registry.route(&tenant, &vendor) {
            let (tenant, vendor) = (&*tenant, &*vendor);
            tracing::warn!(%address, tenant, vendor, %error, "a lane listens for a tenant that is not configured (yet)");
        }
        let (listener, address) = bind(address)?;
        serving.lanes.push(address);
        let door = Door { lane: Some((tenant, vendor)), host: address.to_string().into(), ..Door::default() };
        serving.tasks.spawn(accepting(door).tcp(listener));
    }
    Ok(serving)
}

fn failed(at: &dyn std::fmt::Display, error: io::Error) -> Error {
    Error::config(format!("{at} cannot be listened on: {error}")).with_source(error)
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart may use the address of connections that have just ended. On Windows this would let another process
        // take the address.
        #[cfg(not(windows))]
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound().map_err(|error| failed(&address, error))
}

/// Accepts the connections of one listener.
#[derive(Clone)]
struct Accepting {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    phases: watch::Receiver<Phase>,
    door: Door,
}

impl Accepting {
    async fn tcp(self, listener: TcpListener) {
        let next = async move || {
            let (stream, peer) = listener.accept().await?;
            // Small responses must not wait for the acknowledgements of earlier ones (Nagle's algorithm).
            let _ = stream.set_nodelay(true);
            Ok((stream, Some(peer.ip())))
        };
        self.run(next, || {}).await;
    }

    #[cfg(unix)]
    async fn unix(self, listener: tokio::net::UnixListener, file: Arc<SocketFile>) {
        // The file goes first: then a successor finds neither the file nor the listener.
        self.run(async move || Ok((listener.accept().await?.0, None)), move || file.remove()).await;
    }

    /// Accepts connections, and calls `before_close` when it is about to close the listener.
    async fn run<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self,
        next: impl AsyncFn() -> io::Result<(S, Option<std::net::IpAddr>)>,
        before_close: impl FnOnce(),
    ) {
        let (mut connections, mut phases, mut warned_at) = (JoinSet::new(), self.phases.clone(), None);
        loop {
            tokio::select! {
                taken = next() => match taken {
                    Ok((stream, peer)) => match self.places.clone().try_acquire_owned() {
                        Ok(place) => {
                            let door = Door { peer, ..self.door.clone() };
                            let serving = serve(stream, self.shared.clone(), door, self.phases.clone());
                            let client = self.shared.client.clone();
                            connections.spawn(async move {
                                let _counted = client.core().telemetry.gateway.connection();
                                serving.await;
                                drop(place);
                            });
                        }
                        // Bounds how many connections may wait for their 503, so that refusing is no load itself.
                        Err(_) if connections.len() < self.shared.max_connections + 100 => {
                            self.shared.client.core().telemetry.gateway.turned_away();
                            connections.spawn(refuse(stream));
                        }
                        Err(_) => {}
                    },
                    // Usually the process has no free file handles; without this sleep the loop would spin.
                    Err(error) => {
                        let now = self.shared.client.core().clock.now();
                        if warned_at.is_none_or(|at| now.since(at) >= WARN_EVERY) {
                            warned_at = Some(now);
                            tracing::warn!(
                                %error,
                                "the gateway cannot accept connections; if it has no free file handles, raise `ulimit -n`"
                            );
                        }
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = closing(&mut phases) => break,
            }
        }
        before_close();
        // Closes the listener, so that the system refuses new connections from now on.
        drop(next);
        while connections.join_next().await.is_some() {}
    }
}

/// The response to a connection above `max_connections`.
fn full() -> Vec<u8> {
    let answer = Problem::no_connection().answer(None);
    let mut bytes = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n".to_vec();
    for (name, value) in answer.headers() {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(format!("content-length: {}\r\n\r\n", answer.body().len()).bytes());
    bytes.extend(answer.body());
    bytes
}

/// Responds 503 because the gateway has as many connections as it accepts, then reads on for a moment: if the gateway
/// closed the connection with unread bytes, the peer would get a reset before it could read the response.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let told = async {
        stream.write_all(&full()).await?;
        stream.shutdown().await?;
        let mut scratch = [0; 1024];
        while stream.read(&mut scratch).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    shared: Arc<Shared>,
    door: Door,
    mut phases: watch::Receiver<Phase>,
) {
    let busy = Arc::new(AtomicBool::new(false));
    let wire = Wire::new(stream, busy.clone(), shared.client.core().clock);
    let rest = RestSlot::default();
    let service = service_fn(|request| {
        // If hyper had dropped the body before without asking for its end, the rest of it would keep its permit for as
        // long as the caller keeps the connection.
        let unread = rest.lock().take();
        drop(unread);
        let (shared, door, busy, rest) = (&shared, &door, Busy::begin(&busy), rest.clone());
        // The connection counts as idle once the last byte of the response has been handed to hyper.
        async move { Ok::<_, Infallible>(shared.answer(request, door).await.map(|body| body.keeping(busy, rest))) }
    });
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None).max_header_size(HEAD_BYTES).max_buf_size(2 * HEAD_BYTES);
    {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(wire), service));
        let is_closing = tokio::select! {
            _ = connection.as_mut() => false,
            () = closing(&mut phases) => true,
        };
        if is_closing {
            connection.as_mut().graceful_shutdown();
            // An error means that the caller has disconnected, or that a body broke off.
            let _ = connection.await;
        }
    }
    // The connection has been dropped, and with it a body that its caller left.
    let left = rest.lock().take();
    if let Some(left) = left {
        // Boxed: few connections end so, and all of them would have room for it.
        Box::pin(left.settle()).await;
    }
}

/// Waits until the gateway accepts no more connections, or has been dropped.
async fn closing(phases: &mut watch::Receiver<Phase>) {
    let _ = phases.wait_for(|phase| *phase == Phase::Closing).await;
}
