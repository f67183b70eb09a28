//! `send`: sends one request on behalf of a tenant, as curl would, but within the limits.

mod answer;
mod known;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use integration_client::clock::Clock;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Status;
use integration_client::{IntegrationClient, IntegrationClientBuilder, Method, Priority, Request};

use self::answer::{Answer, End, MAY_HAVE_ACTED, doubt, texts};
use self::known::{Known, Stage};
use crate::connect::{self, Configuration, Named};
use crate::dead_letters;
use crate::interrupt::Signals;
use crate::key_files::{self, KeyFiles};
use crate::notes;
use crate::output::{Failure, Outcome};
use crate::text::{count, duration};

const EXAMPLES: &str = "\
Examples:
  integration-client send acme github /user --vendors vendors.toml
  integration-client send acme parcels /labels -d '{\"order\":17}' --priority high
  integration-client send acme parcels /labels -d @label.json \\
      --store jobs.jsonl.sqlite

Each call begins with limits of which nothing is used. With --store it is one of
the store's jobs: what runs and other calls with that store have sent counts,
and if a run is working on it, the run sends it. Other jobs that wait in the
store are left alone.

Exit codes: 0 the vendor took it, 1 it answered with an error (400 or above) or
a redirect (none is followed; 303 and 304 are 0), or refused it until the
request was given up, or the job is a dead letter whose reason is not
`ambiguous`, or was cancelled, 2 it could not be sent, 3 the vendor may have
acted on it or has acted, but there is no response (the time ran out, the
connection broke) or it could not be printed (the disk is full), or
interrupted, or a job whose end is not known: what is known of the request is
said on standard error. With 3, read that before you send it again. A closed
pipe does not change the exit code.";

/// Sends one request of a tenant when the limits allow it, and prints the body of the response.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The tenant whose credential and limits the request uses.
    tenant: String,

    /// The vendor that receives the request.
    vendor: String,

    /// The path below the vendor's base URL, with the query.
    path: String,

    #[command(flatten)]
    configuration: Configuration,

    /// The HTTP method [default: GET, or POST with a body].
    #[arg(long, short = 'X', value_name = "METHOD")]
    method: Option<String>,

    /// A header, as `name: value`. May be repeated. The credential is added by itself.
    #[arg(long, short = 'H', value_name = "HEADER", value_parser = header)]
    header: Vec<(String, String)>,

    /// The body; `@FILE` reads it from a file, `@-` from standard input. A body that is JSON gets the content type of JSON unless a
    /// header states another.
    #[arg(long, short, value_name = "BODY")]
    data: Option<String>,

    /// The priority with which the request waits: high, normal or low.
    #[arg(long, value_name = "TIER", default_value = "normal", value_parser = priority)]
    priority: Priority,

    /// What the request costs of the vendor's limits: UNITS points, or KIND=UNITS for another kind that the vendor's entry declares.
    /// May be repeated.
    #[arg(long, value_name = "[KIND=]UNITS", value_parser = cost)]
    cost: Vec<(String, u32)>,

    /// The key by which the vendor recognises the request when it is sent again.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,

    /// The longest time for the request, waiting for the limits included.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    deadline: Duration,

    /// Sends the request as a job of this store: a SQLite file, `sqlite:PATH`, or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    #[arg(long, value_name = "URL", env = connect::STORE, hide_env_values = true, value_parser = NonEmptyStringValueParser::new())]
    store: Option<String>,

    /// Prints a status line and the headers before the body.
    #[arg(long, short)]
    include: bool,

    /// Prints one JSON object: status, headers, body, and how long the request waited. If there is no response, the
    /// object has `error` and `delivery`: not_sent, rejected, ambiguous (the vendor may have acted) or delivered (it has
    /// acted).
    #[arg(long)]
    json: bool,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write 'name: value'")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn priority(text: &str) -> Result<Priority, String> {
    match text {
        "high" => Ok(Priority::High),
        "normal" => Ok(Priority::Normal),
        "low" => Ok(Priority::Low),
        _ => Err("write high, normal or low".to_owned()),
    }
}

