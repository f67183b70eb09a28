//! Which place a reply goes to: the one that its request named, if it may name it, and otherwise the target's own.

use integration_client::outbox::Reply;

use crate::address::Address;

/// The target's own place, and what the names of others begin with that requests may name.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) own: String,
    allowed: Vec<String>,
}

impl Names {
    /// From the parameter `allow` of a URL: beginnings of names, with commas between them.
    pub(super) fn new(own: &str, address: &Address) -> Names {
        let allowed = address.get("allow").unwrap_or_default().split(',').map(str::trim);
        let allowed = allowed.filter(|start| !start.is_empty()).map(str::to_owned).collect();
        Names { own: own.to_owned(), allowed }
    }

    /// The place that the request named, if it may.
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
    fn no_place_is_named_that_is_not_allowed() {
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
