//! The usual way to share a limit: each send first asks Redis, which counts the send at that moment.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;

use super::{CALLERS, CLIENTS, LIMIT, RUN, SECOND, vendor};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// One counter per second.
    FixedWindow,
    /// A log of the sends in the last second.
    SlidingWindow,
}

/// Both scripts return 0 if the request may be sent, and otherwise the milliseconds until the caller may ask again.
const FIXED_WINDOW: &str = "local now = redis.call('TIME') \
    local ms = now[1] * 1000 + math.floor(now[2] / 1000) \
    local key = KEYS[1] .. ':' .. now[1] \
    if redis.call('INCR', key) <= tonumber(ARGV[1]) then redis.call('PEXPIRE', key, 2000) return 0 end \
    return 1000 - ms % 1000";
const SLIDING_LOG: &str = "local now = redis.call('TIME') \
    local us = now[1] * 1000000 + now[2] \
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', us - 1000000) \
    if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[1]) then \
        redis.call('ZADD', KEYS[1], us, ARGV[2]) redis.call('PEXPIRE', KEYS[1], 2000) return 0 end \
    local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES') \
    return math.max(1, math.ceil((tonumber(oldest[2]) + 1000000 - us) / 1000))";

/// Runs four clients with twenty callers each, which together ask for `units` per second.
pub(crate) async fn run(redis: &str, kind: Kind, units: u32) {
    let vendor = vendor(SECOND).await;
    let url = vendor.url();
    let (name, script) = match kind {
        Kind::FixedWindow => ("fixed", FIXED_WINDOW),
        Kind::SlidingWindow => ("log", SLIDING_LOG),
    };
    let key = format!("bench:{name}:{}:{units}", std::process::id());
    let ends = Instant::now() + RUN;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let connection = redis::Client::open(redis).unwrap().get_multiplexed_async_connection().await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for _ in 0..CALLERS {
            let (mut connection, http, url, key) = (connection.clone(), http.clone(), url.clone(), key.clone());
            callers.spawn(async move {
                let mut added = Vec::new();
                while Instant::now() < ends {
                    let began = Instant::now();
                    let wait = ask(&mut connection, script, &key, units).await;
                    added.push(began.elapsed());
                    if wait == 0 {
                        http.get(format!("{url}/orders")).header("x-tenant", "acme").send().await.unwrap();
                    } else {
                        tokio::time::sleep(Duration::from_millis(wait)).await;
                    }
                }
                added
            });
        }
    }
    let mut added = callers.join_all().await.concat();
    added.sort_unstable();
    let summary = vendor.summary();
    let reached = summary.admitted as f64 / RUN.as_secs_f64() / f64::from(LIMIT) * 100.0;
    println!(
        "counted: processes={CLIENTS} limit={LIMIT}/1s store=redis kind={name} units={units} reached={reached:.1} refused={} \
         added_us={} asks_per_s={:.1}",
        vendor.refused(),
        added[added.len() / 2].as_micros(),
        added.len() as f64 / RUN.as_secs_f64(),
    );
}

async fn ask(connection: &mut MultiplexedConnection, script: &str, key: &str, units: u32) -> u64 {
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(1).arg(key).arg(units).arg(fastrand::u64(..));
    command.query_async(connection).await.unwrap()
}
