//! A handle by the configuration that is in force now.

use super::{Lane, StatedCosts};
use crate::engine::Refusal;
use crate::engine::cost::PointKind;

impl Lane {
    /// The same handle by the present configuration, if a reload or a change of the tenant has replaced the one under
    /// which this handle was made: endpoints and kinds of points may have other numbers and costs now, and the store may
    /// remember what it did not remember before.
    #[inline]
    pub(super) fn renewed(&self) -> Result<Option<Box<Lane>>, Refusal> {
        match self.route.is_current() {
            true => Ok(None),
            false => self.renew().map(Some),
        }
    }

    #[cold]
    fn renew(&self) -> Result<Box<Lane>, Refusal> {
        let (before, registry) = (&*self.route.vendor, &self.client.core().registry);
        let route = registry.routes.find(&self.route.id, &before.name).ok_or(Refusal::Retired)?;
        let endpoint = registry.endpoint_now(&self.route, self.endpoint)?;
        // No limit counts a kind that is gone.
        let kind_now = |kind: PointKind| {
            let (_, (name, _)) =
                before.costs.iter().enumerate().find(|(place, _)| PointKind::at(*place) == Some(kind))?;
            route.vendor.costs.place(name).and_then(PointKind::at)
        };
        let stated: StatedCosts =
            self.stated.iter().filter_map(|&(kind, units)| Some((kind_now(kind)?, units))).collect();
        let place = registry.place(&route)?;
        Ok(Box::new(Lane::at(self.client.clone(), route, place, endpoint, stated)))
    }
}
