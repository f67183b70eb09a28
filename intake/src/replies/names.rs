//! Chooses where a reply goes: to the queue, subject or topic that its request named, if that name is allowed, and
//! otherwise to the one that the target's URL names.

use integration_client::outbox::Reply;

use crate::address::Address;

/// The queue, subject or topic of the target's URL, and the prefixes of the names that requests may use instead.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) own: String,
    allowed: Vec<String>,
}

impl Names {
    /// Reads the allowed prefixes from the parameter `allow` of a URL, which separates them by commas.
    pub(super) fn new(own: &str, address: &Address) -> Names {
        let allowed = address.get("allow").unwrap_or_default().split(',').map(str::trim);
        let allowed = allowed.filter(|start| !start.is_empty()).map(str::to_owned).collect();
        Names { own: own.to_owned(), allowed }
    }

    /// The name that the request gave for its reply, if it is allowed and differs from the target's own.
    pub(super) fn named(&self, reply: &Reply) -> Option<String> {
        let name = reply.reply_to()?;
        let is_allowed = self.allowed.iter().any(|start| name.starts_with(start.as_str()));
        (is_allowed && name != self.own).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_forbidden_places_are_refused() {
        let names = |query: &str| {
            Names::new("replies", &Address::read("x", &format!("amqp://mq/%2f?{query}"), &["allow"]).unwrap())
        };
        let allowed = |query: &str, name: &str| names(query).allowed.iter().any(|start| name.starts_with(start));
        assert!(allowed("allow=amq.,of-%20", "amq.gen-1") && allowed("allow=amq.,of-%20", "of- a"));
        for (query, name) in
            [("", "other"), ("allow=", "other"), ("allow=,%20,", "other"), ("allow=amq.", "replies.amq.")]
        {
            assert!(!allowed(query, name), "{query} {name}");
        }
    }
}
