//! How requests are sent: transport, credentials, signatures, and what delays a request besides the limits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::breakers::Breakers;
use crate::Priority;
use crate::clock::{Clock, Time, nanos};
use crate::config::Tenant;
use crate::engine::cost::Cost;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Attempt};
use crate::error::panic::catch_panic;
use crate::retry::{Budgets, Class, Classifier};
use crate::transport::{Credentials, Signer, TokenKeeper, Transport};

/// The deadline of requests for which neither the caller nor the client states one.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Egress {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) credentials: Credentials,
    /// Keyed by the vendor's name, like the classifiers.
    pub(crate) signers: HashMap<String, Arc<dyn Signer>>,
    pub(crate) classifiers: HashMap<String, Arc<dyn Classifier>>,
    pub(crate) budgets: Budgets,
    pub(crate) hosts: Arc<Breakers>,
    pub(crate) default_deadline: Duration,
    /// The program stated no default deadline. The default then applies to each attempt, without the waits that the
    /// vendor asks for.
    pub(crate) is_patient: bool,
}

impl Egress {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        mut credentials: Credentials,
        signers: HashMap<String, Arc<dyn Signer>>,
        classifiers: HashMap<String, Arc<dyn Classifier>>,
        default_deadline: Option<Duration>,
        token_keeper: Option<Arc<dyn TokenKeeper>>,
        clock: Clock,
    ) -> Egress {
        credentials.begin(transport.clone(), clock, token_keeper);
        Egress {
            transport,
            credentials,
            signers,
            classifiers,
            budgets: Budgets::new(),
            hosts: Arc::new(Breakers::new(clock)),
            default_deadline: default_deadline.unwrap_or(DEADLINE),
            is_patient: default_deadline.is_none(),
        }
    }

    #[inline(always)]
    pub(crate) fn classifier(&self, tenant: &Tenant) -> Option<&dyn Classifier> {
        if self.classifiers.is_empty() {
            return None;
        }
        self.classifiers.get(&*tenant.vendor.name).map(|classifier| &**classifier)
    }

    /// The class that the program's classifier gives to a response; `None` if the status decides, as after a panic.
    pub(crate) fn class_of(&self, tenant: &Tenant, status: StatusCode, headers: &HeaderMap) -> Option<Class> {
        let classifier = self.classifier(tenant)?;
        catch_panic(|| classifier.classify(status, headers)).flatten()
    }

    pub(crate) fn ask(priority: Priority, endpoint: EndpointId, cost: Cost, give_up: Time, attempt: Duration) -> Ask {
        Ask { give_up, ..Ask::new(priority.into(), endpoint, cost, Attempt::within(nanos(attempt))) }
    }

    pub(crate) fn attempt_ask(
        &self,
        now: Time,
        tenant: &Tenant,
        priority: Priority,
        cost: Cost,
        max_wait: Option<Duration>,
    ) -> Ask {
        let give_up = now + max_wait.unwrap_or(self.default_deadline);
        Egress::ask(priority, NO_ENDPOINT, cost, give_up, tenant.vendor.attempt_timeout)
    }
}
