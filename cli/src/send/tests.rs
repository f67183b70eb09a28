//! `send --store` while its store fails, and while no process has the key that its job needs.

#![allow(clippy::unwrap_used, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use clap::Parser;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{Delay, FakeVendor};

use super::*;

#[derive(clap::Parser)]
struct Parsed {
    #[command(flatten)]
    args: Args,
}

/// A disk that is full from a moment of a kind of statement on, or a database that loses its jobs.
#[derive(Default)]
struct FailingStore {
    from: Mutex<Option<(&'static str, Moment)>>,
    is_full: AtomicBool,
    loses_jobs: AtomicBool,
}

impl FailingStore {
    fn fill_at(&self, what: &'static str, moment: Moment) {
        *self.from.lock().unwrap() = Some((what, moment));
    }

    /// Makes room. Returns whether the disk was full.
    fn make_room(&self) -> bool {
        *self.from.lock().unwrap() = None;
        self.is_full.swap(false, Relaxed)
    }
}

impl Watch for FailingStore {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if *self.from.lock().unwrap() == Some((what, moment)) {
            self.is_full.store(true, Relaxed);
        }
        if self.loses_jobs.load(Relaxed) && (what, moment) == ("read", Moment::Before) {
            return Fault::First("DELETE FROM ic_job");
        }
        if self.is_full.load(Relaxed) { Fault::Full } else { Fault::None }
    }
}

/// A command with a store, and the vendor that it sends to.
struct Sending {
    folder: PathBuf,
    faults: Arc<FailingStore>,
    vendor: FakeVendor,
    client: IntegrationClient,
    args: Args,
    named: Named,
    known: Known,
}

impl Sending {
    async fn new(name: &str) -> Sending {
        let folder = std::env::temp_dir().join(format!("ic-send-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let service = Delay::fixed(Duration::from_millis(500));
        let vendor = FakeVendor::builder().service_time(service).poisoned("/bad", 422).start().await.unwrap();
        let entry = format!(
            "[vendors.v]\nbase_url = \"{}\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n\
             [[tenants]]\nid = \"acme\"\nvendor = \"v\"\n",
            vendor.url()
        );
        std::fs::write(folder.join("vendors.toml"), entry).unwrap();
        let (faults, path) = (Arc::new(FailingStore::default()), folder.join("jobs.sqlite"));
        let store = Store::sqlite(&path).watched_by(faults.clone());
        let builder = IntegrationClient::builder().without_catalogue().vendors_file(folder.join("vendors.toml"));
        let client = builder.store(store).without_watching().work_on_own().build().await.unwrap();
        let args = Parsed::parse_from(["send", "acme", "v", "/jobs", "-d", "{}"]).args;
        let named = Named::new(&path.to_string_lossy());
        Sending { folder, faults, vendor, client, args, named, known: Known::default() }
    }

    async fn as_job(&self) -> Result<End, Failure> {
        let request = self.args.request()?;
        self.args.as_job(self.client.clone(), true, &self.named, request, &self.known).await
    }

    async fn wait_until_under_way(&self) {
        while self.vendor.summary().arrived == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_followed_while_its_store_fails() {
    let sending = Sending::new("followed").await;
    let failing = async {
        sending.wait_until_under_way().await;
        sending.faults.fill_at("read", Moment::Before);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(sending.faults.make_room());
    };
    let (answer, ()) = tokio::join!(sending.as_job(), failing);
    let End::Answered(answer) = answer.unwrap() else { panic!("no answer") };
    assert_eq!((answer.status, answer.attempts, sending.vendor.summary().arrived), (200, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_job_is_no_dead_letter() {
    let sending = Sending::new("lost").await;
    let losing = async {
        sending.wait_until_under_way().await;
        sending.faults.loses_jobs.store(true, Relaxed);
    };
    let (answer, ()) = tokio::join!(sending.as_job(), losing);
    let failure = answer.err().unwrap();
    assert!(failure.to_string().contains("has no record of job "), "{failure}");
    assert!(sending.known.is_job(), "the exit code must not say that it was not sent");
    let said = sending.known.said().await;
    assert!(said.starts_with("nobody knows what became of job "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doubtful_job_is_named() {
    let sending = Sending::new("doubtful").await;
    // The job is written, and the reply to the commit is lost.
    sending.faults.fill_at("accept", Moment::Committed);
    let failure = sending.as_job().await.err().unwrap();
    assert!(sending.known.is_job(), "the exit code must not say that it was not sent: {failure}");
    assert!(sending.faults.make_room());
    let said = sending.known.said().await;
    assert!(said.starts_with("it waits as job ") && said.contains(&sending.named.shown()), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_was_not_accepted_is_unsent() {
    let sending = Sending::new("unsent").await;
    sending.faults.fill_at("accept", Moment::Before);
    assert!(sending.as_job().await.is_err() && !sending.known.is_job());
    assert_eq!(sending.vendor.summary().arrived, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn command_for_the_letter_names_the_store_as_one_word() {
    let mut sending = Sending::new("two words").await;
    sending.args.path = "/bad".to_owned();
    assert!(matches!(sending.as_job().await.unwrap(), End::GivenUp(Outcome::Found)));
    let said = sending.known.said().await;
    assert!(said.ends_with(&format!(" --store '{}'", sending.named.shown())), "{said}");
}

/// The process that worked on the store has ended, and this one has no key.
#[tokio::test(flavor = "multi_thread")]
async fn job_that_nobody_can_send_ends_the_command() {
    let folder = std::env::temp_dir().join(format!("ic-send-{}-keyless", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (vendors, store) = (folder.join("vendors.toml"), folder.join("jobs.sqlite"));
    let entry = "[vendors.v]\nbase_url = \"http://127.0.0.1:9\"\nauth = { scheme = \"bearer\" }\nunpublished = true\n\
                 [[tenants]]\nid = \"acme\"\nvendor = \"v\"\ncredential = \"env:IC_SEND_NO_SUCH_KEY\"\n";
    std::fs::write(&vendors, entry).unwrap();
    let args = Parsed::parse_from(["send", "acme", "v", "/jobs", "-d", "{}", "--vendors", vendors.to_str().unwrap()]);
    let (args, named, known) = (args.args, Named::new(store.to_str().unwrap()), Known::default());
    let client = args.builder(&named).unwrap().build().await.unwrap();
    let job = args.as_job(client, false, &named, args.request().unwrap(), &known);
    let job = tokio::time::timeout(Duration::from_secs(30), job).await.expect("it does not wait for its deadline");
    let failure = job.err().unwrap();
    assert!(failure.to_string().contains("env:IC_SEND_NO_SUCH_KEY is not set in this process"), "{failure}");
    assert!(known.is_job(), "the job is there for the next process that works on the store");
    let said = known.said().await;
    assert!(said.starts_with("it waits as job "), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}
