//! The writer, in paused time.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::super::writer::{CAPACITY, Writer};
use super::*;

const LONG: Duration = Duration::from_secs(3600);

type Answer = Box<dyn Fn(usize) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A sink that answers call number n as the test says, and keeps the letters that it accepted.
struct Scripted {
    calls: AtomicUsize,
    flushed: AtomicUsize,
    taken: Mutex<Vec<DeadLetter>>,
    answer: Answer,
}

impl Scripted {
    fn new<F>(answer: impl Fn(usize) -> F + Send + Sync + 'static) -> Arc<Scripted>
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Arc::new(Scripted {
            calls: AtomicUsize::new(0),
            flushed: AtomicUsize::new(0),
            taken: Mutex::default(),
            answer: Box::new(move |call| Box::pin(answer(call))),
        })
    }

    fn notes(&self) -> Vec<String> {
        self.taken.lock().iter().map(|letter| note(letter).to_owned()).collect()
    }
}

impl DeadLetterSink for Scripted {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        let answer = (self.answer)(self.calls.fetch_add(1, Relaxed));
        Box::pin(async move {
            answer.await?;
            self.taken.lock().push(letter.clone());
            Ok(())
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        self.flushed.fetch_add(1, Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[expect(clippy::disallowed_methods, reason = "a test spawns what the builder will")]
fn start(sink: Arc<dyn DeadLetterSink>, capacity: usize) -> (Writer, tokio::task::JoinHandle<()>) {
    let (writer, task) = Writer::new(sink, capacity);
    (writer, tokio::spawn(task))
}

#[expect(clippy::disallowed_methods, reason = "a test measures paused time")]
fn now() -> Instant {
    Instant::now()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn counts(writer: &Writer) -> (usize, u64, u64) {
    (writer.depth(), writer.written(), writer.lost())
}

#[tokio::test(start_paused = true)]
async fn slow_sink_delays_no_caller() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| {
        sleep(ms(10)).await;
        Ok(())
    });
    let (writer, task) = start(sink.clone(), CAPACITY);
    let begun = now();
    let mut random = fastrand::Rng::with_seed(7);
    for number in 0..CAPACITY {
        writer.offer(letter(TIERS[random.usize(0..3)], &number.to_string()));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(counts(&writer), (CAPACITY, 0, 0));

    writer.close(LONG).await;
    assert_eq!(begun.elapsed(), ms(10 * CAPACITY as u64));
    assert_eq!(counts(&writer), (0, CAPACITY as u64, 0));
    assert_eq!(events.lost_letters(), []);
    let order: Vec<(Priority, usize)> =
        sink.taken.lock().iter().map(|letter| (letter.priority, note(letter).parse().unwrap())).collect();
    assert_eq!(order.len(), CAPACITY);
    assert!(
        order.is_sorted_by_key(|(priority, number)| (*priority as u8, *number)),
        "by priority, and then as they came"
    );
    // After every batch, and once more at the end.
    assert_eq!(sink.flushed.load(Relaxed), CAPACITY.div_ceil(64));
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn high_priority_letter_is_written_first() {
    let sink = Scripted::new(async |_| {
        sleep(ms(10)).await;
        Ok(())
    });
    let (writer, _task) = start(sink.clone(), CAPACITY);
    for (priority, note) in [(Priority::Low, "1"), (Priority::Low, "2"), (Priority::Normal, "3")] {
        writer.offer(letter(priority, note));
    }
    sleep(ms(5)).await;
    writer.offer(letter(Priority::Low, "4"));
    writer.offer(letter(Priority::High, "5"));
    writer.close(LONG).await;
    assert_eq!(sink.notes(), ["3", "5", "1", "2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn recovered_sink_gets_the_letter() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |call| if call < 4 { Err("not yet".into()) } else { Ok(()) });
    let (writer, _task) = start(sink.clone(), 10);
    let begun = now();
    writer.offer(letter(Priority::High, "1"));
    writer.close(LONG).await;
    assert_eq!(begun.elapsed(), ms(100 + 200 + 400 + 800));
    assert_eq!(sink.notes(), ["1"]);
    assert_eq!(counts(&writer), (0, 1, 0));
    assert_eq!(events.with_message("the dead-letter sink failed; the letter is passed again").len(), 4);
}

/// A sink whose every call fails gets each letter five times; then the event holds the letter.
#[track_caller]
fn assert_logged_with_letter(events: &LogEvents, writer: &Writer, sink: &Scripted, offered: &DeadLetter, error: &str) {
    assert_eq!(sink.calls.load(Relaxed), 5);
    assert_eq!(counts(writer), (0, 0, 1));
    assert_eq!(events.lost_letters(), [offered.redacted()]);
    let event = &events.with_message("dead letter not written")[0];
    assert_eq!((&*event["why"], &*event["error"]), ("the sink failed", error));
    assert!(!format!("{event:?}").contains("hidden"));
}

#[tokio::test(start_paused = true)]
async fn failing_sink_is_logged_with_the_letter() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| Err("the disk is gone".into()));
    let (writer, _task) = start(sink.clone(), 10);
    let offered = letter(Priority::High, "1");
    writer.offer(offered.clone());
    writer.close(LONG).await;
    assert_logged_with_letter(&events, &writer, &sink, &offered, "the disk is gone");
}

#[tokio::test(start_paused = true)]
async fn hanging_sink_is_logged_with_the_letter() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| std::future::pending().await);
    let (writer, _task) = start(sink.clone(), 10);
    let begun = now();
    let offered = letter(Priority::High, "1");
    writer.offer(offered.clone());
    writer.close(LONG).await;
    assert_eq!(begun.elapsed(), 5 * ms(30_000) + ms(1500));
    assert_logged_with_letter(&events, &writer, &sink, &offered, "the sink took longer than 30 s");
}

#[tokio::test(start_paused = true)]
async fn panicking_sink_gets_the_next_letter() {
    let (events, _guard) = LogEvents::capture();
    // The call itself panics, its first poll does, and a later poll does.
    let sink = Arc::new(Scripted {
        calls: AtomicUsize::new(0),
        flushed: AtomicUsize::new(0),
        taken: Mutex::default(),
        answer: Box::new(|call| match call {
            0 | 1 => panic!("in the call"),
            2 | 3 => Box::pin(async { panic!("at the first poll") }),
            4 => Box::pin(async {
                sleep(ms(10)).await;
                panic!("after a wait")
            }),
            _ => Box::pin(std::future::ready(Ok(()))),
        }),
    });
    let (writer, task) = start(sink.clone(), 10);
    let offered = letter(Priority::High, "1");
    writer.offer(offered.clone());
    sleep(LONG).await;
    assert_logged_with_letter(&events, &writer, &sink, &offered, "the sink panicked");

    writer.offer(letter(Priority::High, "2"));
    writer.close(LONG).await;
    assert_eq!(sink.notes(), ["2"]);
    assert_eq!(counts(&writer), (0, 1, 1));
    task.await.unwrap();
}

/// Panics wherever the client calls the application's code: when dropped, and when displayed.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in drop");
        }
    }
}

