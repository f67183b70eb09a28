//! The connection to Redis when another server takes the place of the one that it leads to. A fake server answers each
//! connection in its own way, and accepts no more connections than the test expects.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::eras::call;
use crate::capacity::redis::{self as pool, Redis};

const READONLY: &str = "READONLY You can't write against a read only replica.";

/// How the server behaves on one connection.
#[derive(Clone, Copy, Debug)]
enum Server {
    Primary,
    /// It was a primary when the client connected, and now answers each write with this error.
    Refusing(&'static str),
    /// It answers no write, and keeps the connection.
    Silent,
    /// It was a replica when the client connected.
    Replica,
}

/// A pool whose connections, in this order, lead to these servers; and the task of the servers.
async fn connected(servers: &[Server]) -> (Redis, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let servers = servers.to_vec();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections = JoinSet::new();
        for server in servers {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(serve(stream, server));
        }
        connections.join_all().await;
    });
    (pool::open(&url).await.unwrap(), task)
}

async fn serve(stream: TcpStream, server: Server) {
    let mut stream = BufReader::new(stream);
    while let Some(command) = read_command(&mut stream).await {
        let Some(reply) = reply(server, &command) else {
            std::future::pending::<()>().await;
            return;
        };
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The words of the next command, or `None` at the end of the connection.
async fn read_command(stream: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let mut words = Vec::new();
    for _ in 0..read_number(stream, '*').await? {
        let length = read_number(stream, '$').await?;
        let mut word = vec![0; length + 2];
        stream.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words)
}

async fn read_number(stream: &mut BufReader<TcpStream>, mark: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

/// The server's answer, `None` if it gives none.
fn reply(server: Server, command: &[String]) -> Option<String> {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    match &*command[0] {
        "INFO" => {
            let role = if matches!(server, Server::Replica) { "slave" } else { "master" };
            Some(bulk(&format!("redis_version:7.0.15\r\nrole:{role}\r\nmaxmemory:0\r\n")))
        }
        "EVALSHA" => {
            let keys: usize = command[2].parse().unwrap();
            // Only the script that writes has arguments beside its keys.
            if command.len() == 3 + keys {
                let head = [bulk("a1"), bulk("1000"), bulk("0")].concat();
                return Some(format!("*4\r\n{head}*{keys}\r\n{}", "$-1\r\n".repeat(keys)));
            }
            match server {
                Server::Silent => None,
                Server::Refusing(error) => Some(format!("-{error}\r\n")),
                Server::Primary | Server::Replica => Some(format!("*{}\r\n{}", keys - 1, ":1\r\n".repeat(keys - 1))),
            }
        }
        _ => Some("+OK\r\n".to_owned()),
    }
}

#[tokio::test]
async fn connection_to_demoted_server_is_replaced() {
    for error in [
        READONLY,
        // Redis 5 and 6 wrap the error of a command in that of the script.
        "ERR Error running script (call to f_1): @user_script:4: @user_script: 4: -READONLY You can't write against a \
         read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOREPLICAS Not enough good replicas to write.",
    ] {
        let (redis, _servers) = connected(&[Server::Refusing(error), Server::Primary]).await;
        redis.exchange(&call(1, 1)).await.unwrap_err();
        // The second call connects anew, and the third keeps that connection.
        redis.exchange(&call(1, 2)).await.unwrap();
        redis.exchange(&call(1, 3)).await.unwrap();
    }
}

#[tokio::test]
async fn connection_to_silent_server_is_replaced() {
    // The caller drops the call before its time has passed, or waits for its end.
    for patience in [Duration::from_millis(200), Duration::from_secs(10)] {
        let (redis, _servers) = connected(&[Server::Silent, Server::Primary]).await;
        let answer = timeout(patience, redis.exchange(&call(1, 1))).await;
        assert!(!matches!(answer, Ok(Ok(_))), "{patience:?}: {answer:?}");
        redis.exchange(&call(1, 2)).await.unwrap();
        redis.exchange(&call(1, 3)).await.unwrap();
    }
}

#[tokio::test]
async fn replica_is_refused_at_each_connection() {
    let servers = [Server::Refusing(READONLY), Server::Replica, Server::Replica, Server::Primary];
    let (redis, _servers) = connected(&servers).await;
    redis.exchange(&call(1, 1)).await.unwrap_err();
    for seq in [2, 3] {
        let error = redis.exchange(&call(1, seq)).await.unwrap_err();
        assert!(error.contains("the server is a replica"), "{error}");
    }
    redis.exchange(&call(1, 4)).await.unwrap();
}
