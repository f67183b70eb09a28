//! One claim of one job, from its row to its recorded outcome.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Acquire, Ordering::Release};
use std::time::Duration;

use tokio::sync::watch;

use super::can_be_sent::{CanBeSent, MAX_STARTED, may_be_resent, not_configured};
use super::payload::Payload;
use super::prompt::end_after;
use super::receipt::KeptResponse;
use super::replies::{self, Answered, Wanted};
use super::stored::Stored;
use super::usage_retention::kept_for;
use super::waits::Waits;
use super::{Delivered, OutboxState, priority, sealing};
use crate::BoxFuture;
use crate::config::{AtRest, Keep, Tenant};
use crate::core::Core;
use crate::dead_letter::{AttemptRecord, DeadLetter, KeptHeaders, LetterRequest, Phase, Reason, log_letter};
use crate::error::Error;
use crate::request::template::template;
use crate::retry::KEY_FORGOTTEN;
use crate::send::durable::{ClaimEnd, Sending, send_stored};
use crate::send::exchange_record::{RecordExchange, StoreTime};
use crate::send::history::History;
use crate::send::response::Response;
use crate::store::dead::NewDead;
use crate::store::jobs::{Claimed, End, JobEnd, Start};
use crate::store::{Id, LaneTier, millis_of};

/// The wait until a job whose seal key is missing is tried again.
const NO_KEY: Duration = Duration::from_secs(30);

/// Records each exchange of a job before the exchange leaves.
struct Entry {
    outbox: Arc<OutboxState>,
    waits: Waits,
    id: Id,
    fence: i64,
    lane: LaneTier,
    slot_ms: i64,
    counts_ms: i64,
    /// The number of the latest exchange of the job that this claim has started; 0 where it has started none.
    latest: Arc<AtomicI64>,
}

impl RecordExchange for Entry {
    fn start<'a>(&'a self, endpoint: &'a str, cost: u32, again: bool) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            self.waits.end();
            let _writing = self.outbox.starts.begin();
            let start = Start {
                id: self.id,
                fence: self.fence,
                owner: self.outbox.store.owner,
                lane: self.lane.clone(),
                again,
                endpoint: endpoint.to_owned(),
                points: i64::from(cost),
                slot_ms: self.slot_ms,
                counts_ms: self.counts_ms,
            };
            let begun = self.outbox.store.start(start).await.map_err(Error::before_the_exchange)?;
            self.latest.store(begun.unwrap_or(0), Release);
            Ok(begun.is_some())
        })
    }

    fn latest(&self) -> Duration {
        self.outbox.store.limits.latest_start()
    }

    fn stall(&self) -> Option<BoxFuture<'_, ()>> {
        self.outbox.starts.stall()
    }

    fn stopped(&self) -> BoxFuture<'_, ()> {
        let mut stop = self.outbox.stop.subscribe();
        Box::pin(async move {
            // An error means that the outbox is gone, which this entry keeps alive.
            let _ = stop.wait_for(|stop| *stop).await;
        })
    }
}

