//! Disturbs the programs, the vendors and the store during a run. The seed decides which disturbance begins next and
//! when it ends.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use integration_client::testing::{FakeVendor, Fault, Outage, When};

use super::judge::{Record, Span};
use super::process::Worker;
use super::program::Orders;
use super::settling::tell;
use super::stalls::{self, Holding};
use super::world::{self, Settings, vendors};
use super::{Fallible, Options, database};

/// The sender's part of every limit. All workers together have the rest.
const SENDERS_SHARE: f64 = 0.5;

/// The kinds of disturbances. A kind that is listed twice is twice as likely.
pub(crate) const KINDS: [&str; 10] =
    ["reload", "malformed", "move", "move", "move", "clock", "stall", "outage", "kill", "kill"];

struct Program {
    orders: Orders,
    config: PathBuf,
    /// `None` between a kill and the next start.
    process: Option<Worker>,
    lives: u32,
}

/// How a disturbance that has begun ends.
enum End {
    Outage(usize),
    Stall(Holding),
    Start(usize),
}

pub(crate) struct Director<'a> {
    options: &'a Options,
    pub(super) runtime: &'a tokio::runtime::Runtime,
    began: Instant,
    random: fastrand::Rng,
    pub(super) folder: PathBuf,
    pub(super) store: String,
    settings: Settings,
    urls: Vec<String>,
    /// Each vendor, and the time of the run at which its clock began, in nanoseconds.
    pub(super) vendors: Vec<(FakeVendor, u64)>,
    /// The sender, followed by the workers.
    programs: Vec<Program>,
    ends: Vec<(Instant, End)>,
    /// The outages of each vendor. An outage that has not ended yet ends at `u64::MAX`.
    pub(super) outages: Vec<Vec<Span>>,
    pub(super) record: Record,
    /// Errors of the soak itself.
    pub(super) problems: Vec<String>,
}

