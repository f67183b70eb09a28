//! How rows name pauses, and whose they are.

use std::time::Duration;

use super::*;

#[test]
fn rows_name_endpoints_and_all_requests() {
    let until = Time::ZERO + Duration::from_secs(1);
    for (limit, endpoint) in [
        (None, None),
        (Some(("day".into(), None)), Some("search".into())),
        (Some(("day".into(), Some("search".into()))), None),
        (Some(("day".into(), Some("".into()))), Some("".into())),
    ] {
        let pause = StatedPause { who: Waits::Account, limit, endpoint, until };
        assert_eq!(stated(Waits::Account, &paused(&pause), until), pause);
    }
}
