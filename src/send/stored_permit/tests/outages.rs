//! Stored jobs whose host cannot be connected to.

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// The history after `wait`. The paused clock has moved in that time, but the wall clock has not.
pub(super) fn aged(mut history: History, wait: Duration) -> History {
    let History { failing_since, unreachable_since, tried_since, due, .. } = &mut history;
    for at in [failing_since, unreachable_since, tried_since, due].into_iter().flatten() {
        *at = at.checked_sub(wait).unwrap();
    }
    history
}

/// The moment `ago`, by the wall clock.
fn before(ago: Duration) -> Option<jiff::Timestamp> {
    jiff::Timestamp::try_from(Clock::system().wall() - ago).ok()
}

#[tokio::test(start_paused = true)]
async fn stored_job_outlasts_an_outage() {
    let untried = History::default();
    let may_have_acted = History { may_have_acted_at: Some(0), ..History::default() };
    for (first, method, deadline, outlasts) in [
        (untried.clone(), "PUT", None, true),
        (untried, "PUT", Some(3_600 * SECOND), true),
        (may_have_acted.clone(), "PUT", None, false),
        (may_have_acted, "GET", None, true),
    ] {
        let up = Arc::<AtomicBool>::default();
        let transport = switchable_host(&up);
        let client = builder(TWENTY, &transport).build().await.unwrap();
        let records = StallingRecords::new(Duration::ZERO, &[]);
        let (clock, mut history) = (Clock::system(), first);
        let began = clock.now();
        let (ending, age) = loop {
            let age = clock.now().since(began);
            up.store(age >= 360 * SECOND, Relaxed);
            let request = if method == "GET" { Request::get("v", "/") } else { Request::put("v", "/").body("content") };
            let send = Sending { request, history, ..job(1, records.clone()) };
            let left = deadline.map(|deadline: Duration| deadline.saturating_sub(age));
            match send_stored(client.core(), send, left).await {
                ClaimEnd::Later { wait, history: next } => {
                    assert!(wait <= 100 * SECOND, "{wait:?}");
                    tokio::time::sleep(wait).await;
                    history = aged(next, wait);
                }
                ending => break (ending, age),
            }
        };
        let is_expected = match &ending {
            ClaimEnd::Delivered(_) => outlasts && age < 560 * SECOND,
            ClaimEnd::Dead(letter) => !outlasts && letter.reason == Reason::Exhausted && age < 360 * SECOND,
            _ => false,
        };
        assert!(is_expected, "{method}, deadline {deadline:?}, outlasts {outlasts}: it ended after {age:?}");
        // A probe every 30 seconds at most, besides the five connections that open the circuit.
        assert!(transport.calls().len() < 30, "{} connections in {age:?}", transport.calls().len());
    }
}

#[tokio::test(start_paused = true)]
async fn outage_ends_after_four_days_and_spends_no_max_age() {
    for (answer, days, ends) in [
        (FakeAnswer::not_connected(), 3_u32, false),
        (FakeAnswer::not_connected(), 5, true),
        // A host of which no answer has come since does not process the request.
        (FakeAnswer::refused_stream(), 3, false),
        (FakeAnswer::refused_stream(), 5, true),
    ] {
        let given = answer.clone();
        let transport = FakeTransport::new(move |_| given.clone());
        let client = builder(TWENTY, &transport).build().await.unwrap();
        let history = History { unreachable_since: before(days * DAY), ..History::default() };
        let records = StallingRecords::new(Duration::ZERO, &[]);
        match send_stored(client.core(), Sending { history, ..job(1, records) }, None).await {
            ClaimEnd::Later { history, .. } => {
                assert!(!ends, "{answer:?}, {days} days");
                let runs = (history.unreachable_since.is_some(), history.failing_since.is_some());
                assert_eq!(runs, (true, false), "{answer:?}");
            }
            ClaimEnd::Dead(letter) => {
                assert_eq!((letter.reason, ends), (Reason::Exhausted, true), "{answer:?}, {days} days");
            }
            _ => panic!("{answer:?}, {days} days"),
        }
    }
}