/// Runs a claim. Returns `None` where another process has taken the job over. `unknown` says that the job's lane has
/// been missing in the configuration for long, and `may_be_known` that another process or a corrected configuration may
/// know what this configuration lacks.
pub(super) async fn run(
    core: Arc<Core>,
    outbox: Arc<OutboxState>,
    mut job: Claimed,
    waits: Waits,
    (unknown, may_be_known): (bool, bool),
    mut stop: watch::Receiver<bool>,
) -> Option<JobEnd> {
    let (id, fence, claimed_at) = (job.id, job.fence, core.clock.moment());
    let opened = job.history.as_deref().map(|text| outbox.store.unseal(&id, text));
    let is_shut = matches!(opened, Some(None));
    let mut history: History = opened.flatten().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
    let clock = StoreTime { at: claimed_at, ms: job.claimed_at };
    history.may_have_acted_at = history.may_have_acted_at.into_iter().chain(job.started_at).min();
    // How long ago the vendor may first have acted.
    let age = history.may_have_acted_at.map(|ms| clock.age(ms));
    let now = |core: &Core| jiff::Timestamp::try_from(core.clock.wall()).unwrap_or_default();
    let row = std::mem::take(&mut job.request);
    let Some(text) = outbox.store.unseal(&id, &row).filter(|_| !is_shut) else {
        return sealed(&core, &outbox, &job, Payload::Row(row), (history, is_shut)).await;
    };
    let was_sealed = matches!(text, Cow::Owned(_));
    let read = serde_json::from_slice::<Stored>(&text);
    drop(text);
    let Ok(stored) = read else {
        let payload = Payload::Row(row);
        let mut record = AttemptRecord::new(now(&core), Phase::NotSent, 0);
        record.error = Some("the row holds no request that this version can read; was it edited by hand?".to_owned());
        history.note(record);
        // Another version, which can read the row, may have made an exchange.
        let reason = if history.in_doubt_at().is_some() { Reason::Ambiguous } else { Reason::Poison };
        return bury(&core, &outbox, &job, &payload, reason, history).await;
    };
    drop(row);
    let route = core.registry.route(&job.lane.tenant, &job.lane.vendor);
    let tenant = route.ok().map(|route| route.tenant().clone());
    let request = stored.request(&job.lane.vendor);
    // With the reason of its end alone, an operator would send a job in doubt again, and its tenant's key may be forgotten.
    let ends = unknown || job.expires_ms.is_some_and(|left| left <= 0);
    let can_be_sent = CanBeSent {
        again: may_be_resent(&stored, tenant.as_deref(), age.unwrap_or_default()),
        // Without its tenant the job waits: what its vendor's entry says of keys may be known again later.
        may_have_acted: if tenant.is_some() { age.is_some() } else { ends && history.in_doubt_at().is_some() },
        is_readable: request.is_some(),
        is_configured: !unknown || tenant.is_some(),
    };
    let give_up = can_be_sent.reason_against(&job);
    for _ in 0..job.started.clamp(0, MAX_STARTED) {
        // The process that started the exchange ended before it could record an outcome.
        history.note(interrupted(now(&core)));
        history.exchanges += 1;
    }
    if give_up == Some(Reason::Ambiguous) && stored.key.is_some() && tenant.is_some() {
        let mut record = AttemptRecord::new(now(&core), Phase::NotSent, 0);
        record.error = Some(KEY_FORGOTTEN.to_owned());
        history.note(record);
    }
    let payload = Payload::Read { stored: Box::new(stored), was_sealed };
    if let Some(reason) = give_up {
        return bury(&core, &outbox, &job, &payload, reason, history).await;
    }
    let request = request?;
    let late = outbox.store.limits.latest_start();
    let (slot_ms, counts_ms) = tenant.as_deref().map_or((0, 0), |tenant| kept_for(tenant, late));
    let (begun, latest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let before = history.attempts.last().cloned();
    let entry = Entry {
        outbox: outbox.clone(),
        waits,
        id,
        fence,
        lane: job.lane.clone(),
        slot_ms,
        counts_ms,
        latest: latest.clone(),
    };
    let send = Sending {
        id: id.simple().to_string(),
        tenant: job.lane.tenant.clone(),
        priority: priority(job.lane.tier),
        request,
        history,
        clock,
        records: Arc::new(entry),
        begun: begun.clone(),
        may_be_known,
        has_reader: outbox.handler.is_some() || job.keep_result || payload.stored().is_some_and(|stored| stored.reply),
    };
    let expires = job.expires_ms.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0)));
    let ending = {
        let mut sending = std::pin::pin!(send_stored(&core, send, expires));
        tokio::select! {
            biased;
            ending = &mut sending => ending,
            true = async { stop.wait_for(|stop| *stop).await.is_ok() } => match begun.load(Acquire) {
                false => return Some(JobEnd { id, fence, known: None, end: End::Back }),
                // An exchange that has begun runs to its end.
                true => sending.await,
            },
        }
    };
    let known = |last: Option<&AttemptRecord>| known(latest.load(Acquire), before.as_ref(), last);
    let finish = |known, end| Some(JobEnd { id, fence, known, end });
    match ending {
        ClaimEnd::Delivered(answered) => {
            let at_rest = at_rest(&outbox, &payload, tenant.as_deref());
            let stored = payload.stored();
            let metadata = stored.map(|stored| stored.metadata.clone()).unwrap_or_default();
            let wanted = stored.filter(|stored| stored.reply).map(|stored| stored.reply_to.clone());
            let is_plain = at_rest == AtRest::Plain;
            drop(payload);
            let told = wanted.map(|to| Wanted { to, is_plain });
            delivered(&outbox, &job, (metadata, told), *answered, at_rest).await
        }
        ClaimEnd::Dead(letter) => {
            let (known, kept) = (known(letter.attempts.last()), kept(&core, &outbox, &job, &payload, &letter));
            given_up(&outbox, (&job, known), *letter, kept).await
        }
        ClaimEnd::Later { wait, history } => {
            let passed = millis_of(core.clock.now().since(claimed_at.at));
            let left_ms = job.expires_ms.map(|left| left.saturating_sub(passed));
            let after_ms = millis_of(wait).max(1).min(left_ms.map_or(i64::MAX, |left| left.max(1)));
            let known = known(history.attempts.last());
            let seals = seals(&outbox, &payload, tenant.as_deref());
            let history = sealing::history(&outbox.store, &id, &history, seals);
            finish(known, End::Later { after_ms, expires_at: job.expires_at, history })
        }
        ClaimEnd::Back => finish(None, End::Back),
        ClaimEnd::Blocked => {
            outbox.refused.lock().insert(job.lane.clone());
            finish(None, End::Back)
        }
        ClaimEnd::NotConfigured { history } => {
            let reason = not_configured(payload.stored(), history.in_doubt_at().is_some());
            bury(&core, &outbox, &job, &payload, reason, history).await
        }
        ClaimEnd::Gone => None,
    }
}

