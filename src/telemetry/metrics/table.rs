//! Every metric: the one list from which the code, `docs/METRICS.md` and the dashboard are generated.

use super::metric::{Kind, Metric, Unit, metric};

pub(super) const REQUESTS: Metric = metric(
    "integration_client_requests_total",
    Kind::Counter,
    Unit::Count,
    &["vendor", "priority", "outcome"],
    "Sends that ended: `completed` (a response of any status), `cancelled` (the caller went away), or the kind of \
     error. A send for an unknown tenant or vendor counts under the vendor `unknown`.",
);
pub(super) const ATTEMPTS: Metric = metric(
    "integration_client_attempts_total",
    Kind::Counter,
    Unit::Count,
    &["vendor", "outcome"],
    "Exchanges, retries included, by class of status (`2xx` …) or kind of error.",
);
pub(super) const DURATION: Metric = metric(
    "http_client_request_duration_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["vendor", "http_request_method", "http_response_status_code", "error_type"],
    "The time from the start of an exchange to the headers of its response, or to its failure; OpenTelemetry's \
     `http.client.request.duration`. A response below 400 has the label `http_response_status_code`, a failure has \
     `error_type`, and any other response has both.",
);
pub(super) const WAIT: Metric = metric(
    "integration_client_wait_seconds",
    Kind::Histogram,
    Unit::Seconds,
    &["vendor", "priority"],
    "The time that an attempt waited for its permit; 0 where the permit was granted at once.",
);
pub(super) const QUEUE: Metric = metric(
    "integration_client_queue_depth",
    Kind::Gauge,
    Unit::Count,
    &["vendor", "priority"],
    "Requests that wait for a permit.",
);
pub(super) const IN_FLIGHT: Metric = metric(
    "integration_client_in_flight",
    Kind::Gauge,
    Unit::Count,
    &["vendor"],
    "Permits in use: from the start of an exchange until its body has been read or dropped.",
);
pub(super) const PERMITS: Metric = metric(
    "integration_client_permits_total",
    Kind::Counter,
    Unit::Count,
    &["vendor", "outcome"],
    "Permits `started`, and how they ended: `finished`, `not_sent` (given back), `abandoned` (its owner went away).",
);
pub(super) const HEADROOM: Metric = metric(
    "integration_client_headroom_ratio",
    Kind::Gauge,
    Unit::Ratio,
    &["vendor"],
    "The remaining share of the tightest limit, by the client's own count or by the vendor's announcement, whichever \
     is lower: the lowest of all lanes in the last second with a response.",
);
pub(super) const HEADROOM_AVERAGE: Metric = metric(
    "integration_client_headroom_average_ratio",
    Kind::Gauge,
    Unit::Ratio,
    &["vendor"],
    "The mean of `integration_client_headroom_ratio` over the last five minutes; 1 after five minutes without a request. \
     If requests came and none got a response, the mean before stays. Below 0.2 a higher plan or batching would help; the \
     log says so too, once an hour.",
);
pub(super) const RATE: Metric = metric(
    "integration_client_requests_per_second",
    Kind::Gauge,
    Unit::PerSecond,
    &["vendor"],
    "Responses below 400 per second of the time in which any exchange was in flight, over the last ten seconds.",
);
pub(super) const MEAN: Metric = metric(
    "integration_client_response_mean_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &["vendor"],
    "The mean time to the responses that `integration_client_requests_per_second` counts.",
);
pub(super) const REFUSALS: Metric = metric(
    "integration_client_refusals_total",
    Kind::Counter,
    Unit::Count,
    &["vendor"],
    "Attempts that the vendor refused temporarily: with a 429, or with a response that a classifier counts as one.",
);
pub(super) const DEAD_LETTERS: Metric = metric(
    "integration_client_dead_letters_total",
    Kind::Counter,
    Unit::Count,
    &["vendor", "reason"],
    "Requests that were given up.",
);
pub(super) const THROTTLE: Metric = metric(
    "integration_client_throttle_ratio",
    Kind::Gauge,
    Unit::Ratio,
    &["vendor"],
    "The fraction of its usual rate at which the slowest lane sends, because the vendor had little quota left or \
     accepted less than its limit; 1 where no lane is slowed down. Each announced value counts for one window.",
);
pub(super) const PAUSES: Metric = metric(
    "integration_client_pauses_total",
    Kind::Counter,
    Unit::Count,
    &["vendor"],
    "Pauses of lanes by a refusal, failures in a row, an exhausted limit or an operator.",
);
pub(super) const PAUSED: Metric =
    metric("integration_client_paused_lanes", Kind::Gauge, Unit::Count, &["vendor"], "Lanes that are paused now.");
