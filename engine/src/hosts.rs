//! Who answers the lanes that share a limit.
//!
//! Where a tenant's variables choose the host (`https://{host}`), an answer speaks for that host alone. As long as
//! all lanes that share a limit have chosen one and the same host, its word holds for all of them: a tenant who could be harmed
//! by it is a tenant of that host. As soon as one of them has another host, an answer acts on its own lane alone, and what
//! was said of the limit before is forgotten.

use super::Engine;
use super::holder::Hosts;
use super::keys::HolderKey;
use super::notices::Forgotten;
use super::origin::Origin;
use super::origin::Target;

impl Engine {
    /// A lane of these holders is answered by `host`, which its tenant's variables choose; none for the vendor's own.
    pub(super) fn answered_by(&mut self, holders: [HolderKey; 2], host: Option<&str>) {
        let Some(host) = host else { return };
        for holder in holders {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            match &shared.hosts {
                Hosts::OfVendor => shared.hosts = Hosts::One(host.into()),
                Hosts::One(known) if **known == *host => {}
                Hosts::One(_) | Hosts::Several => self.doubt(holder),
            }
        }
    }

    /// The lanes of a holder have several hosts: none of them has said anything about its limits.
    fn doubt(&mut self, holder: HolderKey) {
        let Some(shared) = self.lanes.holder_mut(holder) else { return };
        shared.hosts = Hosts::Several;
        for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
            let changes = cell.take_throttle().map_or_else(Vec::new, |throttle| throttle.forgotten());
            let forgotten = changes.iter().map(|change| Forgotten::of_shared(&shared.key, spec, change));
            forgotten.for_each(|forgotten| self.notices.forget(forgotten));
        }
        self.wake_holder(holder);
    }

    /// What an answer tells of a limit is for all lanes that share it, unless tenants of several hosts do.
    pub(super) fn is_believed(&self, origin: &Origin, target: Target) -> bool {
        match target {
            Target::Own(_) => true,
            Target::Shared(place, _) => origin.holders.get(place).is_some_and(|holder| self.has_one_voice(*holder)),
        }
    }

    /// A limit that one lane has alone is that lane's own.
    fn has_one_voice(&self, holder: HolderKey) -> bool {
        self.lanes.holder(holder).is_some_and(|shared| shared.hosts != Hosts::Several || shared.lanes <= 1)
    }
}
