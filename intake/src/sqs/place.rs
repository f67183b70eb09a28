//! The address of an SQS queue and the access keys to it, from the URL and the environment.

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, ProvideCredentials, Region, SharedCredentialsProvider};

use super::problem::{KEYS, with_causes};
use crate::address::Address;
use crate::error::Error;
use crate::waits::PATIENCE;

/// The seconds for which the server waits for a message before it answers that there is none, the most that SQS allows.
pub(super) const WAIT_S: i32 = 20;
/// The most deliveries of a message, unless the URL states another number.
const MAX_DELIVERIES: u64 = 25;

/// The address of a queue, and of the queue of refused messages if the URL names one.
pub(crate) struct Place {
    /// Scheme, host and port of the server.
    endpoint: String,
    region: String,
    pub(crate) queue_url: String,
    /// The URL of the queue of refused messages.
    pub(super) dead_url: Option<String>,
    pub(crate) name: String,
    pub(super) max_deliveries: Option<u64>,
}

/// The value of an environment variable; `None` if it is missing or empty.
fn set(env: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    env(name).filter(|value| !value.is_empty())
}

impl Place {
    pub(crate) fn read(url: &str, env: impl Fn(&str) -> Option<String>) -> Result<Place, Error> {
        let address = Address::read("SQS", url, &["dead", "max_deliveries", "region"])?;
        let url = &address.url;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::new(format!("SQS: the URL must hold no keys: {KEYS}")));
        }
        let (scheme, default_port) = if url.scheme() == "sqs+http" { ("http", 80) } else { ("https", 443) };
        let host = url.host_str().filter(|host| !host.is_empty());
        let path = url.path();
        let (Some(host), Some((parent, queue))) = (host, path.rsplit_once('/').filter(|(_, queue)| !queue.is_empty()))
        else {
            return Err(Error::new("SQS: the URL must name a host and a queue: sqs://HOST/ACCOUNT/QUEUE"));
        };
        if let Some(left) = url.query().filter(|query| !query.is_empty()) {
            let name = left.split(['=', '&']).next().unwrap_or_default();
            return Err(Error::new(format!(
                "SQS: the URL has no parameter `{name}`; it may have `dead`, `max_deliveries` and `region`"
            )));
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let endpoint = format!("{scheme}://{host}{port}");
        let beside = |dead: &str| match dead {
            url if url.starts_with("https://") || url.starts_with("http://") => url.to_owned(),
            name => format!("{endpoint}{parent}/{name}"),
        };
        let of_env = || set(&env, "AWS_REGION").or_else(|| set(&env, "AWS_DEFAULT_REGION"));
        let region = address.get("region").map(str::to_owned).or_else(|| region_of(host)).or_else(of_env);
        let queue_url = format!("{endpoint}{parent}/{queue}");
        let dead_url = address.get("dead").map(beside);
        if dead_url.as_ref() == Some(&queue_url) {
            return Err(Error::new(
                "SQS: `dead` names the queue itself: refused messages would come again without end",
            ));
        }
        Ok(Place {
            queue_url,
            dead_url,
            name: format!("sqs:{}{path}", address.place(default_port)),
            max_deliveries: address.max_deliveries(MAX_DELIVERIES)?,
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            endpoint,
        })
    }

    /// Makes a client that sends each request once: the source itself logs and retries failures. Returns also whether its
    /// keys are renewed.
    pub(crate) async fn client(&self, env: impl Fn(&str) -> Option<String>) -> Result<(Client, bool), Error> {
        let (keys, are_renewed) = match (set(&env, "AWS_ACCESS_KEY_ID"), set(&env, "AWS_SECRET_ACCESS_KEY")) {
            (Some(id), Some(secret)) => {
                let token = set(&env, "AWS_SESSION_TOKEN");
                (SharedCredentialsProvider::new(Credentials::new(id, secret, token, None, "environment")), false)
            }
            _ => self.keys_of_role().await?,
        };
        let longest = PATIENCE.saturating_add(std::time::Duration::from_secs(WAIT_S as u64));
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(self.region.clone()))
            .credentials_provider(keys)
            .endpoint_url(&self.endpoint)
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(PATIENCE).operation_timeout(longest).build())
            .build();
        Ok((Client::from_conf(config), are_renewed))
    }

    /// The temporary keys of a role, which the SDK renews: by the token of a web identity (EKS), from the service of the
    /// container (ECS, EKS Pod Identity) or of the machine (EC2); or the keys of a profile in `~/.aws`.
    /// Keys without an expiry are read once.
    async fn keys_of_role(&self) -> Result<(SharedCredentialsProvider, bool), Error> {
        let region = Region::new(self.region.clone());
        let chain = DefaultCredentialsChain::builder().region(region).build().await;
        let found = tokio::time::timeout(PATIENCE, chain.provide_credentials()).await;
        let problem = match found {
            Ok(Ok(keys)) => return Ok((SharedCredentialsProvider::new(chain), keys.expiry().is_some())),
            Ok(Err(error)) => with_causes(&error),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        Err(self.without_keys(&problem))
    }

    fn without_keys(&self, problem: &str) -> Error {
        Error::new(format!("{}: there are no keys: {KEYS} ({problem})", self.name))
    }
}