pub(super) const HOSTS: Metric = metric(
    "integration_client_hosts_open",
    Kind::Gauge,
    Unit::Count,
    &[],
    "Hosts whose circuit breaker is open, because no connection could be made; one probe at a time is let through. \
     Hosts that nobody has tried for two minutes are left out.",
);
pub(super) const OPENINGS: Metric = metric(
    "integration_client_breaker_openings_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Times that the circuit breaker of a host opened.",
);
pub(super) const CONFIG: Metric = metric(
    "integration_client_config_version",
    Kind::Gauge,
    Unit::Count,
    &[],
    "The version of the configuration in use.",
);
pub(super) const CONFIG_AGE: Metric = metric(
    "integration_client_config_age_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "How long ago the source of the configuration last answered, whether with something new or not; absent where the client \
     does not look by itself.",
);
pub(super) const CONFIG_PROBLEM: Metric = metric(
    "integration_client_config_problem",
    Kind::Gauge,
    Unit::Count,
    &["kind"],
    "1 while the configuration in use is not what its sources hold, and 0 otherwise: because a source cannot be read \
     (`unreadable`: a server is away, a file is missing or empty), or because what it holds is not valid (`invalid`), and \
     what was valid before stays in use, or a row is left out.",
);
pub(super) const REJECTED: Metric = metric(
    "integration_client_config_rejected_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Reloads that were refused because the new configuration was invalid.",
);
pub(super) const MISSED: Metric = metric(
    "integration_client_events_missed_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Events that were dropped because a listener was too slow.",
);
pub(super) const STORE: Metric = metric(
    "integration_client_store_failures_total",
    Kind::Counter,
    Unit::Count,
    &["work"],
    "Failures of the store, by kind of work: `accept` (jobs), `claim` (jobs), `start` (records of exchanges), `end` \
     (outcomes of jobs), `keep` (leases and maintenance), `read`.",
);
pub(super) const STORE_TIME: Metric = metric(
    "integration_client_store_mean_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &["work"],
    "The mean time of the store's calls in the last second with any, from the caller's asking to the commit, by kind of work.",
);
pub(super) const WRITABLE: Metric = metric(
    "integration_client_store_writable",
    Kind::Gauge,
    Unit::Count,
    &[],
    "1 while the store can be written, 0 while any kind of write fails; returns to 1 after 150 s without a try.",
);
pub(super) const BACKLOG: Metric = metric(
    "integration_client_outbox_waiting",
    Kind::Gauge,
    Unit::Count,
    &["priority"],
    "Accepted requests that wait in the store, whichever process accepted them; counted every ten seconds, and less often \
     where the count takes long.",
);
pub(super) const BACKLOG_AGE: Metric = metric(
    "integration_client_outbox_oldest_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "How long the accepted request that waits longest has been due. A request that is postponed is not due before its next \
     attempt: `integration_client_outbox_oldest_accepted_seconds` covers it.",
);
pub(super) const OLDEST_JOB: Metric = metric(
    "integration_client_outbox_oldest_accepted_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "How long ago the oldest request was accepted that has not ended, whether it waits, is due or is under way: also one \
     that is postponed again and again. A dead letter that is sent again counts from then.",
);
pub(super) const REPLIES: Metric = metric(
    "integration_client_outbox_replies",
    Kind::Gauge,
    Unit::Count,
    &[],
    "Replies in the store that no reader has taken and no target has got; counted together with the requests that wait.",
);
pub(super) const REPLY_AGE: Metric = metric(
    "integration_client_outbox_oldest_reply_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "The age of the oldest of these replies.",
);
pub(super) const IN_HAND: Metric = metric(
    "integration_client_outbox_in_hand",
    Kind::Gauge,
    Unit::Count,
    &[],
    "Accepted requests that this process has claimed and not ended.",
);
pub(super) const JOBS: Metric = metric(
    "integration_client_outbox_ended_total",
    Kind::Counter,
    Unit::Count,
    &["outcome"],
    "Claims that this process ended: `delivered`, `dead` (given up), `later` (refused or failed, and back in the store).",
);
pub(super) const LETTERS_DROPPED: Metric = metric(
    "integration_client_outbox_letters_dropped_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Dead letters that this process deleted, with their requests, because the store held more than `max_dead`. Letters that are \
     older than `keep_dead` are not counted.",
);
pub(super) const INTAKE_TAKEN: Metric = metric(
    "integration_client_intake_taken_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Messages of brokers, and rows of `ic_intake`, that this process turned into accepted requests. A redelivery \
     counts once.",
);
pub(super) const INTAKE_REFUSED: Metric = metric(
    "integration_client_intake_refused_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Messages and rows that are no valid request, and went to the broker's dead letters or to `ic_intake_refused`.",
);
pub(super) const INTAKE_LAG: Metric = metric(
    "integration_client_intake_lag_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "The longest time that a message or row of the last second had been in its source when it was fetched; 0 where \
     none came, or the source does not say.",
);
pub(super) const SHARED_LIMITS: Metric = metric(
    "integration_client_sharing_limits",
    Kind::Gauge,
    Unit::Count,
    &[],
    "Shared limits of which this process holds units, or wants some.",
);
pub(super) const SHARING_DOWN: Metric = metric(
    "integration_client_sharing_degraded",
    Kind::Gauge,
    Unit::Count,
    &[],
    "1 while the store of shared units does not answer, or has lost its data and this process lacks units for that \
     reason; 0 while it works.",
);
pub(super) const SHARING_MODE: Metric = metric(
    "integration_client_sharing_mode",
    Kind::Gauge,
    Unit::Count,
    &[],
    "What a process that shares limits sends by: 0 while the store of shared units answers, 1 while units are missing \
     because the store has lost its data, 2 the lease, 3 the floor, 4 nothing.",
);
pub(super) const SHARING_LEFT: Metric = metric(
    "integration_client_sharing_left_seconds",
    Kind::Gauge,
    Unit::Seconds,
    &[],
    "How long this process may send under shared limits without another response of the store, by its lease or its \
     floor.",
);
pub(super) const SHARING_FAILURES: Metric = metric(
    "integration_client_sharing_failures_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Calls to the store of shared units that failed, or were not answered in time (1 s; etcd and ZooKeeper 2 s, object stores 5 s).",
);
pub(super) const SHARING_LOST: Metric = metric(
    "integration_client_sharing_leases_lost_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Times that the store took back this process's units, because its lease had ended.",
);