fn cost(text: &str) -> Result<(String, u32), String> {
    let (kind, units) = text.split_once('=').unwrap_or(("points", text));
    let units = units.parse().map_err(|_| "write for example 5, or input_tokens=1800".to_owned())?;
    Ok((kind.to_owned(), units))
}

/// Sends the request, and prints to `out`, which is flushed.
///
/// # Errors
/// The vendor did not act on the request. An error of `out` is said and is no failure, because the request has ended by
/// then.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let request = args.request()?;
    let signals = Signals::listen()?;
    let runtime = connect::runtime()?;
    notes::listen(false, false);
    let known = Known::default();
    let done = runtime.block_on(async {
        let end = tokio::select! {
            end = args.end(request, &known) => match end {
                // The store may have the job, and a worker may send it. So the exit code is not that of a request that
                // was not sent.
                Err(failure) if known.is_job() => {
                    let said = known.said().await;
                    notes::say(&format!("error: {failure}\nwhat is known: {said}"));
                    return Ok(Outcome::Interrupted);
                }
                end => end?,
            },
            () = signals.first() => {
                let said = known.said().await;
                notes::say(&format!("interrupted; {said}"));
                return Ok(Outcome::Interrupted);
            }
        };
        match end {
            End::Answered(answer) => Ok(answer.show(args.json, args.include, out)),
            End::GivenUp(outcome) => Ok(outcome),
            End::Unanswered(unanswered) => unanswered.report(args.json, out),
        }
    });
    runtime.shutdown_background();
    done
}

/// Looks at a job that another process should send, after which the command tries to send it itself: that process may
/// have ended, or send no jobs but its own.
const TAKE_OVER: u32 = 100;
/// The wait after a failure of the store, before it is asked again what became of the job.
const AWAY: Duration = Duration::from_secs(1);
/// The time after the request's deadline in which the store may still say what became of the job.
const LATE: Duration = Duration::from_secs(60);

impl Args {
    fn request(&self) -> Result<Request, Failure> {
        let body = self.data.as_deref().map(body).transpose()?;
        let method = match (&self.method, &body) {
            (Some(method), _) => Method::from_bytes(method.to_ascii_uppercase().as_bytes())
                .map_err(|_| Failure::Input(format!("{method:?} is no method; write for example -X POST")))?,
            (None, Some(_)) => Method::POST,
            (None, None) => Method::GET,
        };
        let mut request = Request::new(method, &self.vendor, self.path.as_str()).deadline(self.deadline);
        for (name, value) in &self.header {
            request = request.header(name.as_str(), value.as_str());
        }
        if let Some(body) = body {
            let states_type = self.header.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
            if !states_type && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() {
                request = request.header("content-type", "application/json");
            }
            request = request.body(body);
        }
        for (kind, units) in &self.cost {
            request = request.cost(kind, *units);
        }
        if let Some(key) = &self.idempotency_key {
            request = request.idempotency_key(key);
        }
        Ok(request)
    }

    /// Sends the request, and waits for its end.
    async fn end(&self, request: Request, known: &Known) -> Result<End, Failure> {
        let Some(store) = &self.store else {
            let client = self.configuration.builder()?.without_watching().build().await?;
            self.kinds_are_known(&client)?;
            known.set(Stage::AtOnce(client.events()));
            return Ok(self.at_once(&client, request).await);
        };
        let named = Named::new(store);
        // If another process works on the store's file, that process sends the job.
        let (client, works) = match self.worker(&named).await? {
            Some(worker) => (worker, true),
            None => (self.builder(&named)?.build().await?, false),
        };
        self.kinds_are_known(&client)?;
        if works && let Some(why) = self.missing_key(&client).await {
            client.shutdown(Duration::from_secs(1)).await;
            return Err(Failure::Input(format!("{why}; correct it and run the same command again. Nothing was sent")));
        }
        self.as_job(client, works, &named, request, known).await
    }

    /// Why this process can send no request of the tenant, if the tenant's key is not there: a job of it would wait here
    /// until its deadline.
    async fn missing_key(&self, client: &IntegrationClient) -> Option<String> {
        let (tenant, vendor) = (&self.tenant, &self.vendor);
        let missing = key_files::missing(&KeyFiles::default(), client, tenant, vendor).await?;
        Some(format!("tenant {tenant}, vendor {vendor}: {}", missing.said()))
    }

