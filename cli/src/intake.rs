//! `intake`: takes requests from a message broker or from a table of the store, and sends them.

use std::io::Write;
use std::time::Duration;

use integration_client::gateway::Serving;
use integration_client::outbox::{IntakeSource, ReplyTarget};
use integration_client::{BoxError, IntegrationClient};
use integration_client_intake::Begin;
use tokio::sync::Notify;

use crate::connect::{self, Configuration, Named, StoreBounds, StoreOption};
use crate::interrupt::Signals;
use crate::metrics;
use crate::notes;
use crate::operators;
use crate::output::{Failure, Outcome, ServiceOutput};
use crate::text::{duration, span};

const EXAMPLES: &str = "\
Examples:
  integration-client intake 'amqp://app:secret@mq/%2f?queue=requests' \\
      --store postgres://ic@db/jobs --vendors vendors.toml
  integration-client intake table --store jobs.sqlite --tenants tenants.toml \\
      --replies https://app.example.com/hooks/integration
  integration-client intake 'nats://mq?stream=requests' --store jobs.sqlite \\
      --listen 127.0.0.1:8099 --console

A message is a JSON object, as a line of `run` is: tenant, vendor, method, path,
and headers, body, priority, cost, idempotency_key and deadline where needed.
It is acknowledged when its request is in the store. One that is no such object
goes to NAME.refused (RabbitMQ, Kafka), NAME_REFUSED (NATS), the queue that the
URL names by ?dead= (SQS), ic_intake_refused (table). So does one that was
delivered more often than ?max_deliveries= says (RabbitMQ, NATS, SQS).

The first SIGTERM or Ctrl-C lets what is under way end, and so does an error;
the next signal does not. A closed terminal counts as one of them, except with
nohup. What is in the store then is sent by the next process that works on it.

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
    #[arg(value_name = "URL", env = "INTEGRATION_CLIENT_INTAKE", hide_env_values = true, value_parser = clap::builder::NonEmptyStringValueParser::new())]
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

    #[command(flatten)]
    bounds: StoreBounds,

    #[command(flatten)]
    operators: operators::Args,

    /// Sets where the intake begins, and exits without taking messages: `first`, the first message that is there; `new`, the
    /// next one; or for example `168h`, the messages of the last 168 hours. For NATS and Kafka, before the first start or
    /// after the position was lost.
    #[arg(long, value_name = "WHERE", value_parser = begin)]
    begin_at: Option<Begin>,

    /// For how long requests under way may continue after SIGTERM or an error.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration, env = "INTEGRATION_CLIENT_GRACE")]
    grace: Duration,
}

/// The argument that names the store's table `ic_intake` instead of a broker.
const TABLE: &str = "table";

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let out: &mut dyn Write = &mut ServiceOutput(out);
    let signals = Signals::listen()?;
    let runtime = connect::runtime()?;
    notes::listen(false, false);
    if let Some(begin) = args.begin_at {
        let set = runtime.block_on(integration_client_intake::begin_at(&args.source, begin));
        let set = set.map_err(|error| Failure::Input(BoxError::from(error).to_string()))?;
        writeln!(out, "{set}")?;
        return Ok(Outcome::Fine);
    }
    let recorder = if args.operators.is_served() { Some(metrics::record(&runtime)?) } else { None };
    let done = runtime.block_on(async {
        let store = args.bounds.apply(Named::new(&args.store.store).store());
        let builder = args.configuration.builder()?.config_in_store().store(store);
        let builder = if args.no_work { builder } else { builder.work().publish_status(Duration::from_secs(1)) };
        let client = builder.build().await?;
        let serving = match args.operators.serve(&client, recorder, out).await {
            Ok(serving) => serving,
            Err(failure) => {
                // Requests of an earlier process may be under way already.
                client.shutdown(args.grace).await;
                return Err(failure);
            }
        };
        let drain = || serving.iter().for_each(Serving::drain);
        let failed = Notify::new();
        let taking = async {
            take(args, &client, &signals, out).await.map_err(|failure| {
                notes::say(&format!("error: {failure}"));
                failed.notify_one();
                Failure::Said
            })
        };
        let ending = async {
            tokio::select! {
                () = signals.first() => {
                    drain();
                    notes::say("ending: what is under way goes on; a second signal ends it at once");
                    return client.shutdown(args.grace).await;
                }
                () = failed.notified() => {}
            }
            drain();
            let signals_before = signals.count();
            let grace = span(args.grace);
            notes::say(&format!("ending: what is under way goes on for up to {grace}; a signal ends it at once"));
            tokio::select! {
                whole = client.shutdown(args.grace) => whole,
                () = signals.more_than(signals_before) => client.shutdown(Duration::ZERO).await,
            }
        };
        // Also after an error: exchanges that are cut off may have acted, and those without a key become dead letters.
        let (taken, whole) = tokio::join!(taking, ending);
        // Its pages show the end until here.
        if let Some(serving) = serving {
            serving.shutdown(Duration::ZERO).await;
        }
        let (accepted, delivered) = taken?;
        writeln!(out, "accepted {accepted}")?;
        if args.replies.is_some() {
            writeln!(out, "replies delivered {delivered}")?;
        }
        Ok(if whole { Outcome::Fine } else { Outcome::Found })
    });
    runtime.shutdown_background();
    done
}

/// Parses where the intake begins.
fn begin(text: &str) -> Result<Begin, String> {
    match text {
        "first" => Ok(Begin::First),
        "new" => Ok(Begin::New),
        _ => duration(text).map(Begin::Last).map_err(|_| "write first, new, or for example 168h".to_owned()),
    }
}

/// Connects to the source and to the target of the replies, and takes requests until the client is shut down. Returns
/// the number of requests accepted and of replies delivered.
///
/// Connects after the client was built: a broker delivers messages from the connection on and counts the deliveries, so
/// a build that failed after that would bring messages nearer to their bound of deliveries at each start.
async fn take(
    args: &Args,
    client: &IntegrationClient,
    signals: &Signals,
    out: &mut dyn Write,
) -> Result<(u64, u64), Failure> {
    let opening = async {
        let source = open(&args.source).await?;
        let target = match &args.replies {
            None => None,
            Some(url) => Some(replies(url).await?),
        };
        Ok::<_, Failure>((source, target))
    };
    let (source, target) = tokio::select! {
        opened = opening => opened?,
        () = signals.first() => return Ok((0, 0)),
    };
    writeln!(out, "taking requests from {}", source.as_deref().map_or("ic_intake", IntakeSource::name))?;
    if let Some(target) = &target {
        writeln!(out, "replies go to {}", target.name())?;
    }
    out.flush()?;
    let delivering = async {
        let Some(target) = &target else { return Ok(0) };
        client.outbox().deliver_replies(&**target).await.map_err(Failure::from)
    };
    tokio::try_join!(feed(client, source.as_deref()), delivering)
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
        Err(error) => {
            let error = BoxError::from(error);
            // No URL at all is most likely this word, misspelt.
            let hint = if url.contains("://") { "" } else { ", or is `table`" };
            Err(Failure::Input(format!("{error}{hint}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn misspelt_table_is_named() {
        let said = |failure: Option<Failure>| failure.unwrap().to_string();
        assert!(said(open("tabel").await.err()).ends_with("or sqs://, or is `table`"));
        let other = said(open("http://u:hunter2@mq/requests").await.err());
        assert!(other.ends_with("or sqs://") && !other.contains("hunter2"), "{other}");
        assert!(open(TABLE).await.is_ok_and(|source| source.is_none()));
    }
}