pub(super) const GATEWAY: Metric = metric(
    "integration_client_gateway_requests_total",
    Kind::Counter,
    Unit::Count,
    &["outcome"],
    "Requests for vendors to a gateway: `answered` (by the vendor, or accepted for later), `not_sent`, `ambiguous` (nobody knows \
     whether the vendor acted), `unauthorized` (no token, or a wrong one).",
);
pub(super) const GATEWAY_CONNECTIONS: Metric =
    metric("integration_client_gateway_connections", Kind::Gauge, Unit::Count, &[], "Open connections to a gateway.");
pub(super) const GATEWAY_FULL: Metric = metric(
    "integration_client_gateway_turned_away_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Connections to a gateway that were answered 503, because it had as many as it may have.",
);

pub(super) const CLEANUPS: Metric = metric(
    "integration_client_cleanups_total",
    Kind::Counter,
    Unit::Count,
    &["outcome"],
    "Scheduled cleanups: `done`, or `failed` where the source of active tenants could not list them.",
);
pub(super) const RETIRED: Metric = metric(
    "integration_client_tenants_retired_total",
    Kind::Counter,
    Unit::Count,
    &[],
    "Tenants that scheduled cleanups retired.",
);

/// Every metric that the client exports.
pub const METRICS: &[Metric] = &[
    REQUESTS,
    ATTEMPTS,
    DURATION,
    WAIT,
    QUEUE,
    IN_FLIGHT,
    PERMITS,
    HEADROOM,
    HEADROOM_AVERAGE,
    RATE,
    MEAN,
    REFUSALS,
    DEAD_LETTERS,
    THROTTLE,
    PAUSES,
    PAUSED,
    HOSTS,
    OPENINGS,
    GATEWAY,
    GATEWAY_CONNECTIONS,
    GATEWAY_FULL,
    CONFIG,
    CONFIG_AGE,
    CONFIG_PROBLEM,
    REJECTED,
    MISSED,
    STORE,
    STORE_TIME,
    WRITABLE,
    BACKLOG,
    BACKLOG_AGE,
    OLDEST_JOB,
    REPLIES,
    REPLY_AGE,
    IN_HAND,
    JOBS,
    LETTERS_DROPPED,
    INTAKE_TAKEN,
    INTAKE_REFUSED,
    INTAKE_LAG,
    SHARED_LIMITS,
    SHARING_DOWN,
    SHARING_MODE,
    SHARING_LEFT,
    SHARING_FAILURES,
    SHARING_LOST,
    CLEANUPS,
    RETIRED,
];
