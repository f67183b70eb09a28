//! Validates `[[callers]]`: the programs that may call through the gateway.

use std::collections::BTreeSet;

use super::fields::{check_id, choice};
use crate::config::caller::{Caller, May, Rewrite};
use crate::config::credential::CredentialRef;
use crate::config::format::CallerEntry;
use crate::config::priority::Priority;
use crate::config::report::{Report, Step, at};
use crate::config::suggest;

/// The most patterns of tenants, and the most vendors, of one caller: each request is compared with all of them.
const MAX_NAMES: usize = 256;

/// The caller that `entry` describes; problems go to `report`.
pub(in crate::config) fn caller(
    entry: &CallerEntry,
    resolvers: &BTreeSet<String>,
    report: &mut Report,
) -> Option<Caller> {
    let before = report.problems.len();
    if let Err(message) = check_id("a caller's name", &entry.name) {
        report.problem(at(&[], "name"), message);
    }
    let token = match &entry.token {
        None => {
            report.problem(vec![], "`token` is missing: add token = \"env:NAME\", the place of its token");
            None
        }
        Some(text) => {
            CredentialRef::parse(text, resolvers).map_err(|message| report.problem(at(&[], "token"), message)).ok()
        }
    };
    if entry.tenants.is_empty() {
        report.problem(
            at(&[], "tenants"),
            "the caller may act for no tenant; name some, or write [\"*\"] for all of them",
        );
    }
    let vendors = entry.vendors.clone().unwrap_or_default();
    if entry.vendors.is_some() && vendors.is_empty() {
        report
            .problem(at(&[], "vendors"), "the caller may call no vendor; name some, or remove `vendors` to allow all");
    }
    for (field, names, star) in [("tenants", &entry.tenants, true), ("vendors", &vendors, false)] {
        if names.len() > MAX_NAMES {
            report.problem(at(&[], field), format!("more than {MAX_NAMES} names; use `*` for some of them"));
        }
        let plain = |name: &str| if star { name.replace('*', "-") } else { name.to_owned() };
        for (index, name) in names.iter().enumerate() {
            let what = if star { "a tenant's id, in which `*` stands for any characters," } else { "a vendor's name" };
            if let Err(message) = check_id(what, &plain(name)) {
                report.problem(at(&at(&[], field), Step::Index(index)), message);
            }
        }
    }
    let parse = |text: &str| match text {
        "high" => Some(Priority::High),
        "normal" => Some(Priority::Normal),
        "low" => Some(Priority::Low),
        _ => None,
    };
    let names = &["high", "normal", "low"];
    let priority = choice(entry.priority.as_deref(), "priority", names, parse, Priority::High, &[], report);
    let mut may = Vec::new();
    for (index, text) in entry.may.iter().flatten().enumerate() {
        match May::parse(text) {
            Some(known) => may.push(known),
            None => {
                let message = suggest::unknown("right", text, "rights", May::NAMES.iter().copied());
                report.problem(at(&at(&[], "may"), Step::Index(index)), message);
            }
        }
    }
    if entry.may.is_none() {
        may.push(May::Send);
    }
    let rewrite = entry.rewrite.as_deref();
    let rewrite = choice(rewrite, "rewrite", Rewrite::NAMES, Rewrite::parse, Rewrite::default(), &[], report);
    let is_for_all = vendors.is_empty() && entry.tenants.iter().any(|pattern| pattern == "*");
    if !is_for_all && may.iter().any(|right| matches!(right, May::View | May::Operate)) {
        let message = "`view` and `operate` are rights to the console, which shows all tenants and vendors: write \
                       tenants = [\"*\"] and no `vendors`";
        report.problem(at(&[], "may"), message);
    }
    if report.problems.len() > before {
        return None;
    }
    Some(Caller {
        name: entry.name.as_str().into(),
        token: token?,
        tenants: entry.tenants.clone(),
        vendors,
        priority,
        may,
        rewrite,
    })
}
