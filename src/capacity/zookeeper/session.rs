//! The task that talks to ZooKeeper: one connection, on which requests are answered in their order.
//!
//! A connection is made when something is asked and there is none, and has a session of its own. No node of ours belongs to a session,
//! so nothing is lost with one, and an idle session may end.

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

/// For how long the server keeps a session that says nothing, in milliseconds.
const SESSION_MS: i32 = 10_000;
/// The longest wait for one server of several to open a session.
const CONNECT: Duration = Duration::from_secs(1);
/// A server that takes longer to answer counts as away. That is less than a call may take, so that the next call finds another server.
const WHOLE: Duration = Duration::from_millis(1_500);
/// Questions that wait to be sent.
pub(super) const QUEUE: usize = 256;

/// The answers to requests, in their order.
type Answers = Result<Vec<Result<Bytes, i32>>, String>;

/// Requests that are sent one after the other, with none of another question between them.
pub(super) struct Question {
    pub(super) requests: Vec<Request>,
    pub(super) reply: oneshot::Sender<Answers>,
}

/// Whom to ask.
#[derive(PartialEq, Eq)]
pub(super) struct Address {
    /// Each as `host:port`.
    pub(super) servers: Vec<String>,
    pub(super) user: Option<(String, String)>,
}

/// Without the password.
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

/// A question that was sent.
struct Sent {
    reply: oneshot::Sender<Answers>,
    answers: Vec<Result<Bytes, i32>>,
    missing: usize,
    /// The number of the request that is answered next.
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

    /// Whatever waits would fail in the same way, only later.
    fn fail(&mut self, replies: impl IntoIterator<Item = oneshot::Sender<Answers>>, why: &str) {
        let send = |reply: oneshot::Sender<Answers>| drop(reply.send(Err(why.to_owned())));
        replies.into_iter().for_each(send);
        while let Ok(question) = self.questions.try_recv() {
            send(question.reply);
        }
    }

    /// A session with the first server that opens one, from a random one on.
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

    /// Asks and answers until the connection breaks or nobody can ask any more.
    async fn serve(&mut self, mut session: Session, first: Question) {
        let mut sent: VecDeque<Sent> = VecDeque::new();
        let mut next = Some(first);
        let why = loop {
            // Whoever asked may have gone away, while a connection was made.
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
        // An idle connection ends without a word.
        if !sent.is_empty() {
            self.fail(sent.into_iter().map(|sent| sent.reply), &why);
        }
    }
}

/// The number of the request after this one.
fn number_after(xid: i32) -> i32 {
    xid.checked_add(1).unwrap_or(1)
}

/// Notes an answer. Returns false where it is none to the request that is to be answered next.
fn answered(sent: &mut VecDeque<Sent>, reply: Reply) -> bool {
    let Some(first) = sent.front_mut().filter(|first| first.xid == reply.xid) else { return false };
    first.xid = number_after(first.xid);
    first.answers.push(reply.result);
    first.missing = first.missing.saturating_sub(1);
    if first.missing == 0
        && let Some(whole) = sent.pop_front()
    {
        // Whoever asked may have gone away.
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

    /// The next frame. Nothing that was received is lost if this is dropped.
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
mod tests {
    use super::*;

    fn reply(xid: i32) -> Reply {
        Reply { xid, result: Ok(Bytes::new()) }
    }

    #[test]
    fn an_answer_to_another_request_is_none() {
        let (first, mut answers) = oneshot::channel();
        let waits = |reply, missing, xid| Sent { reply, answers: Vec::new(), missing, xid, until: Time::ZERO };
        let mut sent = VecDeque::from([waits(first, 2, i32::MAX), waits(oneshot::channel().0, 1, 2)]);
        assert!(!answered(&mut sent, reply(1)), "the answer before it is missing");
        assert!(answered(&mut sent, reply(i32::MAX)) && !answered(&mut sent, reply(i32::MAX)), "once");
        assert!(answered(&mut sent, reply(1)));
        assert_eq!(answers.try_recv().unwrap().unwrap().len(), 2);
        assert!(answered(&mut sent, reply(2)) && !answered(&mut sent, reply(3)), "nothing waits any more");
    }
}
