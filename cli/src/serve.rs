//! `serve`: serves a gateway, through which programs in any language send requests. `health`: asks a gateway whether it
//! is ready.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, FalseyValueParser, NonEmptyStringValueParser};
use integration_client::gateway::{Gateway, Listen};

use crate::connect::{self, Configuration, Named, StoreBounds};
use crate::interrupt::Signals;
use crate::metrics;
use crate::notes;
use crate::operators;
use crate::output::{self, Failure, Outcome, ServiceOutput};
use crate::text::duration;

const EXAMPLES: &str = "\
Examples:
  integration-client serve --vendors vendors.toml --tenants tenants.toml
  integration-client serve --listen unix:/run/gateway.sock --no-token
  integration-client serve --lane 127.0.0.1:8101=acme/stripe
  integration-client serve --store queue.db --console

An SDK gets http://127.0.0.1:8099/TENANT/VENDOR as its base URL, and a caller's
token as its API key. [[callers]] of the configuration says who may call for
whom; without any, the command makes a token and prints it.

The first SIGTERM or Ctrl-C lets what is under way end, the second does not. A
closed terminal counts as one of them, except with nohup.

Exit codes: 0 it ended in good order, 1 requests were cut off at the end, 2 it
could not begin, 3 a second signal ended it.";

/// Serves a gateway: SDKs in any language call through it, within the limits.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    configuration: Configuration,

    /// The address to listen on, with its port, or `unix:PATH`.
    #[arg(long, value_name = "ADDRESS", env = LISTEN, default_value = DEFAULT)]
    listen: Listen,

    /// One more address to listen on. All requests to it belong to this tenant and go to this vendor: for SDKs that can be given
    /// only a host and a port. May be repeated; in the variable, commas separate the addresses.
    #[arg(long, value_name = "ADDRESS=TENANT/VENDOR", value_parser = lane, env = "INTEGRATION_CLIENT_LANES", value_delimiter = ',')]
    lane: Vec<(SocketAddr, String, String)>,

    /// Asks for no token: whoever reaches the gateway may send for every tenant. The gateway then listens only on loopback or a Unix
    /// socket.
    #[arg(long, env = "INTEGRATION_CLIENT_NO_TOKEN", value_parser = BoolishValueParser::new())]
    no_token: bool,

    /// Keeps dead letters and the use of long windows in this store, takes tenants from it, and sends the requests that are left
    /// there (`Integration-Async`): a SQLite file, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[arg(long, value_name = "URL", env = connect::STORE, hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    store: Option<String>,

    /// Does not send the requests in the store; other processes send them.
    #[arg(long, requires = "store", env = "INTEGRATION_CLIENT_NO_WORK", value_parser = FalseyValueParser::new())]
    no_work: bool,

    #[command(flatten)]
    bounds: StoreBounds,

    /// Also serves a console for operators at /~/console/, which shows the lanes that wait and why, queues, dead letters and events.
    /// The console asks for the token of a caller with the right `view` or `operate`, or for the token that the command prints.
    /// Nobody can change anything in it.
    #[arg(long, env = "INTEGRATION_CLIENT_CONSOLE", value_parser = FalseyValueParser::new())]
    console: bool,

    /// As --console; callers with the right `operate`, and whoever has the token that the command prints, may also pause and resume
    /// lanes, and send dead letters again or delete them.
    #[arg(long, env = "INTEGRATION_CLIENT_CONSOLE_OPERATE", value_parser = FalseyValueParser::new())]
    console_operate: bool,

    /// The longest wait for the headers of a response if the request states no deadline, and for each part of any response's body.
    #[arg(long, value_name = "DURATION", default_value = "55s", value_parser = duration, env = "INTEGRATION_CLIENT_DEADLINE")]
    deadline: Duration,

    /// For how long after SIGTERM the gateway still accepts requests, while it reports that it is not ready: a load balancer needs
    /// this time to notice.
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "INTEGRATION_CLIENT_DRAIN_DELAY")]
    drain_delay: Option<Duration>,

    /// For how long requests under way may continue after that.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, env = "INTEGRATION_CLIENT_GRACE")]
    grace: Duration,
}

const LISTEN: &str = "INTEGRATION_CLIENT_LISTEN";
const DEFAULT: &str = "127.0.0.1:8099";

