//! The task that talks to ZooKeeper: one connection, on which the server answers requests in order.
//!
//! The task connects when there is a question and no connection. Each connection has a session of its own. No node of
//! the pool belongs to a session, so nothing is lost when a session ends, and an idle one may end.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::wire::{self, Reply, Request};
use crate::clock::{Clock, Time};

/// How long the server keeps a session on which nothing is sent, in milliseconds.
const SESSION_MS: i32 = 10_000;
/// The longest wait for one of several servers to open a session.
const CONNECT: Duration = Duration::from_secs(1);
/// The longest wait for an answer. A server that takes longer counts as unreachable. This time is shorter than a call
/// may take, so that the next call finds another server.
const WHOLE: Duration = Duration::from_millis(1_500);
/// The most questions that wait to be sent.
pub(super) const QUEUE: usize = 256;

/// The answers to a question's requests, in order.
type Answers = Result<Vec<Result<Bytes, i32>>, String>;

/// Requests that are sent one after the other, without requests of other questions in between.
pub(super) struct Question {
    pub(super) requests: Vec<Request>,
    pub(super) reply: oneshot::Sender<Answers>,
}

/// The servers to connect to, and the user to log in as.
#[derive(PartialEq, Eq)]
pub(super) struct Address {
    /// Each as `host:port`.
    pub(super) servers: Vec<String>,
    pub(super) user: Option<(String, String)>,
}

/// Omits the user and the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("servers", &self.servers).finish_non_exhaustive()
    }
}

pub(super) struct Task {
    address: Address,
    questions: mpsc::Receiver<Question>,
    clock: Clock,
}

/// A question that has been sent.
struct Sent {
    reply: oneshot::Sender<Answers>,
    answers: Vec<Result<Bytes, i32>>,
    missing: usize,
    /// The number of the request that the server answers next.
    xid: i32,
    until: Time,
}

/// A connection with a session.
struct Session {
    stream: TcpStream,
    received: BytesMut,
    xid: i32,
}

impl Task {
    pub(super) fn new(address: Address, questions: mpsc::Receiver<Question>, clock: Clock) -> Task {
        Task { address, questions, clock }
    }

    /// Runs until every sender of questions is dropped.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.questions.recv().await {
            if first.reply.is_closed() {
                continue;
            }
            match self.connect().await {
                Ok(session) => self.serve(session, first).await,
                Err(why) => self.fail([first.reply], &why),
            }
        }
    }

    /// Fails these questions and all that wait to be sent: they would fail in the same way, only later.
    fn fail(&mut self, replies: impl IntoIterator<Item = oneshot::Sender<Answers>>, why: &str) {
        let send = |reply: oneshot::Sender<Answers>| drop(reply.send(Err(why.to_owned())));
        replies.into_iter().for_each(send);
        while let Ok(question) = self.questions.try_recv() {
            send(question.reply);
        }
    }

    /// Opens a session with the first server that accepts one, starting with a random server.
    async fn connect(&self) -> Result<Session, String> {
        let servers = &self.address.servers;
        let mut why = "the URL names no server".to_owned();
        let from = fastrand::usize(..servers.len().max(1));
        for server in servers.iter().cycle().skip(from).take(servers.len()) {
            match timeout(CONNECT, Session::open(server, self.address.user.as_ref())).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(failed)) => why = failed,
                Err(_) => "the server does not answer in time".clone_into(&mut why),
            }
        }
        Err(why)
    }

    /// Sends questions and receives answers until the connection breaks or every sender of questions is dropped.
    async fn serve(&mut self, mut session: Session, first: Question) {
        let mut sent: VecDeque<Sent> = VecDeque::new();
        let mut next = Some(first);
        let why = loop {
            // The asking future may have been dropped while the connection was made.
            if let Some(Question { requests, reply }) = next.take().filter(|question| !question.reply.is_closed()) {
                let until = self.clock.now() + WHOLE;
                let (answers, missing) = (Vec::with_capacity(requests.len()), requests.len());
                sent.push_back(Sent { reply, answers, missing, xid: number_after(session.xid), until });
                match timeout(WHOLE, session.send(&requests)).await {
                    Ok(Ok(())) => {}
                    _ => break "the connection broke".to_owned(),
                }
            }
            let due = sent.front().map(|sent| self.clock.instant(sent.until));
            tokio::select! {
                question = self.questions.recv() => match question {
                    Some(question) => next = Some(question),
                    None => {
                        let _ = timeout(CONNECT, session.stream.write_all(&wire::goodbye())).await;
                        return;
                    }
                },
                () = async { tokio::time::sleep_until(due.unwrap_or_else(|| self.clock.instant(Time::MAX))).await } => {
                    break "the server does not answer in time".to_owned();
                }
                reply = session.reply() => match reply {
                    Ok(reply) => {
                        if !reply.is_unasked() && !answered(&mut sent, reply) {
                            break "the server answered what was not asked".to_owned();
                        }
                    }
                    Err(why) => break why,
                },
            }
        };
        // An idle connection may end without an error: no question is lost.
        if !sent.is_empty() {
            self.fail(sent.into_iter().map(|sent| sent.reply), &why);
        }
    }
}

/// The number of the request after this one.
fn number_after(xid: i32) -> i32 {
    xid.checked_add(1).unwrap_or(1)
}

/// Records an answer. Returns `false` if it does not belong to the request that is to be answered next.
fn answered(sent: &mut VecDeque<Sent>, reply: Reply) -> bool {
    let Some(first) = sent.front_mut().filter(|first| first.xid == reply.xid) else { return false };
    first.xid = number_after(first.xid);
    first.answers.push(reply.result);
    first.missing = first.missing.saturating_sub(1);
    if first.missing == 0
        && let Some(whole) = sent.pop_front()
    {
        // The asking future may have been dropped.
        let _ = whole.reply.send(Ok(whole.answers));
    }
    true
}

impl Session {
    async fn open(server: &str, user: Option<&(String, String)>) -> Result<Session, String> {
        let away = |error: std::io::Error| format!("the server cannot be reached: {error}");
        let stream = TcpStream::connect(server).await.map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        let mut session = Session { stream, received: BytesMut::new(), xid: 0 };
        session.stream.write_all(&wire::hello(SESSION_MS)).await.map_err(away)?;
        if !wire::is_welcome(session.frame().await?) {
            return Err("the server opens no session".to_owned());
        }
        if let Some((user, password)) = user {
            session.stream.write_all(&wire::login(user, password)).await.map_err(away)?;
            if session.reply().await?.result.is_err() {
                return Err("the server does not accept user and password".to_owned());
            }
        }
        Ok(session)
    }

    async fn send(&mut self, requests: &[Request]) -> std::io::Result<()> {
        let mut frames = Vec::new();
        for request in requests {
            self.xid = number_after(self.xid);
            frames.extend(request.frame(self.xid));
        }
        self.stream.write_all(&frames).await
    }

    async fn reply(&mut self) -> Result<Reply, String> {
        Reply::read(self.frame().await?).ok_or_else(|| "the answer is none of ZooKeeper's".to_owned())
    }

    /// Receives the next frame. Cancel-safe: bytes received so far are kept if this future is dropped.
    async fn frame(&mut self) -> Result<Bytes, String> {
        loop {
            if let Some(frame) = wire::take_frame(&mut self.received)? {
                return Ok(frame);
            }
            match self.stream.read_buf(&mut self.received).await {
                Ok(0) => return Err("the server closed the connection".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the connection broke: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
