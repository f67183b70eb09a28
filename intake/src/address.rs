//! The URL of a source: separates the query parameters of this crate from those of the broker's client library.

use integration_client::BoxError;
use url::Url;

use crate::error::Error;

/// The URL of a broker without the parameters of this crate, which are kept beside it.
pub(crate) struct Address {
    pub(crate) url: Url,
    own: Vec<(String, String)>,
}

impl Address {
    /// Parses a URL and takes the parameters named in `own` out of its query. `broker` begins the message of an error.
    pub(crate) fn read(broker: &str, url: &str, own: &[&str]) -> Result<Address, Error> {
        // The error of the parser does not hold the URL, which may hold a password.
        let unreadable =
            |error| Error::new(format!("{broker}: the URL cannot be read")).with_source(BoxError::from(error));
        let mut url = Url::parse(url).map_err(unreadable)?;
        let pairs = url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned()));
        let (own, rest): (Vec<_>, Vec<_>) = pairs.partition(|(name, _)| own.contains(&&**name));
        url.set_query(None);
        if !rest.is_empty() {
            url.query_pairs_mut().extend_pairs(rest);
        }
        Ok(Address { url, own })
    }

    /// The value of one of the parameters named in `own`; `None` if it is missing or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.own.iter().find(|(own, value)| own == name && !value.is_empty()).map(|(_, value)| &**value)
    }

    /// The most deliveries of a message, as `max_deliveries` in the URL states it; there, 0 stands for no bound.
    #[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
    pub(crate) fn max_deliveries(&self, default: u64) -> Result<Option<u64>, Error> {
        let Some(stated) = self.get("max_deliveries") else { return Ok(Some(default)) };
        let no_number =
            |_| Error::new(format!("max_deliveries={stated} is no number of deliveries; 0 stands for no bound"));
        let most: u64 = stated.parse().map_err(no_number)?;
        Ok(Some(most).filter(|most| *most > 0))
    }

    /// The most messages that the broker delivers before it waits for an acknowledgement, as `prefetch` in the URL
    /// states it.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn prefetch(&self, default: u16) -> Result<u16, Error> {
        let Some(stated) = self.get("prefetch") else { return Ok(default) };
        // RabbitMQ takes 0 for no bound.
        let most = stated.parse().ok().filter(|most: &u16| *most > 0);
        most.ok_or_else(|| Error::new(format!("prefetch={stated} is no number of messages from 1 to 65535")))
    }

    /// Host and port of the broker, as `HOST:PORT`.
    pub(crate) fn place(&self, default_port: u16) -> String {
        format!("{}:{}", self.url.host_str().unwrap_or("localhost"), self.url.port().unwrap_or(default_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parameters_leave_the_query() {
        let address =
            Address::read("x", "amqp://u:p@mq/%2f?queue=a%20b&heartbeat=10&other=", &["queue", "other"]).unwrap();
        assert_eq!(address.url.as_str(), "amqp://u:p@mq/%2f?heartbeat=10");
        assert_eq!((address.get("queue"), address.get("other")), (Some("a b"), None));
        assert_eq!(address.place(5672), "mq:5672");
    }

    #[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
    #[test]
    fn bound_of_deliveries_is_stated_or_default() {
        let bound = |query: &str| {
            let address = Address::read("x", &format!("nats://host?{query}"), &["max_deliveries"]).unwrap();
            address.max_deliveries(25).map_err(|error| error.to_string())
        };
        assert_eq!((bound(""), bound("max_deliveries=3")), (Ok(Some(25)), Ok(Some(3))));
        assert_eq!(bound("max_deliveries=0"), Ok(None));
        assert!(bound("max_deliveries=few").unwrap_err().contains("max_deliveries=few"));
    }

    #[cfg(feature = "rabbitmq")]
    #[test]
    fn prefetch_is_stated_or_default() {
        let prefetch = |query: &str| {
            let address = Address::read("x", &format!("amqp://host?{query}"), &["prefetch"]).unwrap();
            address.prefetch(1024).map_err(|error| error.to_string())
        };
        assert_eq!((prefetch(""), prefetch("prefetch=")), (Ok(1024), Ok(1024)));
        assert_eq!((prefetch("prefetch=1"), prefetch("prefetch=65535")), (Ok(1), Ok(65_535)));
        for wrong in ["0", "65536", "-1", "many"] {
            let error = prefetch(&format!("prefetch={wrong}")).unwrap_err();
            assert_eq!(error, format!("prefetch={wrong} is no number of messages from 1 to 65535"));
        }
    }

    #[test]
    fn unreadable_url_is_not_shown() {
        let error = Address::read("RabbitMQ", "amqp://u:hunter2@mq:port/", &[]).err().unwrap();
        assert!(!error.to_string().contains("hunter2") && error.to_string().starts_with("RabbitMQ"), "{error}");
    }
}
