//! The pool in Redis or Valkey: one key per limit, with its ledger as text.
//!
//! A call reads its ledgers with one script and computes the answers. A second script writes each ledger that has not
//! changed since. The call is repeated for a ledger that another process has written in between.
//!
//! A call that fails leaves its connection, whatever the failure. A server that has become a replica refuses each write
//! and keeps the connection, and a machine that has vanished does not end it: only a new connection reaches the server
//! that has taken its place.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, InfoDict, RedisError, Script, Value};

use super::call::{Answer, Call, LineAnswer};
use super::eras::{Round, Seen, round};
use super::unique_number;
use crate::error::Error;

/// Limits that one script reads or writes at most: the server does nothing else while a script runs.
const AT_ONCE: usize = 256;
/// The most rounds of one call. One round is enough unless another process calls within the same millisecond.
const ROUNDS: u32 = 32;
/// The longest wait for a connection or for an answer.
const WAIT: Duration = Duration::from_secs(1);

/// All keys have the same hash tag, so that a cluster would keep them on one server, as a script requires.
pub(super) const ERA: &str = "{integration-client}:era";
pub(super) const LIMIT: &str = "{integration-client}:limit:";

/// KEYS: the era, the limits. Returns the id of the server's run, its clock in seconds and microseconds, and the texts.
const READ: &str = "
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local clock = redis.call('TIME')
return {run, clock[1], clock[2], redis.call('MGET', unpack(KEYS))}
";

/// KEYS: the era, the limits. ARGV: the run and the era that were read, the era to write, and for each limit the text
/// that was read, the text to write, and its time to live in milliseconds. Returns for each limit 1 if it was written
/// and 0 if not; returns an empty list if the run or the era has changed.
const WRITE: &str = "
if string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') ~= ARGV[1] then return {} end
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[2] then return {} end
if ARGV[3] ~= ARGV[2] then redis.call('SET', KEYS[1], ARGV[3]) end
local written = {}
for i = 2, #KEYS do
    local at = 3 * i - 2
    written[i - 1] = 0
    if (redis.call('GET', KEYS[i]) or '') == ARGV[at] then
        redis.call('SET', KEYS[i], ARGV[at + 1], 'PX', ARGV[at + 2])
        written[i - 1] = 1
    end
end
return written
";

/// The keys with which a test sets the clock: seconds, and microseconds beyond them.
#[cfg(test)]
pub(super) const TEST_CLOCK: [&str; 2] = ["{integration-client}:seconds", "{integration-client}:micros"];

/// The server, and the connection to it.
pub(crate) struct Redis {
    client: Client,
    /// The connection of the last call, if that call succeeded or made it and was dropped by its caller. A call takes the
    /// connection out and puts it back at the end, so a call that fails, or is dropped with an older connection, leaves
    /// none to the next one, which connects anew.
    connection: Mutex<Option<MultiplexedConnection>>,
    read: Script,
    write: Script,
}

pub(super) async fn open(url: &str) -> Result<Redis, Error> {
    let client = Client::open(url).map_err(failed)?;
    let mut connection = connect(&client).await?;
    let redis = Redis { client, connection: Mutex::new(None), read: Script::new(READ), write: Script::new(WRITE) };
    // Fails now if the user may not run scripts.
    redis.read(&mut connection, &[]).await.map_err(failed)?;
    *redis.connection.lock() = Some(connection);
    Ok(redis)
}

/// The URL contains a password, so no error shows it.
fn failed(error: RedisError) -> Error {
    Error::config(format!("sharing through Redis: {error}")).with_source(error)
}

/// Connects to the server, and checks that it can keep a pool.
async fn connect(client: &Client) -> Result<MultiplexedConnection, Error> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(WAIT)).set_response_timeout(Some(WAIT));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;
    let info: InfoDict = redis::cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
    match problem(|name| info.get::<String>(name)) {
        Some(problem) => Err(Error::config(format!("sharing through Redis: {problem}"))),
        None => Ok(connection),
    }
}

/// Why a server with this `INFO` cannot keep a pool, or `None` if it can.
fn problem(info: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is = |name: &str, value: &str| info(name).is_some_and(|is| is == value);
    let version = info("redis_version").unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if major < 5 {
        return Some(format!("version {version:?} is too old; use 5 or later"));
    }
    if is("cluster_enabled", "1") {
        return Some(
            "a cluster redirects its clients, which is not supported; use a server without cluster mode".into(),
        );
    }
    if is("role", "slave") {
        return Some("the server is a replica, and takes no writes; name the primary".into());
    }
    let policy = info("maxmemory_policy").unwrap_or_default();
    if policy != "noeviction" && !is("maxmemory", "0") {
        return Some(format!(
            "maxmemory-policy is {policy}, which may delete what processes hold, and others would get it a second time; \
             set it to noeviction, or use a server of its own"
        ));
    }
    None
}

