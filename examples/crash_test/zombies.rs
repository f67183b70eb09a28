//! Workers that are stopped for longer than their lease and then go on.
//!
//! With PostgreSQL, four workers run, of which three are stopped together. The fourth takes over their jobs, and what
//! the three write about these jobs when they go on must have no effect, unless it is the outcome of an exchange. A
//! trigger checks this: it records which connection made the latest claim of a job, and every other write about the job
//! that comes over another connection. With SQLite, one worker runs, and no other process takes its jobs.

use std::time::Duration;

use integration_client::testing::Delay;

use crate::judge::{Judge, World};
use crate::process::Worker;
use crate::worker::client;
use crate::{Fallible, Options, database};

const AUDIT: &str = "
CREATE TABLE audit_claim (id BYTEA PRIMARY KEY, fence BIGINT NOT NULL, backend INT NOT NULL);
CREATE TABLE audit_stale (id BYTEA NOT NULL, what TEXT NOT NULL);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.fence <> OLD.fence AND NEW.state = 1 THEN
        INSERT INTO audit_claim VALUES (NEW.id, NEW.fence, pg_backend_pid())
            ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, backend = excluded.backend;
    ELSIF TG_OP = 'DELETE' OR NEW.fence = OLD.fence AND (NEW.started <> OLD.started OR NEW.run_at <> OLD.run_at) THEN
        -- What an exchange came to is true whoever has the job: a delivery, a rejection, or a refusal, for which the fence goes up.
        INSERT INTO audit_stale SELECT OLD.id, TG_OP WHERE NOT EXISTS (SELECT 1 FROM audit_claim c
            WHERE c.id = OLD.id AND c.fence = OLD.fence AND c.backend = pg_backend_pid())
            AND NOT EXISTS (SELECT 1 FROM ic_done d WHERE d.id = OLD.id)
            AND NOT EXISTS (SELECT 1 FROM ic_dead d WHERE d.id = OLD.id AND d.reason <> 'ambiguous');
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit AFTER UPDATE OR DELETE ON ic_job DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit();
";

pub(crate) fn run(options: &Options, zombies: u32) -> Fallible<bool> {
    let service = Delay::fixed(Duration::from_millis(50)).jitter(Duration::from_millis(200));
    let is_shared = options.store == "postgres";
    let workers = if is_shared { 4 } else { 1 };
    let world = World { limit: if is_shared { 240 } else { 60 }, service, lease: Duration::from_secs(2), workers };
    let mut judge = Judge::new(options, &world)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    if is_shared {
        // The tables and the trigger must exist before a worker uses them.
        drop(judge.runtime.block_on(client(&judge.orders, false))?);
        judge.runtime.block_on(database::run(&judge.orders.store, AUDIT))?;
    }
    let mut working: Vec<Worker> =
        (0..workers).map(|number| judge.start(&number.to_string())).collect::<Fallible<_>>()?;
    let together = working.len().saturating_sub(1).max(1);
    let mut made = 0;
    while made < zombies {
        std::thread::sleep(Duration::from_millis(random.u64(300..900)));
        random.shuffle(&mut working);
        let stopped = &working[..together.min((zombies - made) as usize)];
        stopped.iter().try_for_each(|worker| worker.signal("-STOP"))?;
        // By then, the store has processed what the workers sent before they were stopped.
        std::thread::sleep(Duration::from_millis(300));
        judge.count_begun()?;
        // Other workers notice at most half a second after the lease.
        std::thread::sleep(world.lease + Duration::from_millis(random.u64(200..900)));
        stopped.iter().try_for_each(|worker| worker.signal("-CONT"))?;
        made += u32::try_from(stopped.len())?;
        let lines: Vec<String> = working.iter().flat_map(|worker| worker.heard()).map(|(_, line)| line).collect();
        judge.hear(lines);
        if made % 30 < 3 {
            println!("crash-test: {made} zombies, {} exchanges under way at them", judge.in_flight.len());
        }
    }
    std::thread::sleep(Duration::from_millis(1_000));
    judge.count_begun()?;
    for worker in working {
        let ended = worker.finish()?;
        judge.bury(ended);
    }
    judge.count_begun()?;
    let stale = match is_shared {
        true => judge.count("SELECT count(*) FROM audit_stale")?,
        // No other process can have claimed a job.
        false => 0,
    };
    println!("crash-test: {} words of zombies about jobs that were another's were refused", judge.outdated);
    let more = format!(" stale_acks={stale}");
    Ok(judge.verdict(&format!("zombies={made}"), &more, false)? && stale == 0)
}