/// The number of the latest exchange that a claim has started, if its outcome is known. `before` and `last` are the
/// latest attempts at the beginning and at the end of the claim. Each exchange that leaves adds an attempt: without a
/// new one the exchange did not leave.
fn known(latest: i64, before: Option<&AttemptRecord>, last: Option<&AttemptRecord>) -> Option<i64> {
    let is_open = last != before && last.is_some_and(|last| last.phase == Phase::MaybeSent);
    (latest > 0 && !is_open).then_some(latest)
}

fn interrupted(at: jiff::Timestamp) -> AttemptRecord {
    let mut record = AttemptRecord::new(at, Phase::MaybeSent, 0);
    record.error = Some("the process ended, or lost its lease, while the exchange may have been in flight".to_owned());
    record
}

/// Ends a claim of a job whose request or history no seal key opens: the job waits for the key, until it expires.
/// `is_shut` says that it is the history, or both: the history may say that the vendor acted.
async fn sealed(
    core: &Core,
    outbox: &OutboxState,
    job: &Claimed,
    payload: Payload,
    (mut history, is_shut): (History, bool),
) -> Option<JobEnd> {
    tracing::error!(id = %job.id.simple(), "a job waits for the key that seals it: give it with `Store::seal_key`");
    let left = job.expires_ms.unwrap_or(i64::MAX);
    if left > 0 {
        let end = End::Wait { after_ms: millis_of(NO_KEY).min(left) };
        return Some(JobEnd { id: job.id, fence: job.fence, known: None, end });
    }
    if job.started > 0 {
        history.note(interrupted(jiff::Timestamp::try_from(core.clock.wall()).unwrap_or_default()));
    }
    let may_have_acted = is_shut || history.in_doubt_at().is_some();
    let reason = if may_have_acted { Reason::Ambiguous } else { Reason::Expired };
    bury(core, outbox, job, &payload, reason, history).await
}

