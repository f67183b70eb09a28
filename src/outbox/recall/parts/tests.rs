use super::*;

/// As many lanes as are read at once.
fn lanes() -> Parts<u32> {
    Parts::new((0..1_024).collect())
}

#[test]
fn damaged_lane_alone_is_given_up() {
    let (mut parts, mut read, mut given_up, mut reads) = (lanes(), Vec::new(), Vec::new(), 0);
    while let Some(part) = parts.take() {
        reads += 1;
        if part.contains(&700) {
            given_up.extend(parts.failed(part, Fault::Data).0);
        } else {
            read.extend(part);
        }
    }
    assert_eq!(given_up, [700]);
    assert_eq!(read, (0..1_024).filter(|lane| *lane != 700).collect::<Vec<_>>(), "in order");
    assert!(reads <= 25, "{reads} reads");
}

/// Reads of more than 100 lanes take longer than the store allows.
#[test]
fn read_that_takes_too_long_is_halved() {
    let (mut parts, mut read, mut failed) = (lanes(), 0, 0);
    while let Some(part) = parts.take() {
        if part.len() > 100 {
            failed += 1;
            assert_eq!(parts.failed(part, Fault::Passes), (Vec::new(), AWAY));
        } else {
            read += part.len();
        }
    }
    assert_eq!((read, failed), (1_024, 15));
}

#[test]
fn nothing_is_given_up_while_the_store_is_away() {
    let mut parts = Parts::new(vec!["a", "b", "c"]);
    for _ in 0..100 {
        let part = parts.take().unwrap_or_default();
        assert_eq!(parts.failed(part, Fault::Passes), (Vec::new(), AWAY));
    }
    let left: Vec<_> = std::iter::from_fn(|| parts.take()).flatten().collect();
    assert_eq!(left, ["a", "b", "c"]);
    assert_eq!(Parts::<u32>::new(Vec::new()).take(), None);
}

#[test]
fn error_that_passes_soon_halves_nothing() {
    let mut parts = lanes();
    for _ in 1..TRIES {
        let part = parts.take().unwrap_or_default();
        assert_eq!(parts.failed(part, Fault::Data), (Vec::new(), BETWEEN_TRIES));
    }
    assert_eq!(parts.take().map(|part| part.len()), Some(1_024));
}

/// The process has no memory left for a while, or the disk does not answer.
#[test]
fn failing_storage_is_waited_for() {
    let mut parts = lanes();
    for _ in 1..STORAGE_TRIES {
        let part = parts.take().unwrap_or_default();
        assert_eq!(parts.failed(part, Fault::Storage), (Vec::new(), AWAY));
    }
    let left: Vec<_> = std::iter::from_fn(|| parts.take()).flatten().collect();
    assert_eq!(left, (0..1_024).collect::<Vec<_>>());
}

#[test]
fn lane_on_broken_disk_is_given_up() {
    let (mut parts, mut read, mut given_up, mut waited) = (lanes(), 0, Vec::new(), Duration::ZERO);
    while let Some(part) = parts.take() {
        if part.contains(&700) {
            let (lanes, wait) = parts.failed(part, Fault::Storage);
            given_up.extend(lanes);
            waited += wait;
        } else {
            read += part.len();
        }
    }
    assert_eq!((given_up, read), (vec![700], 1_023));
    assert!((AWAY * 59..AWAY * 61).contains(&waited), "{waited:?}");
}
