//! A TCP server that misbehaves on purpose: it reads one request per script and answers with raw bytes.
//!
//! HTTP mock servers always speak correct HTTP, so they cannot test the handling of faults.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it, under a path of its own")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What to do with a connection, step by step. After the last step it is closed in an orderly way.
#[derive(Clone, Debug)]
pub enum Step {
    /// Read a whole request (head, and a body of the stated length) and record it.
    Read,
    /// Read this many bytes.
    ReadBytes(usize),
    /// Write these bytes.
    Write(Vec<u8>),
    /// Write these bytes one at a time, with a pause after each.
    Drip(Vec<u8>, Duration),
    /// Write these bytes again and again until the peer closes the connection.
    Repeat(Vec<u8>),
    /// Keep the connection open and silent until the peer closes it.
    Stall,
    /// Keep the connection open for this time, and read nothing.
    Idle(Duration),
    /// Close with a reset.
    Reset,
    /// Send no more, but keep reading.
    HalfClose,
    /// Repeat these steps until the connection ends.
    Loop(Vec<Step>),
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub head: String,
    pub body: Vec<u8>,
}

pub struct FaultServer {
    pub address: SocketAddr,
    log: Arc<Mutex<Log>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    requests: Vec<Seen>,
    connections: usize,
}

impl FaultServer {
    /// Starts a server whose n-th connection follows the n-th script. All further connections follow the last script.
    pub async fn start(scripts: Vec<Vec<Step>>) -> FaultServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = log.clone();
        #[expect(clippy::disallowed_methods, reason = "a server of its own")]
        let task = tokio::spawn(async move {
            for n in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                shared.lock().unwrap().connections += 1;
                let script = scripts[n.min(scripts.len() - 1)].clone();
                tokio::spawn(run(stream, script, shared.clone()));
            }
        });
        FaultServer { address, log, task }
    }

    /// Starts a server whose connections all read a request and then follow `steps`.
    pub async fn answering(mut steps: Vec<Step>) -> FaultServer {
        steps.insert(0, Step::Read);
        FaultServer::start(vec![steps]).await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.log.lock().unwrap().requests.clone()
    }

    pub fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(mut stream: TcpStream, script: Vec<Step>, log: Arc<Mutex<Log>>) {
    for step in script {
        if let Step::Loop(steps) = step {
            loop {
                for step in &steps {
                    if !act(&mut stream, step.clone(), &log).await {
                        return;
                    }
                }
            }
        }
        if !act(&mut stream, step, &log).await {
            return;
        }
    }
}

/// Performs a step. Returns whether the connection is still usable.
async fn act(stream: &mut TcpStream, step: Step, log: &Mutex<Log>) -> bool {
    let mut scratch = [0; 4096];
    match step {
        Step::Read => match read_request(stream).await {
            Some(seen) => log.lock().unwrap().requests.push(seen),
            None => return false,
        },
        Step::ReadBytes(mut left) => {
            while left > 0 {
                let size = left.min(scratch.len());
                match stream.read(&mut scratch[..size]).await {
                    Ok(n) if n > 0 => left -= n,
                    _ => return false,
                }
            }
        }
        Step::Write(bytes) => return stream.write_all(&bytes).await.is_ok(),
        Step::Drip(bytes, pause) => {
            for byte in bytes {
                if stream.write_all(&[byte]).await.is_err() {
                    return false;
                }
                tokio::time::sleep(pause).await;
            }
        }
        Step::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
        Step::Stall => while stream.read(&mut scratch).await.is_ok_and(|n| n > 0) {},
        Step::Idle(wait) => tokio::time::sleep(wait).await,
        Step::Reset => {
            // Unread input or a zero linger makes the close a reset.
            let _ = stream.set_zero_linger();
            return false;
        }
        Step::HalfClose => {
            let _ = stream.shutdown().await;
            while stream.read(&mut scratch).await.is_ok_and(|n| n > 0) {}
        }
        Step::Loop(_) => unreachable!("loops are not nested"),
    }
    true
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (n, v) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim().to_owned())
        })
    };
    let mut body = bytes.split_off(head_end);
    if let Some(length) = header("content-length") {
        let length: usize = length.parse().ok()?;
        while body.len() < length {
            if stream.read_buf(&mut body).await.ok()? == 0 {
                return None;
            }
        }
    } else if header("transfer-encoding").is_some() {
        while !body.ends_with(b"0\r\n\r\n") {
            if stream.read_buf(&mut body).await.ok()? == 0 {
                return None;
            }
        }
    }
    Some(Seen { head, body })
}
