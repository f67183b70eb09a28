//! Shows how far a run is and when it will be done: a bar on a terminal, a line every five seconds otherwise.

use std::collections::{HashMap, VecDeque};
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use integration_client::clock::Time;
use integration_client::{IntegrationClient, Priority};

use super::results::LaneTier;
use crate::notes;
use crate::text::{span, thousands64};

/// The interval between two lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// The period over which the rate is measured.
const RATE_OVER: Duration = Duration::from_secs(10);
/// If nothing ended in the period of the rate although the limits alone would finish the rest within this time, the end
/// is unknown.
const STANDS: Duration = Duration::from_secs(10);
/// Lanes for which an estimate is made: those with the most jobs left.
const LANES: usize = 8;

/// The progress of a run at one moment.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Moment {
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) refused: u64,
    /// Jobs that have not ended, including those that are not read yet; `None` if their number is unknown.
    pub(super) left: Option<u64>,
    pub(super) per_second: f64,
    pub(super) headroom: Option<f64>,
    pub(super) ends_in: Option<Duration>,
}

/// Numbers of ended jobs with their times, for the rate over the last seconds.
#[derive(Default)]
pub(super) struct Rate {
    seen: VecDeque<(Time, u64)>,
}

impl Rate {
    pub(super) fn note(&mut self, now: Time, ended: u64) {
        self.seen.push_back((now, ended));
        while self.seen.len() > 2 && self.seen.get(1).is_some_and(|(at, _)| now.since(*at) >= RATE_OVER) {
            self.seen.pop_front();
        }
    }

    /// The rate; `None` during the first second.
    pub(super) fn per_second(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.seen.front()?, self.seen.back()?);
        let seconds = to.since(*from).as_secs_f64();
        (seconds >= 1.0).then(|| after.saturating_sub(*before) as f64 / seconds)
    }
}

/// The jobs left of the largest lanes, each with the priority to estimate for. Unread jobs are distributed like the
/// jobs left.
fn lanes(left: &[(LaneTier, u64)], unread: u64) -> Vec<(String, String, Priority, u64)> {
    let mut lanes: HashMap<(&str, &str), (Priority, u64)> = HashMap::new();
    for ((tenant, vendor, priority), jobs) in left {
        let lane = lanes.entry((tenant, vendor)).or_insert((*priority, 0));
        // The lane ends with its lowest priority, which waits for the others.
        *lane = (std::cmp::max_by_key(lane.0, *priority, |priority| *priority as u8), lane.1 + jobs);
    }
    let all: u64 = lanes.values().map(|(_, jobs)| jobs).sum();
    let with_unread = |jobs: u64| jobs + (u128::from(unread) * u128::from(jobs) / u128::from(all.max(1))) as u64;
    let lane = |((tenant, vendor), (priority, jobs)): ((&str, &str), (Priority, u64))| {
        (tenant.to_owned(), vendor.to_owned(), priority, with_unread(jobs))
    };
    let mut lanes: Vec<_> = lanes.into_iter().map(lane).collect();
    lanes.sort_by_key(|(.., jobs)| std::cmp::Reverse(*jobs));
    lanes.truncate(LANES);
    lanes
}

/// The time until all jobs have ended: by the limits or by the present rate, whichever is longer. The limits alone
/// would ignore a slow vendor and several tenants that share a limit; the rate alone would ignore a lane that lags
/// behind.
pub(super) fn ends_in(
    client: &IntegrationClient,
    (left, all_left): (&[(LaneTier, u64)], u64),
    unread: u64,
    per_second: Option<f64>,
) -> Option<Duration> {
    let mut latest = Duration::ZERO;
    for (tenant, vendor, priority, jobs) in lanes(left, unread) {
        let status = client.status(&tenant, &vendor).ok()?;
        // The client's estimate includes the requests that it has in hand already.
        let in_hand = u64::from(status.waiting.high + status.waiting.normal + status.waiting.low + status.in_flight);
        let more = jobs.saturating_sub(in_hand).max(1);
        latest = latest.max(client.estimate(&tenant, &vendor, priority, more).ok()?.expected?);
    }
    let left = (all_left + unread) as f64;
    let at_this_rate = per_second.filter(|rate| *rate > 0.0).map(|rate| left / rate);
    // Nothing ends although the limits would allow it, so the end is unknown.
    if per_second == Some(0.0) && latest < STANDS {
        return None;
    }
    // A time that no `Duration` can hold is ignored.
    let at_this_rate = at_this_rate.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Some(latest.max(at_this_rate.unwrap_or_default()))
}

/// Shows progress on standard error.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    lines: bool,
    said: Option<Time>,
}

