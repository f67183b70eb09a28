//! The remaining units of a limit as the vendor reports them. The figure slows nothing down by itself. Our own count
//! knows neither other users of the key nor what was sent before this process started, so a caller who asks for the
//! remaining units gets the lower of both figures.

use super::Throttle;
use super::report::{Report, Says, VendorFigure};
use crate::pace::{Counting, LEAST_PAUSE, LONGEST_BELIEF, Pace};
use crate::time::Time;

impl Throttle {
    /// Stores a report in the response to a request granted at `granted`, while `under_way` units of other requests
    /// have no response.
    pub(crate) fn note_figure(&mut self, now: Time, granted: Time, under_way: u32, report: &Report, pace: &Pace) {
        let is_overtaken = self.figure.is_some_and(|figure| granted < figure.of);
        if report.limit == 0 || report.says == Says::Limit || is_overtaken {
            return;
        }
        // The response does not count requests that were granted after its own. Before the first report, grants are not
        // recorded, and all requests in flight may be later ones.
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

    /// Limits for how long the report that was applied at `now` is believed, because it states no reset. If no response
    /// renews it, nothing else would end the wait before the end of a window of any length.
    pub(super) fn doubt_report(&mut self, now: Time) {
        let until = now.plus_nanos(LONGEST_BELIEF);
        if self.quota.believe_until(now, until) {
            self.announced.empty_until = self.announced.empty_until.min(until);
        }
        if let Some(figure) = self.figure.as_mut().filter(|figure| figure.at == now) {
            figure.until = figure.until.min(until);
        }
    }

    /// Subtracts granted units from the reported figure.
    pub(super) fn granted_of_figure(&mut self, units: u32) {
        if let Some(figure) = &mut self.figure {
            figure.left = figure.left.saturating_sub(u64::from(units));
        }
    }

    /// The remaining units by the vendor's last report, as (remaining, limit), and until when the report holds; `None`
    /// if it holds no longer.
    pub(crate) fn left(&self, now: Time, pace: &Pace) -> Option<(u32, u32, Time)> {
        let figure = self.figure.filter(|figure| figure.until > now)?;
        let back = match pace.counting {
            // Units come back evenly, whichever client took them.
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