impl<'a> Director<'a> {
    pub(crate) fn new(options: &'a Options, runtime: &'a tokio::runtime::Runtime) -> Fallible<Director<'a>> {
        let folder = std::env::temp_dir().join(format!("ic-soak-{}-{}", options.store, std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let store = match options.store.as_str() {
            "sqlite" => format!("sqlite:{}", folder.join("outbox.db").display()),
            "postgres" => runtime.block_on(database::empty("soak"))?,
            other => return Err(format!("--store {other}: sqlite or postgres").into()),
        };
        // A SQLite store can have only one worker.
        let workers = if options.store == "sqlite" { 1 } else { 2 };
        let began = Instant::now();
        let mut running = Vec::new();
        for plan in vendors() {
            let vendor = runtime.block_on(plan.start(options.seed))?;
            running.push((vendor, u64::try_from(began.elapsed().as_nanos())?));
        }
        let programs = (0..=workers).map(|number| {
            let works = number > 0;
            let config = folder.join(format!("vendors-{number}.toml"));
            let share = if works { (1.0 - SENDERS_SHARE) / f64::from(workers) } else { SENDERS_SHARE };
            let orders = Orders {
                run: String::new(),
                store: store.clone(),
                config: config.clone(),
                share,
                works,
                seed: 0,
                clock_ms: 0,
            };
            Program { orders, config, process: None, lives: 0 }
        });
        let programs = programs.collect();
        let urls = running.iter().map(|(vendor, _)| vendor.url()).collect();
        let mut director = Director {
            options,
            runtime,
            began,
            random: fastrand::Rng::with_seed(options.seed),
            folder,
            store,
            settings: Settings::new(),
            urls,
            vendors: running,
            programs,
            ends: Vec::new(),
            outages: vec![Vec::new(); vendors().len()],
            record: Record::default(),
            problems: Vec::new(),
        };
        for number in 0..director.programs.len() {
            director.start(number)?;
        }
        Ok(director)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn note(&self, what: &str) {
        if self.options.verbose {
            println!("soak: {:>7} ms: {what}", self.began.elapsed().as_millis());
        }
    }

    fn write_configs(&self) -> Fallible<()> {
        for program in &self.programs {
            world::replace_file(&program.config, &self.settings.toml(&self.urls, program.orders.share))?;
        }
        Ok(())
    }

    fn start(&mut self, number: usize) -> Fallible<()> {
        // A program needs a valid configuration to start, so this replaces malformed ones.
        self.write_configs()?;
        let seed = self.random.u64(..);
        // Some programs restart with a wrong wall clock.
        let clock_ms = if self.random.u32(..3) == 0 && self.programs[number].lives > 0 && !self.is_left_out("clock") {
            self.step()
        } else {
            0
        };
        let program = &mut self.programs[number];
        program.orders.run = format!("{number}.{}", program.lives);
        program.orders.seed = seed;
        program.orders.clock_ms = clock_ms;
        program.lives += 1;
        program.process = Some(program.orders.start(self.options.child_arguments)?);
        self.note(&format!("program {number} started, its clock {clock_ms} ms off"));
        Ok(())
    }

    fn is_left_out(&self, kind: &str) -> bool {
        self.options.without.iter().any(|without| without == kind)
    }

    fn step(&mut self) -> i64 {
        const HOUR: i64 = 3_600_000;
        [HOUR, -HOUR, 24 * HOUR, -24 * HOUR][self.random.usize(..4)]
    }

    /// Begins disturbances until `seconds` have passed, and then ends all of them.
    pub(crate) fn disturb(&mut self, seconds: u64) -> Fallible<()> {
        let until = self.began + Duration::from_secs(seconds);
        let mut next = Instant::now();
        while Instant::now() < until {
            if Instant::now() >= next {
                self.begin_something()?;
                next = Instant::now() + Duration::from_millis(self.random.u64(100..1_200));
            }
            while let Some(place) = self.ends.iter().position(|(at, _)| *at <= Instant::now()) {
                let (_, end) = self.ends.swap_remove(place);
                self.end(end)?;
            }
            self.hear();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.note("all disturbances end");
        // Stalls of the store end first, because programs can start only when the store answers.
        let (stalls, others) =
            std::mem::take(&mut self.ends).into_iter().partition::<Vec<_>, _>(|(_, end)| matches!(end, End::Stall(_)));
        for (_, end) in stalls.into_iter().chain(others) {
            self.end(end)?;
        }
        Ok(())
    }

    fn end_in(&mut self, ms: u64, end: End) {
        self.ends.push((Instant::now() + Duration::from_millis(ms), end));
    }

    fn begin_something(&mut self) -> Fallible<()> {
        let kinds: Vec<&str> = KINDS.into_iter().filter(|kind| !self.is_left_out(kind)).collect();
        let Some(kind) = kinds.get(self.random.usize(..kinds.len().max(1))) else { return Ok(()) };
        match *kind {
            "reload" => {
                let what = self.settings.vary(&mut self.random);
                self.note(&what);
                self.write_configs()
            }
            "malformed" => {
                self.note("the configuration is malformed");
                let broken = self.random.usize(..self.programs.len());
                world::replace_file(&self.programs[broken].config, "[vendors.parcels")
            }
            "move" => {
                if let Some((tenant, account)) = self.settings.move_tenant(&mut self.random) {
                    self.note(&format!("{tenant} belongs to account {account}"));
                    self.record.moves.push((self.now(), tenant));
                }
                self.write_configs()
            }
            "clock" => {
                let (number, by_ms) = (self.random.usize(..self.programs.len()), self.step());
                self.note(&format!("the clock of program {number} steps by {by_ms} ms"));
                match &mut self.programs[number].process {
                    Some(process) => process.tell(&format!("step {by_ms}")),
                    None => Ok(()),
                }
            }
            "stall" => self.stall(),
            "outage" => self.outage(),
            _ => self.kill(),
        }
    }

    fn is_stalled(&self) -> bool {
        self.ends.iter().any(|(_, end)| matches!(end, End::Stall(_)))
    }

    fn stall(&mut self) -> Fallible<()> {
        if self.is_stalled() {
            return Ok(());
        }
        let kinds = stalls::kinds(&self.store);
        let kind = kinds[self.random.usize(..kinds.len())];
        let from = self.now();
        let holding = self.runtime.block_on(stalls::begin(&self.store, kind))?;
        let ms = self.random.u64(500..5_000);
        self.note(&format!("the store is {kind:?} for {ms} ms"));
        self.record.stalls.push(Span { from, until: u64::MAX });
        self.end_in(ms, End::Stall(holding));
        Ok(())
    }

    fn outage(&mut self) -> Fallible<()> {
        let number = self.random.usize(..self.vendors.len());
        if self.outages[number].last().is_some_and(|last| last.until == u64::MAX) {
            return Ok(());
        }
        let ms = self.random.u64(50..2_500);
        let from = self.now();
        let vendor = &self.vendors[number].0;
        let what = match self.random.u32(..4) {
            0 => {
                vendor.set_outage(Outage::Refuse);
                "refuses connections"
            }
            1 => {
                vendor.set_outage(Outage::Reset);
                "resets connections"
            }
            2 => {
                vendor.set_outage(Outage::Unavailable);
                "answers 503"
            }
            _ => {
                vendor.add_fault(When::any(), Fault::Stall);
                "acts and does not answer"
            }
        };
        self.note(&format!("{} {what} for {ms} ms", vendors()[number].name));
        self.outages[number].push(Span { from, until: u64::MAX });
        self.end_in(ms, End::Outage(number));
        Ok(())
    }

    fn kill(&mut self) -> Fallible<()> {
        let number = self.random.usize(1..self.programs.len());
        // During a stall, the tables of PostgreSQL cannot be read to see which exchanges were under way.
        if self.is_stalled() && self.options.store == "postgres" {
            return Ok(());
        }
        let Some(process) = self.programs[number].process.take() else { return Ok(()) };
        self.record.kills.push(self.now());
        let ended = process.kill()?;
        let now = self.now();
        for line in &ended.said {
            tell(&mut self.record, &mut self.problems, now, line);
        }
        self.read_warnings(&ended.warned);
        let run = format!("-{}-", self.programs[number].orders.run);
        for (_, told) in self.record.told.iter_mut().filter(|(path, told)| told.ended.is_none() && path.contains(&run))
        {
            told.is_cut_off = true;
        }
        let begun = self.runtime.block_on(database::begun(&self.store))?;
        self.note(&format!("program {number} was killed, {} exchanges under way", begun.len()));
        let ids = begun.iter().filter_map(|row| row.split_once(' ')).map(|(id, _)| id.to_lowercase());
        self.record.begun.extend(ids);
        let ms = self.random.u64(..1_500);
        self.end_in(ms, End::Start(number));
        Ok(())
    }

    fn end(&mut self, end: End) -> Fallible<()> {
        let now = self.now();
        match end {
            End::Outage(number) => {
                let vendor = &self.vendors[number].0;
                vendor.set_outage(None);
                vendor.clear_faults();
                if let Some(span) = self.outages[number].last_mut() {
                    span.until = now;
                }
                Ok(())
            }
            End::Stall(holding) => {
                self.runtime.block_on(holding.end())?;
                let now = self.now();
                if let Some(span) = self.record.stalls.last_mut() {
                    span.until = now;
                }
                Ok(())
            }
            // Without the store, the program would fail to start.
            End::Start(number) if self.is_stalled() => {
                self.end_in(100, End::Start(number));
                Ok(())
            }
            End::Start(number) => self.start(number),
        }
    }

    /// Writes valid configurations and tells the programs to begin no new requests.
    pub(super) fn begin_to_settle(&mut self) -> Fallible<()> {
        self.write_configs()?;
        self.programs
            .iter_mut()
            .filter_map(|program| program.process.as_mut())
            .try_for_each(|program| program.tell("quiet"))
    }

    pub(super) fn finish_programs(&mut self) -> Fallible<()> {
        for number in 0..self.programs.len() {
            let Some(process) = self.programs[number].process.take() else { continue };
            let ended = process.finish()?;
            let now = self.now();
            for line in &ended.said {
                tell(&mut self.record, &mut self.problems, now, line);
            }
            self.read_warnings(&ended.warned);
        }
        Ok(())
    }

    fn read_warnings(&mut self, warned: &[String]) {
        if let Some(path) = &self.options.log {
            let text = warned.join("\n") + "\n";
            let written = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = written.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        }
        self.problems.extend(warned.iter().filter(|line| line.contains("panicked")).cloned());
    }

    /// Reads what the programs have printed since the last call.
    pub(crate) fn hear(&mut self) {
        for program in &self.programs {
            let Some(process) = &program.process else { continue };
            for (at, line) in process.heard() {
                let at = u64::try_from(at.saturating_duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
                tell(&mut self.record, &mut self.problems, at, &line);
            }
        }
    }
}