impl Progress {
    pub(super) fn new(quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let style = ProgressStyle::with_template("{bar:20} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.with_style(style.progress_chars("=> "))
        });
        notes::beside(bar.clone());
        Progress { bar, lines: !terminal && !quiet, said: None }
    }

    /// Whether [`show`](Self::show) would show progress now, or begin the first interval of lines.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.bar.is_some() || self.lines && self.said.is_none_or(|said| now.since(said) >= LINE_EVERY)
    }

    pub(super) fn show(&mut self, now: Time, moment: &Moment) {
        if let Some(bar) = self.bar.clone() {
            let (ended, left, text) = (moment.done + moment.dead, moment.left, short(moment));
            notes::draw(move || {
                match left {
                    Some(left) => bar.set_length(ended + left),
                    None => bar.unset_length(),
                }
                bar.set_position(ended);
                bar.set_message(text);
            });
        }
        if self.lines && self.is_due(now) {
            // The first call only begins the interval, because there is no progress yet.
            if self.said.is_some() {
                notes::say(&format!("run: {}", long(moment)));
            }
            self.said = Some(now);
        }
    }

    pub(super) fn end(&self) {
        notes::beside(None);
        if let Some(bar) = self.bar.clone() {
            notes::draw(move || bar.finish_and_clear());
        }
    }
}

/// A time rounded to seconds, or down to minutes from an hour on.
fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    span(Duration::from_secs(match seconds {
        0..3600 => seconds,
        _ => seconds / 60 * 60,
    }))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The text next to a bar of 20 columns, 80 columns in all: `6,120/10,000  1,998/s  headroom 3 %  2s left  1 dead`.
fn short(moment: &Moment) -> String {
    let ended = moment.done + moment.dead;
    let mut text = thousands64(ended);
    if let Some(left) = moment.left {
        text += &format!("/{}", thousands64(ended + left));
    }
    text += &format!("  {}/s", thousands64(moment.per_second.round() as u64));
    if let Some(headroom) = moment.headroom {
        text += &format!("  headroom {}", percent(headroom));
    }
    text += &moment.ends_in.map_or("  ? left".to_owned(), |after| format!("  {} left", rough(after)));
    for (count, what) in [(moment.refused, "refused"), (moment.dead, "dead")] {
        if count > 0 {
            text += &format!("  {} {what}", thousands64(count));
        }
    }
    text
}

/// A line for logs: a name before each figure.
fn long(moment: &Moment) -> String {
    let left = moment.left.map_or("?".to_owned(), |left| left.to_string());
    let headroom = moment.headroom.map_or("?".to_owned(), |share| format!("{:.0}%", share * 100.0));
    let ends_in = moment.ends_in.map_or("?".to_owned(), |after| format!("{:.1}", after.as_secs_f64()));
    let Moment { done, refused, dead, per_second, .. } = moment;
    format!(
        "at done={done} refused={refused} dead={dead} left={left} rate={per_second:.0}/s headroom={headroom} eta_s={ends_in}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_bar_fits_eighty_columns() {
        let moment = Moment {
            done: 998_000,
            dead: 12,
            refused: 3,
            left: Some(2_000),
            per_second: 1_998.3,
            headroom: Some(0.034),
            ends_in: Some(Duration::from_millis(3_661_400)),
        };
        assert_eq!(short(&moment), "998,012/1,000,012  1,998/s  headroom 3 %  1h 1m left  3 refused  12 dead");
        let usual = Moment { dead: 0, refused: 0, ..moment };
        assert!(20 + 1 + short(&usual).len() <= 80, "{}", short(&usual));
        assert!(short(&Moment::default()).ends_with("? left"));
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let mut rate = Rate::default();
        rate.note(at(0), 0);
        assert_eq!(rate.per_second(), None);
        for second in 1..=60 {
            rate.note(at(second), if second <= 30 { second * 100 } else { 3_000 + (second - 30) * 10 });
        }
        assert_eq!(rate.per_second(), Some(10.0));
    }

    #[test]
    fn unread_input_is_estimated_like_the_rest() {
        let left = |tenant: &str, priority, jobs| ((tenant.to_owned(), "v".to_owned(), priority), jobs);
        let left = [left("a", Priority::High, 10), left("a", Priority::Low, 20), left("b", Priority::Normal, 10)];
        let expected = [("a", Priority::Low, 90), ("b", Priority::Normal, 30)];
        let found = lanes(&left, 80);
        assert_eq!(found.iter().map(|lane| (&*lane.0, lane.2, lane.3)).collect::<Vec<_>>(), expected);
    }
}