struct PanicsOnDisplay;

impl fmt::Debug for PanicsOnDisplay {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in Debug")
    }
}

impl fmt::Display for PanicsOnDisplay {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("in Display")
    }
}

impl std::error::Error for PanicsOnDisplay {}

#[tokio::test(start_paused = true)]
async fn sink_panics_in_drop_are_contained() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |call| {
        let _spiteful = (call < 2).then(|| PanicsOnDrop);
        if call < 2 {
            std::future::pending::<()>().await;
        }
        Err(PanicsOnDisplay.into())
    });
    let (writer, task) = start(sink.clone(), 10);
    let offered = letter(Priority::High, "1");
    writer.offer(offered.clone());
    writer.close(LONG).await;
    assert_logged_with_letter(&events, &writer, &sink, &offered, "an error that cannot be shown");
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn full_queue_loses_with_an_event() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| Ok(()));
    let (writer, _task) = start(sink.clone(), 3);
    // The task has not run yet, so the letters stay in the queue.
    for number in 0..5 {
        writer.offer(letter(Priority::High, &number.to_string()));
    }
    assert_eq!(counts(&writer), (3, 0, 2));
    assert_eq!(events.lost_letters().iter().map(note).collect::<Vec<_>>(), ["3", "4"]);
    assert_eq!(events.with_message("dead letter not written")[0]["why"], "the queue is full");
    writer.close(LONG).await;
    assert_eq!(sink.notes(), ["0", "1", "2"]);

    writer.offer(letter(Priority::High, "late"));
    assert_eq!(counts(&writer), (0, 3, 3));
    assert_eq!(events.with_message("dead letter not written")[2]["why"], "the client has shut down");
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_by_bytes() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| Ok(()));
    let (writer, _task) = start(sink.clone(), CAPACITY);
    let mut large = letter(Priority::High, "large");
    large.request = LetterRequest::whole(&Method::POST, "/", &HeaderMap::new(), vec![b'x'; 30 << 20]);
    for _ in 0..3 {
        writer.offer(large.clone());
    }
    assert_eq!(counts(&writer), (2, 0, 1));
    assert_eq!(events.lost_letters().len(), 1);
    sleep(ms(1)).await;
    writer.offer(large.clone());
    writer.close(LONG).await;
    assert_eq!(counts(&writer), (0, 3, 1));
}

