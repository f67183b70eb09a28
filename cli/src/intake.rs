//! `intake`: takes requests from a message broker or from a table of the store, and sends them.

use std::io::Write;
use std::time::Duration;

use integration_client::outbox::{IntakeSource, ReplyTarget};
use integration_client::{BoxError, IntegrationClient};

use crate::connect::{self, Configuration, Named, StoreOption};
use crate::interrupt::Signals;
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::duration;

const EXAMPLES: &str = "\
Examples:
  integration-client intake 'amqp://app:secret@mq/%2f?queue=requests' \\
      --store postgres://ic@db/jobs --vendors vendors.toml
  integration-client intake table --store jobs.sqlite --tenants tenants.toml \\
      --replies https://app.example.com/hooks/integration

A message is a JSON object, as a line of `run` is: tenant, vendor, method, path,
and headers, body, priority, cost, idempotency_key and deadline where needed.
It is acknowledged when its request is in the store. One that is no such object
goes to NAME.refused (RabbitMQ, Kafka), NAME_REFUSED (NATS), the queue that the
URL names by ?dead= (SQS), ic_intake_refused (table). So does one that was
delivered more often than ?max_deliveries= says (RabbitMQ, NATS, SQS).

The first SIGTERM or Ctrl-C lets what is under way end, the second does not.
What is in the store then is sent by the next process that works on it.

Exit codes: 0 it ended in good order, 1 requests were cut off at the end, 2 it
could not begin or go on, 3 a second signal ended it.";

/// The environment variable with the secret of a webhook. It is not an option, because all users of the machine can
/// read the command line.
const SECRET: &str = "INTEGRATION_CLIENT_REPLIES_SECRET";

/// Takes requests from a message broker, or from the store's table ic_intake, and sends them within the limits.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The source of the messages: `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME` (RabbitMQ),
    /// `nats://USER:PASSWORD@HOST:PORT?stream=NAME` (NATS JetStream), `kafka://USER:PASSWORD@HOST:PORT?topic=NAME` (Kafka) or
    /// `sqs://HOST/ACCOUNT/QUEUE?dead=QUEUE` (Amazon SQS), if the program was built with them, or `table`, the table ic_intake
    /// of the store.
    #[arg(value_name = "URL", env = "INTEGRATION_CLIENT_INTAKE", hide_env_values = true)]
    source: String,

    #[command(flatten)]
    configuration: Configuration,

    #[command(flatten)]
    store: StoreOption,

    /// The target of the replies to requests that ask for one: `amqp://…?queue=NAME`, `nats://…?subject=NAME`, `kafka://…?topic=NAME`,
    /// `sqs://HOST/ACCOUNT/QUEUE`, or `https://…`, a webhook signed with the secret `whsec_…` in
    /// INTEGRATION_CLIENT_REPLIES_SECRET. Without a target, replies stay in the table ic_reply for a week.
    #[arg(long, value_name = "URL", env = "INTEGRATION_CLIENT_REPLIES", hide_env_values = true)]
    replies: Option<String>,

    /// Does not send the requests in the store; other processes send them.
    #[arg(long, env = "INTEGRATION_CLIENT_NO_WORK", value_parser = clap::builder::FalseyValueParser::new())]
    no_work: bool,

    /// For how long requests under way may continue after SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, env = "INTEGRATION_CLIENT_GRACE")]
    grace: Duration,
}

/// The argument that names the store's table `ic_intake` instead of a broker.
const TABLE: &str = "table";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let signals = Signals::listen()?;
    let runtime = connect::runtime()?;
    notes::listen(false, false);
    let done = runtime.block_on(async {
        let builder = args.configuration.builder()?.config_in_store().store(Named::new(&args.store.store).store());
        let builder = if args.no_work { builder } else { builder.work().publish_status(Duration::from_secs(1)) };
        let client = builder.build().await?;
        let source = open(&args.source).await?;
        let name = source.as_deref().map_or("ic_intake", IntakeSource::name);
        writeln!(out, "taking requests from {name}")?;
        let target = match &args.replies {
            None => None,
            Some(url) => Some(replies(url).await?),
        };
        if let Some(target) = &target {
            writeln!(out, "replies go to {}", target.name())?;
        }
        out.flush()?;
        let ending = async {
            signals.first().await;
            notes::say("ending: what is under way goes on; a second signal ends it at once");
            client.shutdown(args.grace).await
        };
        let working = async {
            let delivering = async {
                let Some(target) = &target else { return Ok(0) };
                client.outbox().deliver_replies(&**target).await.map_err(Failure::from)
            };
            tokio::try_join!(feed(&client, source.as_deref()), delivering)
        };
        let (done, whole) = both(working, ending).await;
        let (accepted, delivered) = done?;
        writeln!(out, "accepted {accepted}")?;
        if target.is_some() {
            writeln!(out, "replies delivered {delivered}")?;
        }
        Ok(if whole { Outcome::Fine } else { Outcome::Found })
    });
    runtime.shutdown_background();
    done
}

/// Waits for both the hand-over and the shutdown. If the hand-over fails first, returns without waiting for the
/// shutdown.
async fn both<T>(
    feed: impl Future<Output = Result<T, Failure>>,
    ending: impl Future<Output = bool>,
) -> (Result<T, Failure>, bool) {
    let (mut feed, mut ending) = (std::pin::pin!(feed), std::pin::pin!(ending));
    tokio::select! {
        fed = &mut feed => match fed {
            Ok(_) => (fed, ending.await),
            Err(_) => (fed, true),
        },
        whole = &mut ending => (feed.await, whole),
    }
}

async fn feed(client: &IntegrationClient, source: Option<&dyn IntakeSource>) -> Result<u64, Failure> {
    Ok(match source {
        Some(source) => client.outbox().feed_from(source).await?,
        None => client.outbox().feed_from_table().await?,
    })
}

async fn replies(url: &str) -> Result<Box<dyn ReplyTarget>, Failure> {
    let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
    match integration_client_intake::replies(url, secret.as_deref()).await {
        Ok(target) => Ok(target),
        Err(error) if secret.is_none() && url.starts_with("http") => {
            Err(Failure::Input(format!("{error} (in the environment variable {SECRET})")))
        }
        Err(error) => Err(Failure::Input(BoxError::from(error).to_string())),
    }
}

/// Connects to the source. `None` stands for the store's table.
async fn open(url: &str) -> Result<Option<Box<dyn IntakeSource>>, Failure> {
    if url == TABLE {
        return Ok(None);
    }
    match integration_client_intake::open(url).await {
        Ok(source) => Ok(Some(source)),
        Err(error) => Err(Failure::Input(BoxError::from(error).to_string())),
    }
}
