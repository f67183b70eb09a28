//! What the vendor says is left of a limit. It slows nothing down by itself: our own count knows nothing of other users of
//! the key, nor of what was sent before this process was, and a caller who asks what is left gets the lower of both.

use super::Throttle;
use super::report::{Report, VendorFigure};
use crate::pace::LEAST_PAUSE;
use crate::pace::{Counting, Pace};
use crate::time::Time;

impl Throttle {
    /// An answer to what was granted at `granted` says what is left, while `under_way` units of other requests have no answer.
    pub(crate) fn note_figure(&mut self, now: Time, granted: Time, under_way: u32, report: &Report, pace: &Pace) {
        let is_overtaken = self.figure.is_some_and(|figure| granted < figure.of);
        if report.limit == 0 || is_overtaken {
            return;
        }
        // What went later than the request that was answered is not counted in its answer. Before the first report nothing
        // remembers what went when, and all that is in flight may be later.
        let later = match self.figure_since > Time::ZERO && granted >= self.figure_since {
            true => self.quota.granted_after(granted),
            false => u64::from(under_way),
        };
        if self.figure_since == Time::ZERO {
            self.figure_since = now;
        }
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let until = now.plus_nanos(report.reset_ns.unwrap_or(window));
        let left = report.remaining.min(report.limit).saturating_sub(later);
        self.figure = Some(VendorFigure { limit: report.limit, left, at: now, until, of: granted });
    }

    /// So many units go.
    pub(super) fn granted_of_figure(&mut self, units: u32) {
        if let Some(figure) = &mut self.figure {
            figure.left = figure.left.saturating_sub(u64::from(units));
        }
    }

    /// What is left by the vendor's last report, as (left, limit), and until when that holds; none where none holds any more.
    pub(crate) fn left(&self, now: Time, pace: &Pace) -> Option<(u32, u32, Time)> {
        let figure = self.figure.filter(|figure| figure.until > now)?;
        let back = match pace.counting {
            // Units come back evenly, whatever client took them.
            Counting::Bucket if pace.window_ns > 0 => {
                let since = now.since(figure.at).as_nanos();
                u128::from(figure.limit) * since / u128::from(pace.window_ns)
            }
            _ => 0,
        };
        let left = figure.left.saturating_add(u64::try_from(back).unwrap_or(u64::MAX)).min(figure.limit);
        let units = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
        Some((units(left), units(figure.limit), figure.until))
    }
}
