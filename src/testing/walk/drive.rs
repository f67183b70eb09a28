//! A client that sends a case's requests through the library's public interface, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::case::Case;
use super::ideal;
use super::judge::{self, Outcome};
use super::moment;
use super::plan::{self, Class, Timeline};
use super::vendor::{MARK, Road};
use crate::config::{AuthScheme, TenantEntry};
use crate::transport::SecretString;
use crate::{Error, IntegrationClient, Priority, Request};

/// A deadline that is never reached.
const PATIENCE: Duration = Duration::from_secs(3_000 * 86_400);

impl Case {
    /// Runs the case.
    ///
    /// # Errors
    /// No client can be built from the entry, which is a defect of the entry.
    pub fn walk(&self) -> Result<Outcome, Error> {
        // The client draws its jitter from the generator of this thread, so a case has the same outcome each time.
        fastrand::seed(7);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.map_err(|why| Error::config(format!("no runtime: {why}")))?;
        let outcome = runtime.block_on(self.run());
        runtime.shutdown_background();
        outcome
    }

    async fn run(&self) -> Result<Outcome, Error> {
        let classes = plan::classes(self);
        let timeline = plan::timeline(self, &classes);
        let timeline = ideal::with_a_busy_accident(self, &classes, timeline);
        let timeline = Timeline { accident_at: self.begins_after(timeline.accident_at), ..timeline };
        let road = Road::new(self, timeline, classes.iter().map(|class| class.call).collect());
        let client = Arc::new(self.client(&classes, road.clone()).await?);
        let mut sending = JoinSet::new();
        for (number, class) in classes.iter().enumerate() {
            let copies = if class.saturates { 3 * timeline.copies } else { 1 };
            for copy in 0..copies {
                let priority = [Priority::High, Priority::Normal, Priority::Low][copy % 3];
                let looks = (!class.saturates).then(|| (road.clone(), timeline, class.clone()));
                let sender = Sender { client: client.clone(), tenant: tenant(class), priority, looks };
                sending.spawn(sender.run(self.request(number, class)));
            }
        }
        tokio::time::sleep(Duration::from_nanos(timeline.ends)).await;
        sending.abort_all();
        while sending.join_next().await.is_some() {}
        let outcome = judge::judge(self, &classes, &timeline, &road.state.lock());
        Ok(outcome)
    }

    async fn client(&self, classes: &[Class], road: Road) -> Result<IntegrationClient, Error> {
        let mut builder = IntegrationClient::builder()
            .without_catalogue()
            .without_watching()
            .vendors_toml(self.toml.as_str())
            .credential_resolver("walk", |_: String| async { Ok(SecretString::from("user:key")) })
            .shards(1)
            .without_ticks()
            .beginning_at(moment::began())
            .transport(road);
        let mut known = 0;
        for class in classes {
            if class.call.tenant < known {
                continue;
            }
            known = class.call.tenant + 1;
            let mut entry = TenantEntry::new(tenant(class), &*self.vendor.name)
                .environment(&*self.vendor.environment)
                .account(format!("account-{}", class.call.account));
            if self.vendor.auth != AuthScheme::None {
                entry = entry.credential("walk:key");
            }
            for (variable, value) in variables(&self.vendor.base_url) {
                entry = entry.variable(variable, value);
            }
            builder = builder.tenant(entry);
        }
        builder.build().await
    }

    fn request(&self, number: usize, class: &Class) -> impl Fn() -> Request + Send + 'static {
        let vendor = self.vendor.name.clone();
        let endpoint = class.endpoint.map(|at| self.vendor.endpoints[at].name.clone());
        move || {
            let request = Request::get(&vendor, "/walk").header(MARK, number.to_string()).deadline(PATIENCE);
            match &endpoint {
                Some(name) => request.endpoint(name),
                None => request,
            }
        }
    }
}

fn tenant(class: &Class) -> String {
    format!("tenant-{}", class.call.tenant)
}

/// A value for each variable of a base URL: a host name if the variable is the whole host.
fn variables(template: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let mut before = template.split('{').next().unwrap_or_default();
    template.split('{').skip(1).filter_map(move |rest| {
        let (name, after) = rest.split_once('}')?;
        let is_host = before.ends_with("://") && (after.is_empty() || after.starts_with('/'));
        before = after;
        Some((name, if is_host { "walk.example.com" } else { "walk" }))
    })
}

struct Sender {
    client: Arc<IntegrationClient>,
    tenant: String,
    priority: Priority,
    /// Set for a class of single requests, which waits between two of them.
    looks: Option<(Road, Timeline, Class)>,
}

impl Sender {
    async fn run(self, request: impl Fn() -> Request + Send + 'static) {
        loop {
            match self.client.send(&self.tenant, self.priority, request()).await {
                Ok(response) => drop(response.bytes().await),
                // The client gave the request back. Like a real caller, tries again, and earlier than the error says.
                Err(error) => {
                    let wait = error.retry_after().unwrap_or(Duration::from_secs(1)) / 8;
                    tokio::time::sleep(wait.max(Duration::from_millis(100))).await;
                }
            }
            if let Some((road, timeline, class)) = &self.looks {
                tokio::time::sleep(timeline.next_look(class, road.now())).await;
            }
        }
    }
}
