//! Tests of when certificate files are looked at.

use super::*;

#[test]
fn failed_exchange_brings_the_next_look_forward() {
    let (looks, start) = (Looks::default(), Time::from_nanos(3_600_000_000_000));
    let due = |after_ms: u64| looks.are_due(start + Duration::from_millis(after_ms));
    assert!(due(0) && !due(0) && !due(59_999) && due(60_000));
    looks.failed();
    assert!(!due(60_999) && due(61_000));
    assert!(!due(120_999) && due(121_000), "that look has answered the failure");
}

/// As after `cp -p` or from an archive.
#[cfg(unix)]
#[test]
fn swap_that_keeps_time_and_length_is_noticed() {
    let path = std::env::temp_dir().join(format!("ic-certificate-swapped-{}", std::process::id()));
    let next = path.with_extension("next");
    for (path, text) in [(&path, "first"), (&next, "other")] {
        std::fs::write(path, text).unwrap();
        std::fs::File::options().write(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let files = Files::of(path.to_str());
    assert!(!files.have_changed());
    std::fs::rename(&next, &path).unwrap();
    assert!(files.have_changed() && !Files::of(path.to_str()).have_changed());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn missing_file_counts_as_unchanged() {
    let path = std::env::temp_dir().join(format!("ic-certificate-{}", std::process::id()));
    std::fs::write(&path, "first").unwrap();
    let files = Files::of(path.to_str());
    assert!(!files.is_empty() && !files.have_changed());
    std::fs::remove_file(&path).unwrap();
    assert!(!files.have_changed());
    std::fs::write(&path, "the second").unwrap();
    assert!(files.have_changed() && !Files::of(path.to_str()).have_changed());
    std::fs::remove_file(&path).unwrap();
}