fn lane(text: &str) -> Result<(SocketAddr, String, String), String> {
    let parts = || {
        let (address, lane) = text.split_once('=')?;
        let (tenant, vendor) = lane.split_once('/')?;
        Some((address.parse().ok()?, tenant.to_owned(), vendor.to_owned()))
    };
    parts().ok_or_else(|| "write for example 127.0.0.1:8101=acme/stripe".to_owned())
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let out = &mut ServiceOutput(out);
    let signals = Signals::listen()?;
    let runtime = connect::runtime()?;
    notes::listen(false, args.store.is_none());
    let recorder = metrics::record(&runtime)?;
    let done = runtime.block_on(async {
        let builder = args.configuration.builder()?;
        let client = match args.store.as_deref().map(Named::new) {
            Some(named) => {
                let builder = builder.config_in_store().store(args.bounds.apply(named.store()));
                let builder =
                    if args.no_work { builder } else { builder.work().publish_status(Duration::from_secs(1)) };
                builder.build().await?
            }
            None => builder.build().await?,
        };
        let gateway = Gateway::builder(client.clone()).deadline(args.deadline).metrics(move || recorder.render());
        let gateway = if args.no_token { gateway.without_tokens() } else { gateway };
        let gateway = operators::with_console(gateway, &client, args.console, args.console_operate);
        let lanes = args.lane.iter();
        let listen =
            lanes.fold(args.listen.clone(), |listen, (address, tenant, vendor)| listen.lane(*address, tenant, vendor));
        let serving = match gateway.build().serve(listen).await {
            Ok(serving) => serving,
            Err(error) => {
                // Requests of the store may be under way already.
                client.shutdown(args.grace).await;
                return Err(error.into());
            }
        };
        writeln!(out, "base URL: {}", serving.base_url("TENANT", "VENDOR"))?;
        for (address, (_, tenant, vendor)) in serving.lanes().iter().zip(&args.lane) {
            writeln!(out, "lane: http://{address} is {tenant} at {vendor}")?;
        }
        let has_console = args.console || args.console_operate;
        if let Some(address) = serving.address().filter(|_| has_console) {
            writeln!(out, "console: http://{address}/~/console/")?;
        }
        if let Some(token) = serving.token() {
            let what = match (args.no_token, has_console) {
                (true, _) => "for the console",
                (false, true) => "the SDK's API key, and for the console",
                (false, false) => "the SDK's API key",
            };
            writeln!(out, "token: {token} ({what}; no [[callers]] are configured)")?;
        }
        out.flush()?;
        signals.first().await;
        notes::say("ending: what is under way goes on; a second signal ends it at once");
        if let Some(delay) = args.drain_delay {
            serving.drain();
            tokio::time::sleep(delay).await;
        }
        let whole = serving.shutdown(args.grace).await;
        let kept = client.shutdown(args.grace).await;
        Ok(if whole && kept { Outcome::Fine } else { Outcome::Found })
    });
    runtime.shutdown_background();
    done
}

const HEALTH: &str = "\
Examples:
  integration-client health
  integration-client health 127.0.0.1:8099
  integration-client health unix:/run/gateway.sock

Exit codes: 0 it takes requests, 1 it does not, or says that it is not ready.";

/// Asks a gateway of this machine whether it is ready: for a container's health check.
#[derive(clap::Args)]
#[command(after_help = HEALTH)]
pub(crate) struct Health {
    /// The gateway's address, as `serve --listen` has it.
    #[arg(value_name = "ADDRESS", env = LISTEN, default_value = DEFAULT, value_parser = gateway_at)]
    address: GatewayAddress,
}

/// Where a gateway listens for all tenants and vendors: `Listen` does not tell that.
#[derive(Clone, Debug)]
enum GatewayAddress {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

fn gateway_at(text: &str) -> Result<GatewayAddress, String> {
    // The error is that of `serve --listen`.
    text.parse::<Listen>().map_err(|error| error.to_string())?;
    #[cfg(unix)]
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(GatewayAddress::Unix(path.into()));
    }
    let mut address: SocketAddr = text.parse().map_err(|_| "this is no address".to_owned())?;
    // `serve` takes it for all addresses of this machine; to ask, one of them is needed.
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(GatewayAddress::Tcp(address))
}

impl std::fmt::Display for GatewayAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GatewayAddress::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            GatewayAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The timeout of the connection, of a read and of a write.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn health(args: &Health, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let why = match ask(&args.address) {
        Ok(line) if line.split(' ').nth(1) == Some("200") => {
            writeln!(out, "ready")?;
            return Ok(Outcome::Fine);
        }
        Ok(line) => format!("not ready: {line}"),
        Err(error) => format!("no gateway answers at {}: {error}", args.address),
    };
    output::found(writeln!(out, "{why}"))
}

/// Asks the gateway whether it is ready. Returns the first line of the response.
fn ask(address: &GatewayAddress) -> std::io::Result<String> {
    match address {
        GatewayAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask_over(stream, &address.to_string())
        }
        #[cfg(unix)]
        GatewayAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            ask_over(stream, "localhost")
        }
    }
}

fn ask_over(mut stream: impl Read + Write, host: &str) -> std::io::Result<String> {
    write!(stream, "GET /~/readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(512).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned())
}
