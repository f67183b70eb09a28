//! The accounts whose tenants share an access token of OAuth.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::base_url;
use super::vendor::Tenant;

/// The accounts of all tenants that get access tokens. An account has one token, so each of its tenants must be able to
/// use a token that was issued for another.
#[derive(Debug, Default)]
pub(crate) struct TokenAccounts {
    hasher: DefaultHashBuilder,
    accounts: HashTable<Account>,
}

/// An account. Its name, vendor and environment are those of its tenant.
#[derive(Debug)]
struct Account {
    /// The first tenant. It may be gone by now; those that are left may use a token that was issued for it.
    tenant: Arc<Tenant>,
    /// The number of tenants.
    tenants: usize,
}

impl TokenAccounts {
    /// Adds a tenant, if it gets access tokens.
    ///
    /// # Errors
    /// The account has another tenant, and one of the two could not use the other's token: that tenant, or an earlier
    /// one that could use that tenant's. Nothing has changed.
    pub(crate) fn add(&mut self, tenant: &Arc<Tenant>) -> Result<(), Arc<Tenant>> {
        if tenant.oauth.is_none() { Ok(()) } else { self.replace(None, tenant) }
    }

    /// Removes a tenant that was added.
    pub(crate) fn remove(&mut self, tenant: &Tenant) {
        let hash = hash_of(&self.hasher, tenant);
        match self.accounts.find_entry(hash, |known| known.tenant.has_token_account_of(tenant)) {
            Ok(mut entry) if entry.get().tenants > 1 => entry.get_mut().tenants -= 1,
            Ok(entry) => drop(entry.remove()),
            Err(_) => return,
        }
        // Otherwise the memory of a million removed tenants would stay allocated.
        let len = self.accounts.len();
        if self.accounts.capacity() > 64 && len < self.accounts.capacity() / 8 {
            self.accounts.shrink_to(2 * len, |known| hash_of(&self.hasher, &known.tenant));
        }
    }

    /// Adds a tenant in place of its version `before`, if it has one. The only tenant of an account may change its
    /// settings.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn replace(&mut self, before: Option<&Arc<Tenant>>, tenant: &Arc<Tenant>) -> Result<(), Arc<Tenant>> {
        let hash = hash_of(&self.hasher, tenant);
        if let Some(known) = self.accounts.find(hash, |known| known.tenant.has_token_account_of(tenant)) {
            let is_only = known.tenants == 1 && before.is_some_and(|before| before.has_token_account_of(tenant));
            if !is_only && !tenant.may_use_token_of(&known.tenant) {
                return Err(known.tenant.clone());
            }
        }
        if let Some(before) = before {
            self.remove(before);
        }
        if tenant.oauth.is_none() {
            return Ok(());
        }
        if let Some(known) = self.accounts.find_mut(hash, |known| known.tenant.has_token_account_of(tenant)) {
            known.tenants += 1;
            return Ok(());
        }
        let account = Account { tenant: tenant.clone(), tenants: 1 };
        self.accounts.insert_unique(hash, account, |known| hash_of(&self.hasher, &known.tenant));
        Ok(())
    }
}

impl Tenant {
    /// Whether both tenants get access tokens for one account, which has one token at a time.
    pub(crate) fn has_token_account_of(&self, other: &Tenant) -> bool {
        self.oauth.is_some()
            && other.oauth.is_some()
            && self.account == other.account
            && self.vendor.name == other.vendor.name
            && self.vendor.environment == other.vendor.environment
    }

    /// Whether an access token that was issued for `other`, a tenant of the same account, may be used for this one:
    /// both request tokens in the same way, and send them to the same host. A vendor may have a path for each part of
    /// what one user has granted.
    pub(crate) fn may_use_token_of(&self, other: &Tenant) -> bool {
        let requests_as = match (&self.oauth, &other.oauth) {
            (Some(own), Some(others)) => Arc::ptr_eq(own, others) || own.requests_as(others),
            _ => false,
        };
        requests_as && self.has_host_of(other)
    }

    /// Whether the base URLs have the same scheme, host and port. Parses them only if these may differ: each look-up of
    /// a token comes here.
    fn has_host_of(&self, other: &Tenant) -> bool {
        let (own, others) = (&self.vendor.base_url, &other.vendor.base_url);
        let is_written_as = own == others && (self.variables == other.variables || !base_url::host_varies(own));
        is_written_as
            || matches!((self.base_url(), other.base_url()), (Ok(own), Ok(others)) if own.origin() == others.origin())
    }

    /// What keeps two tenants of one account from sharing its access token, and what to do.
    pub(crate) fn no_token_with(&self, other: &Tenant) -> String {
        self.no_token(other, &format!("`{}`", other.id))
    }

    /// Like [`no_token_with`](Self::no_token_with), for other tenants of the account whose ids are not known. They may
    /// use a token that was issued for `like`.
    pub(crate) fn no_token_with_others(&self, like: &Tenant) -> String {
        self.no_token(like, "others")
    }

    fn no_token(&self, other: &Tenant, name: &str) -> String {
        let token_url = |tenant: &Tenant| tenant.oauth.as_ref().map(|oauth| oauth.token_url.clone());
        let what = if !self.has_host_of(other) {
            "hosts"
        } else if token_url(self) != token_url(other) {
            "token URLs"
        } else {
            "`oauth`"
        };
        let has_one_use_token = match (&self.oauth, &other.oauth) {
            (Some(own), Some(others)) => own.has_one_use_token_of(others),
            _ => false,
        };
        let advice = if has_one_use_token {
            "give all of them the same settings, or each an `account` of its own with a refresh token of its own, \
             because the vendor replaces a refresh token when it is used"
        } else {
            "give each an `account` of its own, or the same settings"
        };
        format!(
            "tenants `{}` and {name} have one account at vendor `{}`, and so one access token, but different {what}; \
             {advice}",
            self.id, self.vendor.name
        )
    }
}

fn hash_of(hasher: &DefaultHashBuilder, tenant: &Tenant) -> u64 {
    hasher.hash_one((&tenant.vendor.name, &tenant.vendor.environment, &tenant.account))
}

#[cfg(test)]
mod tests;
