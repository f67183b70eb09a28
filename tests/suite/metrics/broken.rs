//! A metrics recorder that panics, and warnings that give advice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::testing::FakeAnswer;
use integration_client::{Priority, Request};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::{builder, get};

/// A recorder that panics at every call, or only when values are recorded.
struct Broken {
    everywhere: bool,
}

struct Panics;

impl metrics::CounterFn for Panics {
    fn increment(&self, _: u64) {
        panic!("broken");
    }

    fn absolute(&self, _: u64) {
        panic!("broken");
    }
}

impl metrics::GaugeFn for Panics {
    fn increment(&self, _: f64) {
        panic!("broken");
    }

    fn decrement(&self, _: f64) {
        panic!("broken");
    }

    fn set(&self, _: f64) {
        panic!("broken");
    }
}

impl metrics::HistogramFn for Panics {
    fn record(&self, _: f64) {
        panic!("broken");
    }
}

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        assert!(!self.everywhere, "broken");
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        assert!(!self.everywhere, "broken");
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        assert!(!self.everywhere, "broken");
    }

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        assert!(!self.everywhere, "broken");
        Counter::from_arc(Arc::new(Panics))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        assert!(!self.everywhere, "broken");
        Gauge::from_arc(Arc::new(Panics))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        assert!(!self.everywhere, "broken");
        Histogram::from_arc(Arc::new(Panics))
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_recorder_loses_no_permit() {
    for everywhere in [false, true] {
        let recorder = Broken { everywhere };
        let _local = metrics::set_default_local_recorder(&recorder);
        let script = |call: &integration_client::testing::FakeCall| match call.path() {
            "/base/reset" => FakeAnswer::reset(),
            _ => FakeAnswer::status(200).delay(Duration::from_millis(10)),
        };
        let client = builder(script).build().await.unwrap();
        for _ in 0..300 {
            client.send("a", Priority::High, get()).await.unwrap().bytes().await.unwrap();
        }
        client.send("a", Priority::High, Request::post("v", "/reset")).await.unwrap_err();
        let send = client.send("a", Priority::High, get());
        tokio::time::timeout(Duration::from_millis(5), send).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((client.in_flight(), client.waiting()), (0, 0));
        client.send("a", Priority::High, get()).await.unwrap();
        assert!(client.shutdown(Duration::from_secs(60)).await);
    }
}

/// A subscriber that keeps the warnings of little headroom.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        #[derive(Default)]
        struct Fields(Vec<String>);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push(format!("{}={value:?}", field.name()));
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let text = fields.0.join(" ");
        if text.contains("little headroom for minutes") {
            self.0.lock().unwrap().push(text);
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn little_headroom_is_advice_once_an_hour() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let client = builder(|_| FakeAnswer::status(200)).build().await.unwrap();
    // Uses the whole window, because the high tier may use the reserve too.
    let a_minute = async || {
        for _ in 0..60 {
            for _ in 0..95 {
                let _ = client.try_send("a", Priority::High, get()).await;
            }
            client.send("b", Priority::High, get()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            while client.try_send("a", Priority::High, get()).await.is_ok() {}
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let told = || warnings.0.lock().unwrap().len();
    a_minute().await;
    let first = warnings.0.lock().unwrap().clone();
    assert_eq!(told(), 1, "{first:?}");
    assert!(first[0].contains("vendor=\"v\" tenant=\"a\" average_pct="), "{first:?}");
    tokio::time::sleep(Duration::from_secs(57 * 60)).await;
    a_minute().await;
    assert_eq!(told(), 1, "within the hour");
    a_minute().await;
    a_minute().await;
    assert_eq!(told(), 2);
}