/// The region in the name of an AWS host, as in `sqs.eu-west-1.amazonaws.com`. Labels of a private endpoint may precede
/// `sqs`.
fn region_of(host: &str) -> Option<String> {
    let mut labels = host.split('.');
    labels.find(|label| *label == "sqs")?;
    let region = labels.next().filter(|region| *region != "amazonaws")?;
    host.contains(".amazonaws.com").then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_env(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn url_names_endpoint_region_and_queues() {
        let place = Place::read("sqs://sqs.eu-west-1.amazonaws.com/123/orders?dead=bad", no_env).unwrap();
        assert_eq!(place.endpoint, "https://sqs.eu-west-1.amazonaws.com");
        assert_eq!(place.queue_url, "https://sqs.eu-west-1.amazonaws.com/123/orders");
        assert_eq!(place.dead_url.as_deref(), Some("https://sqs.eu-west-1.amazonaws.com/123/bad"));
        assert_eq!(place.name, "sqs:sqs.eu-west-1.amazonaws.com:443/123/orders");
        assert_eq!(place.region, "eu-west-1");
        let place = Place::read("sqs+http://127.0.0.1:9324/000000000000/q", no_env).unwrap();
        assert_eq!(place.queue_url, "http://127.0.0.1:9324/000000000000/q");
        assert_eq!((place.dead_url, &*place.region), (None, "us-east-1"));
    }

    #[test]
    fn url_region_precedes_host_and_environment() {
        let env = |name: &str| (name == "AWS_REGION").then(|| "eu-north-1".to_owned());
        let region = |url: &str| Place::read(url, env).unwrap().region;
        assert_eq!(region("sqs://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/1/q?region=x"), "x");
        assert_eq!(region("sqs://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/1/q"), "eu-west-1");
        assert_eq!(region("sqs://queues.example/1/q"), "eu-north-1");
    }

    #[test]
    fn missing_settings_are_named_without_keys() {
        let problem = |url: &str| Place::read(url, no_env).err().unwrap().to_string();
        assert!(problem("sqs://host").contains("sqs://HOST/ACCOUNT/QUEUE"));
        assert!(problem("sqs://host/1/").contains("sqs://HOST/ACCOUNT/QUEUE"));
        assert!(problem("sqs://host/1/q?regoin=x").contains("`regoin`"));
        assert!(problem("sqs://host/1/q?dead=q").contains("itself"));
        assert_eq!(Place::read("sqs://sqs.amazonaws.com/1/q", no_env).unwrap().region, "us-east-1");
        let error = problem("sqs://AKID:hunter2@host/1/q");
        assert!(error.contains("AWS_ACCESS_KEY_ID") && !error.contains("hunter2"), "{error}");
        let error = Place::read("sqs://host/1/q", no_env).unwrap().without_keys("why").to_string();
        assert!(error.contains("host:443/1/q") && error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    }
}
