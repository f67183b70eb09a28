//! What holds for every limit, however the vendor counts.

mod calendar;
mod cell;
mod guards;
mod replay;
mod vendors;

use super::guard::GuardSpec;
use super::vendor_bucket::VendorBucketSpec;
use super::window_counter::CounterSpec;
use super::window_log::LogSpec;
use crate::time::Time;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// A slot of what is under way is then 10 ms wide.
const TRANSIT: u64 = 160 * MS;

fn ms(n: u64) -> Time {
    Time::from_nanos(3_600 * SECOND + n * MS)
}

/// Ten a second, of which two are held back for the high tier, counted in every way.
fn guards() -> [GuardSpec; 4] {
    let log = LogSpec::new(10, 2, SECOND, TRANSIT);
    [
        GuardSpec::Log(log),
        GuardSpec::Log(log.fixed()),
        GuardSpec::Counter(CounterSpec::new(10, 12, 2, SECOND, TRANSIT)),
        GuardSpec::Bucket(VendorBucketSpec::new(10, 2, 10.0, SECOND, TRANSIT)),
    ]
}