/// Makes the dead letter of a job that is given up before it is sent.
async fn bury(
    core: &Core,
    outbox: &OutboxState,
    job: &Claimed,
    payload: &Payload,
    reason: Reason,
    history: History,
) -> Option<JobEnd> {
    let stored = payload.stored();
    let LaneTier { tenant, vendor, tier } = &job.lane;
    let nothing = LetterRequest::Redacted { method: String::new(), path: String::new(), body_bytes: None };
    let keep = core.registry.route(tenant, vendor).map_or(Keep::Redacted, |tenant| tenant.vendor.dead_letters);
    let request = match (stored, keep) {
        (Some(stored), Keep::Whole) => stored.request.clone(),
        (Some(stored), _) => stored.request.redacted(),
        (None, _) => nothing,
    };
    let at = jiff::Timestamp::try_from(core.clock.wall()).unwrap_or_default();
    let mut letter = DeadLetter::new(at, tenant, vendor, priority(*tier), reason, request);
    letter.id = job.id.simple().to_string();
    letter.may_have_acted_at = history.in_doubt_at();
    letter.attempts = history.attempts;
    if let Some(stored) = stored {
        let path = |stored: &Stored| template(stored.request.path());
        letter.endpoint = Some(stored.endpoint.clone().unwrap_or_else(|| path(stored)));
        letter.idempotency_key.clone_from(&stored.key);
        letter.costs.clone_from(&stored.costs);
        letter.metadata.clone_from(&stored.metadata);
    }
    core.telemetry.tell_dead(&letter);
    let kept = kept(core, outbox, job, payload, &letter);
    given_up(outbox, (job, None), letter, kept).await
}

/// Passes a letter to the handler, and ends its job. `known` is the number of the exchange whose outcome is known.
async fn given_up(
    outbox: &OutboxState,
    (job, known): (&Claimed, Option<i64>),
    letter: DeadLetter,
    kept: NewDead,
) -> Option<JobEnd> {
    let call = async {
        match &outbox.handler {
            Some(handler) => handler.given_up(Arc::new(letter)).await,
            None => true,
        }
    };
    end_after(outbox, (job.id, job.fence, known), call, |_| End::Dead(Box::new(kept))).await
}

/// Whether what is written about a job is sealed: because the vendor's entry says so, or because the job's request is
/// sealed.
fn seals(outbox: &OutboxState, payload: &Payload, tenant: Option<&Tenant>) -> bool {
    tenant.is_some_and(|tenant| tenant.vendor.at_rest == AtRest::Sealed) || payload.is_sealed(outbox)
}

/// How what is written about a job that has ended is kept: as the vendor's entry says, or as it said when the job was
/// accepted, whichever is stricter. The entry may be missing in this process.
fn at_rest(outbox: &OutboxState, payload: &Payload, tenant: Option<&Tenant>) -> AtRest {
    match tenant.map_or(AtRest::Plain, |tenant| tenant.vendor.at_rest) {
        _ if payload.stored().is_some_and(|stored| stored.redacted) => AtRest::Redacted,
        AtRest::Plain if payload.is_sealed(outbox) => AtRest::Sealed,
        entry => entry,
    }
}

/// Bytes of a stored request beyond which its letter shows the request's outline alone. The request is in the same row,
/// and a row with a large body twice could take longer to write than a transaction may.
const SHOWN_WHOLE: usize = 16 << 20;