#[tokio::test(start_paused = true)]
async fn letters_beyond_the_grace_are_logged() {
    let (events, _guard) = LogEvents::capture();
    let sink = Scripted::new(async |_| {
        sleep(ms(10)).await;
        Ok(())
    });
    let (writer, task) = start(sink.clone(), CAPACITY);
    for number in 0..100 {
        writer.offer(letter(TIERS[number % 3], &number.to_string()));
    }
    let begun = now();
    writer.close(ms(105)).await;
    assert_eq!(begun.elapsed(), ms(105));
    assert_eq!(counts(&writer), (0, 10, 90));
    let lost = events.lost_letters();
    let mut all: Vec<usize> = lost.iter().map(|letter| note(letter).parse().unwrap()).collect();
    all.extend(sink.notes().iter().map(|note| note.parse::<usize>().unwrap()));
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    // The task ends too, and passes nothing more to the sink.
    task.await.unwrap();
    assert_eq!(sink.calls.load(Relaxed), 11);
    writer.close(LONG).await;
    assert_eq!(events.lost_letters().len(), 90);
}

#[tokio::test(start_paused = true)]
async fn stopped_task_logs_remaining_letters() {
    let sink = Scripted::new(async |_| std::future::pending().await);
    // The task is aborted.
    let (events, _guard) = LogEvents::capture();
    let (writer, task) = start(sink.clone(), 10);
    writer.offer(letter(Priority::High, "1"));
    writer.offer(letter(Priority::High, "2"));
    sleep(ms(1)).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert_eq!(events.lost_letters().len(), 2);
    writer.offer(letter(Priority::High, "3"));
    assert_eq!(counts(&writer), (0, 0, 3));
    writer.close(LONG).await;

    // The task is dropped before its first poll.
    let (events, _guard) = LogEvents::capture();
    let (writer, task) = Writer::new(sink.clone(), 10);
    writer.offer(letter(Priority::High, "1"));
    drop(task);
    assert_eq!((counts(&writer), events.lost_letters().len()), ((0, 0, 1), 1));

    // The task is never polled.
    let (events, _guard) = LogEvents::capture();
    let (writer, _task) = Writer::new(sink, 10);
    writer.offer(letter(Priority::High, "1"));
    writer.close(ms(1)).await;
    assert_eq!((counts(&writer), events.lost_letters().len()), ((0, 0, 1), 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_writer_writes_queued_letters() {
    let sink = Scripted::new(async |_| {
        sleep(ms(10)).await;
        Ok(())
    });
    let (writer, task) = start(sink.clone(), 10);
    writer.offer(letter(Priority::High, "1"));
    writer.offer(letter(Priority::High, "2"));
    drop(writer);
    task.await.unwrap();
    assert_eq!(sink.notes(), ["1", "2"]);
}

/// Many threads offer letters while the writer closes: each letter ends once, whatever the channel reports to each
/// thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::disallowed_methods, reason = "a test needs threads")]
async fn closing_race_loses_no_letter() {
    for round in 0..300 {
        let sink = Scripted::new(async |_| Ok(()));
        let (writer, task) = start(sink.clone(), 1000);
        let writer = Arc::new(writer);
        let producers: Vec<_> = (0..3)
            .map(|producer| {
                let writer = writer.clone();
                std::thread::spawn(move || {
                    for _ in 0..20 {
                        writer.offer(letter(TIERS[producer], ""));
                    }
                })
            })
            .collect();
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        writer.close(if round % 5 == 0 { Duration::ZERO } else { LONG }).await;
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        task.await.unwrap();
        let (depth, written, lost) = counts(&writer);
        assert_eq!((depth, written + lost), (0, 60), "{round}: {written} written");
        assert!(sink.taken.lock().len() as u64 >= written);
    }
}