    fn builder(&self, named: &Named) -> Result<IntegrationClientBuilder, Failure> {
        Ok(self.configuration.builder()?.config_in_store().store(named.store()).without_watching())
    }

    /// A client that sends its own jobs and leaves the store's others alone: this process would end before the
    /// exchanges of those do, and has no handler for the responses to the jobs of a run. `None` if another process works on the
    /// store's file.
    async fn worker(&self, named: &Named) -> Result<Option<IntegrationClient>, Failure> {
        match self.builder(named)?.work_on_own().build().await {
            Err(error) if error.is_store_in_use() => Ok(None),
            built => Ok(Some(built?)),
        }
    }

    /// Refuses a kind of points that the vendor's entry does not declare. The client would only log a warning and send
    /// the request, but a misspelled option is better refused before that.
    fn kinds_are_known(&self, client: &IntegrationClient) -> Result<(), Failure> {
        let tenant = client.config().current().tenant(&self.tenant, &self.vendor)?;
        let costs = &tenant.vendor.costs;
        let unknown =
            self.cost.iter().find(|(kind, _)| kind != "points" && !kind.is_empty() && costs.get(kind).is_none());
        let Some((kind, _)) = unknown else { return Ok(()) };
        let counted: Vec<&str> = costs.iter().map(|(kind, _)| kind).filter(|kind| *kind != "points").collect();
        let counted = match counted.is_empty() {
            true => String::new(),
            false => format!("; it counts {}", counted.join(", ")),
        };
        Err(Failure::Input(format!("--cost: the entry of vendor `{}` declares no {kind:?}{counted}", self.vendor)))
    }

    /// The reference to the credential of the request's tenant.
    fn credential(&self, client: &IntegrationClient) -> Option<String> {
        let tenant = client.config().current().tenant(&self.tenant, &self.vendor).ok()?;
        tenant.credential.as_ref().map(ToString::to_string)
    }

    async fn at_once(&self, client: &IntegrationClient, request: Request) -> End {
        let is_safe = request.method().is_safe();
        let response = match client.send(&self.tenant, self.priority, request).await {
            Ok(response) => response,
            Err(error) => return End::of_failed(&error, is_safe),
        };
        let mut answer = Answer {
            status: response.status().as_u16(),
            headers: texts(response.headers()),
            body: Vec::new(),
            attempts: response.attempts(),
            waited: Some(response.waited()),
            given_up: None,
            credential: self.credential(client),
        };
        match response.bytes().await {
            Ok(body) => answer.body = body.to_vec(),
            Err(error) => return End::of_torn(answer, &error, is_safe),
        }
        End::Answered(answer)
    }

