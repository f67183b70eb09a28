//! The jobs in the store whose vendor or tenant the configuration does not have.

use std::collections::BTreeMap;

use integration_client::IntegrationClient;
use integration_client::outbox::Queue;

use super::feed::SAID;

/// What to say of the lanes that have jobs in the store and are not configured: a line for each of the first [`SAID`].
pub(super) fn said(queues: &[Queue], client: &IntegrationClient) -> Vec<String> {
    let mut lanes = BTreeMap::<(&str, &str), u64>::new();
    for queue in queues {
        *lanes.entry((queue.vendor.as_str(), queue.tenant.as_str())).or_default() += queue.waiting + queue.under_way;
    }
    let config = client.config().current();
    let mut unknown = lanes.into_iter().filter(|((vendor, tenant), _)| config.tenant(tenant, vendor).is_err());
    let line = |((vendor, tenant), jobs): ((&str, &str), u64)| {
        let jobs = match jobs {
            1 => "its job waits".to_owned(),
            _ => format!("its {jobs} jobs wait"),
        };
        format!(
            "{vendor} is not configured for {tenant}; {jobs}. What is not configured within ten minutes becomes a dead letter \
             (not_configured), unless other processes work on the store too"
        )
    };
    let mut said: Vec<String> = unknown.by_ref().take(usize::try_from(SAID).unwrap_or(usize::MAX)).map(line).collect();
    if unknown.next().is_some() {
        said.push("more vendors or tenants are not configured, and their jobs wait".to_owned());
    }
    said
}