/// Most of the time the job was due, and waited behind others.
#[tokio::test(start_paused = true)]
async fn outage_ends_for_jobs_that_are_rarely_tried() {
    let transport = FakeTransport::new(|_| FakeAnswer::not_connected());
    let client = builder(TWENTY, &transport).build().await.unwrap();
    for (due, ends) in [(5 * DAY - 7_200 * SECOND, true), (5 * DAY - 60 * SECOND, false)] {
        let history = History { unreachable_since: before(5 * DAY), due: before(due), ..History::default() };
        let records = StallingRecords::new(Duration::ZERO, &[]);
        match send_stored(client.core(), Sending { history, ..job(1, records) }, None).await {
            ClaimEnd::Later { history, .. } => {
                assert!(!ends, "{due:?}");
                assert!(history.unreachable_since <= before(5 * DAY - SECOND), "the outage is as old as before");
            }
            ClaimEnd::Dead(letter) => assert_eq!((letter.reason, ends), (Reason::Exhausted, true), "{due:?}"),
            _ => panic!("{due:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_limits_is_no_part_of_an_outage() {
    let up = Arc::<AtomicBool>::default();
    let transport = switchable_host(&up);
    let limit = "[[vendors.v.limits]]\nname = \"r\"\nalgorithm = \"sliding_window\"\nlimit = 1\nwindow = \"120h\"\n\
                 safety = 1.0\n";
    let (slow, quick) =
        (builder(limit, &transport).build().await.unwrap(), builder(TWENTY, &transport).build().await.unwrap());
    let claim = async |client: &IntegrationClient, history| {
        let records = StallingRecords::new(Duration::ZERO, &[]);
        match send_stored(client.core(), Sending { history, ..job(1, records) }, None).await {
            ClaimEnd::Later { wait, history } => (wait, history),
            _ => panic!("it ended"),
        }
    };
    // An hour of trying is over, so that the age alone decides.
    let first = History { unreachable_since: before(7_200 * SECOND), ..History::default() };
    let (wait, history) = claim(&quick, first).await;
    let history = aged(history, wait);
    up.store(true, Relaxed);
    slow.send("acme", Priority::High, Request::get("v", "/first")).await.unwrap();
    up.store(false, Relaxed);
    let (mut waited, mut history) = (Duration::ZERO, history);
    while waited < 4 * DAY {
        let (wait, next) = claim(&slow, history).await;
        assert!(wait > DAY / 2, "the limit has no unit for the job: {wait:?}");
        (waited, history) = (waited + wait, aged(next, wait));
    }
    let (_, history) = claim(&quick, history).await;
    assert!(history.unreachable_since > before(DAY), "{history:?}");
}

/// Each failure to read the secret is followed by hours in which the job waits for something else.
#[tokio::test(start_paused = true)]
async fn only_failures_spend_max_age() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let quota = SLOW.replace("85s", "24h");
    let full = builder_with_secret(&quota, &transport, true).build().await.unwrap();
    let failing = builder_with_secret(&quota, &transport, false).build().await.unwrap();
    full.send("acme", Priority::High, Request::get("v", "/first")).await.unwrap();
    let claim = async |client: &IntegrationClient, vendor: &str, history: History| {
        let request = Request::get(vendor, "/1");
        let records = StallingRecords::new(Duration::ZERO, &[]);
        send_stored(client.core(), Sending { request, history, ..job(1, records) }, None).await
    };
    let (mut history, mut failures) = (History::default(), 0);
    let letter = loop {
        // The configuration has no such vendor, and the quota no unit.
        for (vendor, least) in [("unknown", 30 * SECOND), ("v", 2 * 3_600 * SECOND)] {
            match claim(&full, vendor, history).await {
                ClaimEnd::Later { wait, history: next } if wait >= least => history = aged(next, wait),
                _ => panic!("it does not wait: {vendor}, after {failures} failures"),
            }
        }
        match claim(&failing, "v", history).await {
            ClaimEnd::Later { wait, history: next } => history = aged(next, wait),
            ClaimEnd::Dead(letter) => break letter,
            _ => panic!("it ended after {failures} failures"),
        }
        failures += 1;
    };
    assert_eq!(letter.reason, Reason::Exhausted);
    // A wait of up to ten seconds follows each failure, and `max_age` is five minutes.
    assert!((30..60).contains(&failures), "{failures}");
}

/// How long a job with this history is tried until it is given up as exhausted, which has to be before `most`.
async fn tried_for(client: &IntegrationClient, mut history: History, most: Duration) -> Duration {
    let clock = Clock::system();
    let began = clock.now();
    loop {
        let records = StallingRecords::new(Duration::ZERO, &[]);
        let ending = send_stored(client.core(), Sending { history, ..job(1, records) }, None).await;
        let age = clock.now().since(began);
        assert!(age < most, "it goes on after {age:?}");
        match ending {
            ClaimEnd::Later { wait, history: next } => {
                tokio::time::sleep(wait).await;
                history = aged(next, wait);
            }
            ClaimEnd::Dead(letter) => {
                assert_eq!(letter.reason, Reason::Exhausted);
                return age;
            }
            _ => panic!("it ended"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stated_age_ends_an_outage() {
    let transport = FakeTransport::new(|_| FakeAnswer::not_connected());
    let limits = format!("{TWENTY}[vendors.v.retry]\nmax_age = \"1m\"\n");
    let client = builder(&limits, &transport).build().await.unwrap();
    let age = tried_for(&client, History::default(), 150 * SECOND).await;
    assert!(age >= 60 * SECOND, "{age:?}");
}

/// A host with two addresses: one cannot be connected to, and the other processes no stream.
#[tokio::test(start_paused = true)]
async fn outage_ends_where_other_failures_alternate() {
    let nearly_four_days = History { unreachable_since: before(4 * DAY - 600 * SECOND), ..History::default() };
    for (retry, history, least, most) in [
        ("[vendors.v.retry]\nmax_age = \"1m\"\n", History::default(), 59 * SECOND, 600 * SECOND),
        ("", nearly_four_days, 599 * SECOND, 1_800 * SECOND),
    ] {
        let calls = AtomicUsize::new(0);
        let transport = FakeTransport::new(move |_| match calls.fetch_add(1, Relaxed) % 2 {
            0 => FakeAnswer::not_connected(),
            _ => FakeAnswer::refused_stream(),
        });
        let client = builder(&format!("{TWENTY}{retry}"), &transport).build().await.unwrap();
        let age = tried_for(&client, history, most).await;
        assert!(age >= least, "{age:?}");
    }
}

/// A process that has just started: its breaker knows nothing of the outage.
#[tokio::test(start_paused = true)]
async fn single_job_of_a_long_outage_opens_the_circuit() {
    let transport = FakeTransport::new(|_| FakeAnswer::not_connected());
    let client = builder(TWENTY, &transport).build().await.unwrap();
    let mut history = History { unreachable_since: before(DAY), ..History::default() };
    for _ in 0..10 {
        let records = StallingRecords::new(Duration::ZERO, &[]);
        let ending = send_stored(client.core(), Sending { history, ..job(1, records) }, None).await;
        let ClaimEnd::Later { wait, history: next } = ending else { panic!("it ended") };
        tokio::time::sleep(wait).await;
        history = aged(next, wait);
    }
    assert_eq!(client.core().egress.hosts.open(), 1);
}
