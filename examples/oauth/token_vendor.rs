//! A vendor on loopback that issues tokens. Each refresh replaces the refresh token, and the rules say which requests
//! fail and how.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// How one token request fails.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// The vendor issues tokens and closes the connection before it answers.
    DiesAfterIssuing,
    /// The vendor answers with this status and body.
    Says(u16, String),
    /// The vendor never answers.
    Hangs,
    /// The vendor sends a body without an end.
    Endless,
}

/// How the vendor behaves.
pub(crate) struct Rules {
    /// The life of an access token, in seconds.
    pub(crate) life: u64,
    /// How long a replaced refresh token is still accepted.
    pub(crate) grace: Duration,
    /// How long a token request takes.
    pub(crate) takes: Duration,
    /// How the next token requests fail, one each.
    pub(crate) troubles: VecDeque<Trouble>,
}

/// A token request as it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) form: String,
}

struct State {
    rules: Rules,
    /// Tokens are numbered. The vendor accepts the newest of each kind.
    refresh: u32,
    access: u32,
    replaced_at: Instant,
    asked: Vec<Asked>,
    /// The statuses of the answers to all other requests.
    served: Vec<u16>,
}

#[derive(Clone)]
pub(crate) struct TokenVendor {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl TokenVendor {
    /// Starts the vendor. The user's first refresh token is `refresh-0`.
    pub(crate) async fn start(rules: Rules) -> std::io::Result<TokenVendor> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        #[expect(clippy::disallowed_methods, reason = "the vendor's own clock")]
        let replaced_at = Instant::now();
        let state = State { rules, refresh: 0, access: 0, replaced_at, asked: Vec::new(), served: Vec::new() };
        let vendor = TokenVendor { address, state: Arc::new(Mutex::new(state)) };
        let serves = vendor.clone();
        #[expect(clippy::disallowed_methods, reason = "a vendor of its own")]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let vendor = serves.clone();
                #[expect(clippy::disallowed_methods, reason = "a vendor of its own")]
                tokio::spawn(async move { vendor.answer(stream).await });
            }
        });
        Ok(vendor)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configuration entry of the vendor `name`; `oauth` is the rest of its OAuth section, with the kind of grant.
    pub(crate) fn entry(&self, name: &str, oauth: &str) -> String {
        format!(
            "[vendors.{name}]\nbase_url = \"http://{0}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n\
             [vendors.{name}.oauth]\ntoken_url = \"http://{0}/token\"\nclient_id = \"test:client\"\n\
             client_secret = \"test:secret\"\n{oauth}\n",
            self.address
        )
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        self.state().rules.troubles.push_back(trouble);
    }

    /// Revokes all access tokens issued so far.
    pub(crate) fn revoke_access(&self) {
        self.state().access += 1;
    }

    /// Revokes all tokens issued so far. Returns the number N of the refresh token `refresh-N` that the user grants
    /// next.
    pub(crate) fn revoke_all(&self) -> u32 {
        let mut state = self.state();
        (state.access, state.refresh) = (state.access + 1, state.refresh + 2);
        state.rules.grace = Duration::ZERO;
        state.refresh
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    pub(crate) fn served(&self) -> Vec<u16> {
        self.state().served.clone()
    }

    pub(crate) fn newest_refresh_token(&self) -> String {
        format!("refresh-{}", self.state().refresh)
    }

    async fn answer(&self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        let is_token = head.split(' ').nth(1).is_some_and(|path| path == "/token" || path.ends_with("/access_tokens"));
        if !is_token {
            let status = {
                let mut state = self.state();
                let live = format!("authorization: Bearer access-{}\r\n", state.access).to_ascii_lowercase();
                let status = if head.to_ascii_lowercase().contains(&live) { 200 } else { 401 };
                state.served.push(status);
                status
            };
            return write(&mut stream, status, "{}").await;
        }
        let takes = self.state().rules.takes;
        tokio::time::sleep(takes).await;
        let (trouble, (status, answer)) = {
            let mut state = self.state();
            state.asked.push(Asked { head: head.clone(), form: body.clone() });
            let trouble = state.rules.troubles.pop_front();
            let answer = match &trouble {
                None | Some(Trouble::DiesAfterIssuing) => state.issue(&head, &body),
                Some(Trouble::Says(status, text)) => (*status, text.clone()),
                Some(Trouble::Hangs | Trouble::Endless) => (200, String::new()),
            };
            (trouble, answer)
        };
        match trouble {
            Some(Trouble::DiesAfterIssuing) => {}
            Some(Trouble::Hangs) => tokio::time::sleep(Duration::from_secs(3600)).await,
            Some(Trouble::Endless) => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":\"").await;
                while stream.write_all(&[b'a'; 8192]).await.is_ok() {}
            }
            _ => write(&mut stream, status, &answer).await,
        }
    }
}

impl State {
    fn issue(&mut self, head: &str, form: &str) -> (u16, String) {
        let life = self.rules.life;
        if head.contains("/access_tokens ") {
            self.access += 1;
            let token = format!("access-{}", self.access);
            return (201, format!("{{\"token\":\"{token}\",\"expires_at\":\"2099-01-01T00:00:00Z\"}}"));
        }
        let mut refresh_token = String::new();
        if let Some(token) = form.split('&').find_map(|pair| pair.strip_prefix("refresh_token=")) {
            let is_newest = token == format!("refresh-{}", self.refresh);
            let was_newest = self.refresh.checked_sub(1).is_some_and(|before| token == format!("refresh-{before}"));
            let is_in_grace = was_newest && self.replaced_at.elapsed() < self.rules.grace;
            if !is_newest && !is_in_grace {
                return (400, "{\"error\":\"invalid_grant\",\"error_description\":\"Token invalid.\"}".to_owned());
            }
            #[expect(clippy::disallowed_methods, reason = "the vendor's own clock")]
            let now = Instant::now();
            (self.refresh, self.replaced_at) = (self.refresh + 1, now);
            refresh_token = format!(",\"refresh_token\":\"refresh-{}\"", self.refresh);
        }
        self.access += 1;
        let access = self.access;
        (
            200,
            format!(
                "{{\"access_token\":\"access-{access}\",\"token_type\":\"bearer\",\"expires_in\":{life}{refresh_token}}}"
            ),
        )
    }
}

/// Reads the head and the body of a request.
async fn read(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let read = stream.read(&mut some).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some((format!("{head}\r\n"), body.to_owned()));
        }
    }
}

async fn write(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all((head + body).as_bytes()).await;
}