fn kept(core: &Core, outbox: &OutboxState, job: &Claimed, payload: &Payload, letter: &DeadLetter) -> NewDead {
    log_letter(letter);
    let known = core.registry.route(&job.lane.tenant, &job.lane.vendor).map(|route| route.tenant().clone());
    let known = known.ok();
    let at_rest = at_rest(outbox, payload, known.as_deref());
    // The entry may have changed since the job was accepted, and show whole requests and responses in letters.
    let outline = (at_rest == AtRest::Redacted).then(|| {
        let mut outline = letter.redacted();
        for attempt in &mut outline.attempts {
            (attempt.answer, attempt.headers) = (None, KeptHeaders::default());
        }
        outline
    });
    // The request is kept whatever the letter shows, so that an accepted request can be sent again, unless it is
    // redacted.
    let request = if at_rest == AtRest::Redacted { None } else { payload.row(outbox, &job.id) };
    let is_large = request.as_ref().is_some_and(|row| row.len() > SHOWN_WHOLE);
    let outline = outline.or_else(|| is_large.then(|| letter.redacted()));
    let letter = outline.as_ref().unwrap_or(letter);
    NewDead {
        id: job.id,
        lane: job.lane.clone(),
        reason: letter.reason.as_str().to_owned(),
        letter: sealing::letter(&outbox.store, &job.id, letter, seals(outbox, payload, known.as_deref())),
        request,
        keep_result: job.keep_result,
        reply: payload.stored().filter(|stored| stored.reply).map(|stored| {
            replies::given_up(letter, &Wanted { to: stored.reply_to.clone(), is_plain: at_rest == AtRest::Plain })
        }),
    }
}

/// Reads the response, passes it to the handler, and returns the outcome to be written. Writes a reply if `told` asks
/// for one. Nothing is kept of a response whose body cannot be read: an empty body would pass for the vendor's.
async fn delivered(
    outbox: &OutboxState,
    job: &Claimed,
    (metadata, told): (BTreeMap<String, String>, Option<Wanted>),
    (response, kept_headers): (Response, KeptHeaders),
    at_rest: AtRest,
) -> Option<JobEnd> {
    let (status, attempts, headers) = (response.status(), response.attempts(), response.headers().clone());
    let read = response.bytes().await.inspect_err(|error| {
        // The vendor accepted the job, so a broken body does not change the outcome.
        tracing::warn!(id = %job.id.simple(), %error, "the body of a job's answer could not be read");
    });
    let id = job.id.simple().to_string();
    let reply = told.map(|wanted| {
        let answered = Answered {
            id: &id,
            tenant: &job.lane.tenant,
            vendor: &job.lane.vendor,
            metadata: &metadata,
            attempts,
            status: status.as_u16(),
            headers: &kept_headers,
            body: read.as_ref().ok(),
            wanted: &wanted,
        };
        answered.reply()
    });
    let kept = kept_headers.clone();
    let (body, body_is_whole) = (read.as_ref().cloned().unwrap_or_default(), read.is_ok());
    let end = |taken: bool| {
        let keeps = || outbox.handler.as_ref().is_some_and(|handler| handler.keeps(&id));
        let body = read.ok().filter(|_| !taken || job.keep_result && !keeps());
        let result = body.and_then(|body| KeptResponse::stored(&id, kept, &body));
        let result = result.and_then(|result| match at_rest {
            AtRest::Plain => Some(result),
            AtRest::Sealed => outbox.store.seal(&job.id, result),
            AtRest::Redacted => None,
        });
        End::Delivered { status: status.as_u16(), attempts, result, reply }
    };
    let call = async {
        let Some(handler) = &outbox.handler else { return true };
        let answer = Delivered {
            id: id.clone(),
            tenant: job.lane.tenant.clone(),
            vendor: job.lane.vendor.clone(),
            priority: priority(job.lane.tier),
            metadata,
            status,
            headers,
            kept_headers,
            body,
            body_is_whole,
            attempts,
        };
        handler.delivered(answer).await
    };
    end_after(outbox, (job.id, job.fence, None), call, end).await
}

#[cfg(test)]
mod tests;