impl Redis {
    /// The same pool with the clock of a test instead of the server's.
    #[cfg(test)]
    pub(super) fn by_the_clock_of_a_test(self) -> Redis {
        let [seconds, micros] = TEST_CLOCK;
        let read = READ.replace("redis.call('TIME')", &format!("redis.call('MGET', '{seconds}', '{micros}')"));
        Redis { read: Script::new(&read), ..self }
    }

    /// Answers a call. A limit that other processes keep writing fails alone. The call fails if all of its lines fail.
    pub(super) async fn exchange(&self, call: &Call) -> Result<Answer, String> {
        let kept = self.connection.lock().take();
        let mut connection = match kept {
            Some(connection) => connection,
            None => {
                let fresh = connect(&self.client).await.map_err(|error| error.to_string())?;
                // On a slow link the time of the call may be over before its end; the next call then has the connection.
                *self.connection.lock() = Some(fresh.clone());
                fresh
            }
        };
        let answer = self.try_exchange(&mut connection, call).await;
        *self.connection.lock() = answer.is_ok().then_some(connection);
        answer.map_err(|error| error.to_string())?.checked()
    }

    async fn try_exchange(&self, connection: &mut MultiplexedConnection, call: &Call) -> Result<Answer, RedisError> {
        let mut answer = Answer { clock_us: 0, read_at: None, got: vec![Ok(None); call.lines.len()] };
        let all: Vec<usize> = (0..call.lines.len()).collect();
        for part in all.chunks(AT_ONCE) {
            let mut asked = part.to_vec();
            for _ in 0..ROUNDS {
                if asked.is_empty() {
                    break;
                }
                asked = self.one_round(connection, call, asked, &mut answer).await?;
            }
            for line in asked {
                let why = format!(
                    "other processes wrote the same limit during {ROUNDS} tries; \
                     use fewer processes or a longer `sharing_lease`"
                );
                set(&mut answer.got, line, Err(why));
            }
        }
        Ok(answer)
    }

    /// Reads the ledgers of the lines `asked`, answers them and writes them. Returns the lines that have to be asked
    /// again.
    async fn one_round(
        &self,
        connection: &mut MultiplexedConnection,
        call: &Call,
        asked: Vec<usize>,
        answer: &mut Answer,
    ) -> Result<Vec<usize>, RedisError> {
        let names: Vec<&str> = asked.iter().filter_map(|line| Some(call.lines.get(*line)?.limit.as_str())).collect();
        let waited_us = call.waited_us();
        let seen = Seen { waited_us, ..self.read(connection, &names).await? };
        let read_at = call.now();
        let round = round(call, &asked, &seen, unique_number());
        let written = self.write(connection, &names, &seen, &round).await?;
        (answer.clock_us, answer.read_at) = (seen.clock_us, read_at);
        let mut again = Vec::new();
        for (place, (line, write)) in asked.into_iter().zip(round.writes).enumerate() {
            match written.get(place) {
                Some(1) => set(&mut answer.got, line, Ok(write.got)),
                _ => again.push(line),
            }
        }
        Ok(again)
    }

    async fn read(&self, connection: &mut MultiplexedConnection, names: &[&str]) -> Result<Seen, RedisError> {
        let mut script = self.read.prepare_invoke();
        script.key(ERA);
        for name in names {
            script.key(format!("{LIMIT}{name}"));
        }
        type Read = (String, u64, u64, Vec<Value>);
        let (run, seconds, micros, texts): Read = script.invoke_async(connection).await?;
        let mut texts = texts.iter().map(redis::from_redis_value_ref::<Option<String>>);
        let era = texts.next().transpose()?.flatten().unwrap_or_default();
        let kept = texts.map(|text| Ok(text?.unwrap_or_default())).collect::<Result<_, RedisError>>()?;
        let clock_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        Ok(Seen { run, clock_us, era, kept, ..Seen::default() })
    }

    async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        names: &[&str],
        seen: &Seen,
        round: &Round,
    ) -> Result<Vec<u8>, RedisError> {
        let mut script = self.write.prepare_invoke();
        script.key(ERA).arg(&seen.run).arg(&seen.era).arg(&round.era);
        for ((name, kept), write) in names.iter().zip(&seen.kept).zip(&round.writes) {
            script.key(format!("{LIMIT}{name}")).arg(kept).arg(&write.text).arg(write.keep_ms);
        }
        script.invoke_async(connection).await
    }
}

fn set(got: &mut [LineAnswer], line: usize, answer: LineAnswer) {
    if let Some(place) = got.get_mut(line) {
        *place = answer;
    }
}

#[cfg(test)]
mod tests;
