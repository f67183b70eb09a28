//! Configuration.
mod limit;
mod vendor;

pub use limit::{Algorithm, Limit, LimitKind, Rate, Scope, Source, Unit};
pub use vendor::{AuthScheme, Connection, CredentialRef, Endpoint, Tenant, Vendor};