    /// Sends the request as a job, and waits for its end.
    async fn as_job(
        &self,
        mut client: IntegrationClient,
        mut works: bool,
        named: &Named,
        request: Request,
        known: &Known,
    ) -> Result<End, Failure> {
        let is_safe = request.method().is_safe();
        let clock = Clock::system();
        let until = clock.now() + self.deadline + LATE;
        known.set(Stage::Accepting(named.shown()));
        let accepted = client.outbox().enqueue(&self.tenant, self.priority, request.keep_response()).await;
        if let Err(error) = &accepted
            && let Some(id) = error.job_id()
        {
            // The reply to the commit was lost, so that the job may be in the store.
            known.set(Stage::Job(client.clone(), client.outbox().receipt(id)?, named.clone()));
        }
        let mut receipt = accepted?;
        known.set(Stage::Job(client.clone(), receipt.clone(), named.clone()));
        let mut looks = 0_u32;
        loop {
            let status = match receipt.status().await {
                Err(error) if clock.now() < until => {
                    let (id, store) = (receipt.id(), named.shown());
                    notes::now_and_then(&format!("job {id} of {store} was accepted, and is looked for again: {error}"));
                    tokio::time::sleep(AWAY).await;
                    continue;
                }
                status => status?,
            };
            match status {
                Status::Waiting { .. } | Status::UnderWay => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    looks = looks.wrapping_add(1);
                    if works || !looks.is_multiple_of(TAKE_OVER) {
                        continue;
                    }
                    match self.worker(named).await {
                        Ok(Some(worker)) => {
                            if let Some(why) = self.missing_key(&worker).await {
                                worker.shutdown(Duration::from_secs(1)).await;
                                return Err(Failure::Input(format!("{why}, and no other process works on the store")));
                            }
                            (client, works) = (worker, true);
                            let id = receipt.id();
                            receipt = client.outbox().adopt(&id, &self.tenant, &self.vendor, self.priority)?;
                            known.set(Stage::Job(client.clone(), receipt.clone(), named.clone()));
                        }
                        Ok(None) => {}
                        Err(failure) => notes::now_and_then(&failure.to_string()),
                    }
                }
                Status::Delivered { status, attempts, response, .. } => {
                    client.shutdown(Duration::from_secs(1)).await;
                    let body = response.as_ref().map(|kept| kept.body().to_vec()).unwrap_or_default();
                    let headers = response.iter().flat_map(|kept| kept.headers().iter());
                    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                    let credential = self.credential(&client);
                    let (waited, given_up) = (None, None);
                    return Ok(End::Answered(Answer { status, headers, body, attempts, waited, given_up, credential }));
                }
                Status::Dead { reason, .. } => {
                    let is_ambiguous = reason == Some(Reason::Ambiguous);
                    let warning = if is_ambiguous && !is_safe { MAY_HAVE_ACTED } else { "" };
                    let last = last_attempt(&client, &receipt.id(), self.credential(&client).as_deref(), warning).await;
                    let last =
                        last.unwrap_or_else(|failure| format!(", and its attempts cannot be read: {failure}{warning}"));
                    client.shutdown(Duration::from_secs(1)).await;
                    let reason = reason.map_or("unknown", |reason| reason.as_str());
                    let (id, store) = (receipt.id(), named.option());
                    notes::say(&format!(
                        "the request was given up ({reason}){last}\nintegration-client dead-letters show {id}{store}"
                    ));
                    return Ok(End::GivenUp(if is_ambiguous { Outcome::Interrupted } else { Outcome::Found }));
                }
                Status::Cancelled => {
                    client.shutdown(Duration::from_secs(1)).await;
                    notes::say(&format!("job {} of {} was cancelled", receipt.id(), named.shown()));
                    return Ok(End::GivenUp(Outcome::Found));
                }
                // The database has lost the job, as in a failover, while this process may be sending it.
                _ => return Err(Failure::Input(format!("{} has no record of job {}", named.shown(), receipt.id()))),
            }
        }
    }
}

/// Describes the last attempt of a request that became a dead letter, followed by `warning` and what is kept of the
/// vendor's response.
async fn last_attempt(
    client: &IntegrationClient,
    id: &str,
    credential: Option<&str>,
    warning: &str,
) -> Result<String, Failure> {
    let letter = client.outbox().dead_letters()?.show(id).await?.map(|kept| kept.letter);
    let Some(last) = letter.as_ref().and_then(|letter| letter.attempts.last()) else {
        return Ok(warning.to_owned());
    };
    let body: String =
        last.answer.iter().flat_map(|answer| answer.lines()).map(|line| format!("\n    {line}")).collect();
    let attempts = count(letter.as_ref().map_or(0, |letter| letter.attempts.len()), "attempt");
    let doubt = last.status.map(|status| doubt(status, credential)).unwrap_or_default();
    Ok(format!(": {} at the last of {attempts}{doubt}{warning}{body}", dead_letters::result(last)))
}

/// Reads a body as curl does: the text itself, `@FILE`, or `@-` for standard input.
fn body(text: &str) -> Result<Vec<u8>, Failure> {
    let Some(place) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    let mut body = Vec::new();
    match place {
        "-" => std::io::stdin().read_to_end(&mut body),
        path => std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut body)),
    }
    .map_err(|error| Failure::Input(format!("-d {text}: {error}")))?;
    Ok(body)
}
