//! Tests of `purge`.

use super::*;

#[test]
fn slow_purge_is_made_less_often() {
    let seconds = [0, 2, 3, 10, 30, 31, 4_000].map(|took| again_after(Duration::from_secs(took)).as_secs());
    assert_eq!(seconds, [60, 60, 60, 200, 600, 600, 600]);
}

#[test]
fn purge_step_size_follows_its_time() {
    let ms = Duration::from_millis;
    let sizes = [(500, 0), (500, 5), (500, 11), (500, 50), (1, 900), (4_000, 0), (i64::MAX, 0)];
    let next = sizes.map(|(rows, time)| next(rows, ms(time)));
    assert_eq!(next, [1_000, 500, 250, 62, 1, 4_000, 4_000]);
    // Whatever a row costs, the steps converge to one that takes no longer than it should.
    for row in [1u32, 10, 100, 1_000, 10_000, 200_000] {
        let mut rows = FIRST;
        for _ in 0..12 {
            rows = super::next(rows, Duration::from_micros(row.into()) * u32::try_from(rows).unwrap());
        }
        let time = Duration::from_micros(row.into()) * u32::try_from(rows).unwrap();
        assert!(time <= GOAL || rows == 1, "{rows} rows of {row} µs");
    }
}
