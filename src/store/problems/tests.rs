use super::super::DbKind;
use super::*;

fn lane(tenant: &str) -> LaneTier {
    LaneTier { tenant: tenant.to_owned(), vendor: "v".to_owned(), tier: 1 }
}

#[tokio::test(start_paused = true)]
async fn problem_stays_until_same_work_succeeds() {
    let problems = Problems::new(Clock::system());
    let full = || Err::<(), _>(DbError::new(DbKind::Storage, "the disk is full"));
    problems.note(Work::Accept, &full());
    problems.note(Work::Read, &Ok(()));
    problems.note(Work::Claim, &Ok(()));
    assert_eq!(problems.now().as_deref(), Some("no job can be accepted: the disk is full"));
    problems.note(Work::Keep, &full());
    problems.note(Work::Accept, &Ok(()));
    assert_eq!(problems.now().as_deref(), Some("the maintenance of the store fails: the disk is full"));
    problems.note(Work::Keep, &Ok(()));
    assert_eq!(problems.now(), None);
    assert!(problems.is_writable());
    problems.note(Work::Accept, &full());
    assert!(!problems.is_writable());
    tokio::time::advance(STALE).await;
    assert_eq!(problems.now(), None, "the work was not tried for long");
    assert!(problems.is_writable(), "nobody knows by now, and work that is tried says that it fails");
    assert_eq!(problems.failures()[0], ("accept", 2));
}

#[tokio::test(start_paused = true)]
async fn parked_lane_is_skipped_and_named() {
    let (problems, damaged) = (Problems::new(Clock::system()), DbError::new(DbKind::Damaged, "the file is damaged"));
    problems.park(&lane("a"), &damaged);
    assert!(problems.is_parked(&lane("a")) && !problems.is_parked(&lane("b")));
    tokio::time::advance(PARK).await;
    assert!(!problems.is_parked(&lane("a")) && problems.is_suspect(&lane("a")));
    assert!(problems.now().unwrap().contains("tenant a, vendor v"));
    problems.unpark(&lane("a"));
    assert_eq!(problems.now(), None);
}
