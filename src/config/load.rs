//! Turns sources into a validated configuration.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::entry::TenantEntry;
use super::format::{File, VendorEntry};
use super::lists::check_lists;
use super::parse::parse;
use super::report::{Finding, Layer, Messages, Path, Problem, Report, Step, Text, at};
use super::resolve::{LIVE, Stated, Vendors, resolve};
use super::source::{CATALOGUE, Sources};
use super::vendor::{Tenant, Vendor};
use super::{Caller, Limit, Scope, Sharing, TokenAccounts, overlay, suggest, validate};
use crate::Error;

const MAX_WARNINGS: usize = 100;
/// The most callers: the gateway compares each request's token with those of all callers.
const MAX_CALLERS: usize = 1000;

/// The message for a file that is the catalogue: one, in place of one for each of its vendors.
const COPY: &str = "this is the shipped catalogue itself, or a copy of it, which is built in: name a file of your own, \
                    which states what differs";

/// The result of a load.
pub(super) struct Loaded {
    pub(super) vendors: Vendors,
    pub(super) tenants: Vec<Arc<Tenant>>,
    pub(super) callers: Vec<Arc<Caller>>,
    pub(super) sharing: Option<Sharing>,
    pub(super) warnings: Vec<String>,
    pub(super) hash: u64,
}

/// A vendor's merged entry, and the layers that it was merged from, lowest first.
struct Stack<'a> {
    entry: VendorEntry,
    layers: Vec<Layer<'a>>,
    /// Whether all layers could be merged: none of their lists is too long.
    is_whole: bool,
}

/// Parses, merges and checks everything. Vendors that did not change keep the `Arc` that `previous` has.
pub(super) fn load(sources: &Sources, previous: Option<&Vendors>) -> Result<Loaded, Error> {
    let mut messages = Messages::default();
    gather(sources, previous, &mut messages).ok_or_else(|| messages.into_error())
}

/// As [`load`], but returns each problem as a value of its own.
pub(super) fn check(sources: &Sources) -> Result<Loaded, Vec<Finding>> {
    let mut messages = Messages::of_check();
    gather(sources, None, &mut messages).ok_or_else(|| messages.into_findings())
}

/// Does the work of [`load`] and [`check`]. Returns `None` if anything is wrong; `messages` then says what.
fn gather<'t>(sources: &'t Sources, previous: Option<&Vendors>, messages: &mut Messages<'t>) -> Option<Loaded> {
    let files: Vec<(Text<'_>, File)> =
        sources.files.iter().filter_map(|file| parse(file.name.as_str(), &file.text, messages)).collect();
    let catalogue = if sources.catalogue { parse(CATALOGUE.0, CATALOGUE.1, messages) } else { None };
    let laid_over = sources.over.iter().chain(&sources.rows);
    let over: Vec<(Text<'_>, File)> =
        laid_over.clone().filter_map(|text| parse(text.name.as_str(), &text.text, messages)).collect();
    let is_read = files.len() + over.len() == sources.files.len() + laid_over.count();
    if !is_read || catalogue.is_some() != sources.catalogue {
        // Without the content of a file that cannot be read, every reference to it would be reported as well.
        return None;
    }
    let mut stacks = stacks(catalogue.as_ref(), &files, messages);
    lay_over(&mut stacks, &over, messages);
    let mut warnings = Vec::new();
    let mut vendors = Vendors { by_name: BTreeMap::new(), resolvers: sources.resolvers.clone() };
    let mut wrong = HashSet::new();
    for (name, stack) in &stacks {
        let before = messages.count();
        if stack.is_whole {
            let environments = environments(name, stack, previous, &sources.resolvers, messages, &mut warnings);
            vendors.by_name.insert((*name).into(), environments);
        }
        if !stack.is_whole || messages.count() > before {
            wrong.insert(*name);
        }
    }
    let tenants = tenants(&vendors, &wrong, sources, &files, &over, messages);
    let callers = callers(sources, files.iter().chain(&over), messages);
    let sharing = sharing(files.iter().chain(&over), messages);
    if !messages.is_empty() {
        return None;
    }
    disagreements(&tenants, &mut warnings);
    Some(Loaded { vendors, tenants, callers, sharing, warnings, hash: sources.hash() })
}

/// The vendors of the catalogue and of the files. Merges a file's entry over the catalogue's if `extends` says so.
fn stacks<'f, 't>(
    catalogue: Option<&'f (Text<'t>, File)>,
    files: &'f [(Text<'t>, File)],
    messages: &mut Messages<'t>,
) -> BTreeMap<&'f str, Stack<'t>> {
    let mut out: BTreeMap<&'f str, Stack<'t>> = BTreeMap::new();
    let base = |name: &str| -> Path { vec!["vendors".into(), name.into()] };
    let layer = |text: &Text<'t>, name: &str| Layer { file: Some(*text), base: base(name) };
    for (text, file) in files {
        let copied = catalogue.map(|(_, shipped)| shipped).filter(|shipped| is_copy(file, shipped));
        if copied.is_some() {
            let name = Some(text.name.to_owned());
            messages.push(Finding { file: name, line: 1, column: 1, ..Finding::plain(COPY.to_owned()) });
        }
        for (name, entry) in &file.vendors {
            if copied.is_some_and(|shipped| shipped.vendors.contains_key(name)) {
                continue;
            }
            let own = layer(text, name);
            let mut report = Report::default();
            let lists = check_lists(entry, &mut report);
            if let Some(first) = out.get(name.as_str()) {
                let earlier = first.layers.last().and_then(|layer| layer.file).map_or("", |file| file.name);
                report.problem(vec![], format!("this vendor is stated already in {earlier}; keep one of the two"));
            }
            let shipped = catalogue.and_then(|(text, file)| file.vendors.get(name).map(|entry| (text, entry)));
            let alone = || (lists.as_deref().unwrap_or(entry).clone(), vec![]);
            let merged = |(text, lower): (&Text<'t>, &VendorEntry)| match &lists {
                Some(entry) => (overlay::vendor(lower, entry), vec![layer(text, name)]),
                None => (VendorEntry::default(), vec![]),
            };
            let ((entry, mut layers), extends) = match (entry.extends.as_deref(), shipped) {
                (None, None) | (Some("none"), _) => (alone(), None),
                (Some("catalogue"), Some(shipped)) => (merged(shipped), None),
                // Without `extends`, the rest is checked as an extension, which is most likely meant.
                (None, Some(shipped)) => (merged(shipped), Some(replaces(name))),
                (Some("catalogue"), None) => {
                    let names = catalogue.map(|(_, file)| &file.vendors);
                    let hint =
                        suggest::hint(name, "vendors", names.into_iter().flatten().map(|(name, _)| name.as_str()));
                    (alone(), Some(format!("the catalogue has no vendor `{name}` to extend; {hint}")))
                }
                (Some(_), _) => {
                    let why = "write \"catalogue\" to change the catalogue's entry, or \"none\" to replace it";
                    (alone(), Some(why.to_owned()))
                }
            };
            if let Some(why) = extends {
                report.problem(at(&[], "extends"), why);
            }
            for problem in &report.problems {
                messages.add(std::slice::from_ref(&own), problem);
            }
            layers.push(own);
            let entry = VendorEntry { extends: None, ..entry };
            out.insert(name, Stack { entry, layers, is_whole: lists.is_some() });
        }
    }
    if let Some((text, file)) = catalogue {
        for (name, entry) in &file.vendors {
            out.entry(name).or_insert_with(|| {
                let mut report = Report::default();
                let lists = check_lists(entry, &mut report);
                let own = layer(text, name);
                report.problems.iter().for_each(|problem| messages.add(std::slice::from_ref(&own), problem));
                let is_whole = lists.is_some();
                Stack { entry: lists.map_or_else(|| entry.clone(), Cow::into_owned), layers: vec![own], is_whole }
            });
        }
    }
    out
}

/// Whether a file states every vendor of the catalogue, and none with `extends`: it is the catalogue itself, or a copy of
/// it, perhaps with tenants, other figures or the vendors of another version.
fn is_copy(file: &File, catalogue: &File) -> bool {
    catalogue.vendors.keys().all(|name| file.vendors.get(name).is_some_and(|entry| entry.extends.is_none()))
}

/// The message for an entry that uses a name of the catalogue without `extends`. If such an entry replaced the
/// catalogue's without an error, nobody would notice that its limits are gone.
fn replaces(name: &str) -> String {
    format!(
        "the catalogue has `{name}`; this replaces it, limits and dialect included; did you mean `extends = \"catalogue\"`? \
         To replace it, state `extends = \"none\"`"
    )
}

/// Applies the texts of [`Sources::over`] and the rows to the vendors: changes those that exist, and adds the others.
fn lay_over<'f, 't>(
    stacks: &mut BTreeMap<&'f str, Stack<'t>>,
    over: &'f [(Text<'t>, File)],
    messages: &mut Messages<'t>,
) {
    for (text, file) in over {
        for (name, entry) in &file.vendors {
            let own = Layer { file: Some(*text), base: vec!["vendors".into(), name.as_str().into()] };
            let mut report = Report::default();
            let lists = check_lists(entry, &mut report);
            if entry.extends.is_some() {
                report
                    .problem(at(&[], "extends"), "what is laid over always builds on what is there; remove `extends`");
            }
            report.problems.iter().for_each(|problem| messages.add(std::slice::from_ref(&own), problem));
            let Some(stack) = stacks.get_mut(name.as_str()) else {
                let is_whole = lists.is_some();
                let entry = lists.map_or_else(|| entry.clone(), Cow::into_owned);
                stacks.insert(name, Stack { entry, layers: vec![own], is_whole });
                continue;
            };
            match lists {
                Some(entry) => {
                    stack.entry = overlay::vendor(&stack.entry, &entry);
                    stack.layers.push(own);
                }
                None => stack.is_whole = false,
            }
        }
    }
}

fn environments<'a>(
    name: &str,
    stack: &Stack<'a>,
    previous: Option<&Vendors>,
    resolvers: &BTreeSet<String>,
    messages: &mut Messages<'a>,
    warnings: &mut Vec<String>,
) -> BTreeMap<Arc<str>, Arc<Stated>> {
    let mut out = BTreeMap::new();
    let mut base = stack.entry.clone();
    let others = std::mem::take(&mut base.environments);
    let all = std::iter::once((LIVE, None)).chain(others.iter().map(|(name, entry)| (name.as_str(), Some(entry))));
    for (environment, upper) in all {
        let entry = upper.map_or_else(|| base.clone(), |upper| overlay::environment(&base, upper));
        let before = previous.and_then(|vendors| vendors.by_name.get(name)?.get(environment));
        if let Some(before) = before.filter(|before| before.entry == entry) {
            out.insert(environment.into(), before.clone());
            continue;
        }
        let mut layers = stack.layers.clone();
        if upper.is_some() {
            let steps = [Step::from("environments"), environment.into()];
            layers.extend(
                stack
                    .layers
                    .iter()
                    .map(|layer| Layer { file: layer.file, base: layer.base.iter().chain(&steps).cloned().collect() }),
            );
        }
        let mut report = Report::default();
        let vendor = validate::vendor(name, environment, &entry, resolvers, &mut report);
        report.problems.iter().for_each(|problem| messages.add(&layers, problem));
        for warning in report.warnings.iter().map(|warning| messages.place(&layers, warning).to_string()) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        if let Some(vendor) = vendor {
            out.insert(environment.into(), Arc::new(Stated::new(vendor, entry)));
        }
    }
    out
}

/// The tenants of `texts`, each with its place.
fn entries<'f, 'a>(
    texts: &'f [(Text<'a>, File)],
) -> impl Iterator<Item = (&'f TenantEntry, Option<(Text<'a>, usize)>)> {
    texts.iter().flat_map(|(text, file)| {
        file.tenants.iter().enumerate().map(move |(index, entry)| (entry, Some((*text, index))))
    })
}

/// The tenants of `texts`, by id and vendor.
fn names<'f>(texts: &'f [(Text<'_>, File)]) -> HashSet<(&'f str, &'f str)> {
    entries(texts).map(|(entry, _)| (entry.id.as_str(), entry.vendor.as_str())).collect()
}

fn is_in(entry: &TenantEntry, names: &HashSet<(&str, &str)>) -> bool {
    names.contains(&(entry.id.as_str(), entry.vendor.as_str()))
}

/// The fields of a tenant's entry that can be checked without its vendor.
const OWN: [&str; 7] = ["id", "account", "credential", "secret_headers", "weight", "share", "client_certificate"];

/// The tenants, sorted. A row's tenant replaces that of any other text, and a tenant of `over` that of a file. For a
/// tenant at a vendor in `wrong`, reports only problems of the fields in [`OWN`]: the others follow from the vendor's
/// problems and would bury the cause.
fn tenants<'a>(
    vendors: &Vendors,
    wrong: &HashSet<&str>,
    sources: &Sources,
    files: &[(Text<'a>, File)],
    over: &[(Text<'a>, File)],
    messages: &mut Messages<'a>,
) -> Vec<Arc<Tenant>> {
    // The rows come last in `over`.
    let (under_rows, rows) = over.split_at(sources.over.len().min(over.len()));
    let (by_over, by_rows) = (names(over), names(rows));
    let in_files = entries(files).filter(|(entry, _)| !is_in(entry, &by_over));
    let laid_over = entries(under_rows).filter(|(entry, _)| !is_in(entry, &by_rows)).chain(entries(rows));
    let of_program = sources.tenants.iter().map(|entry| (entry, None));
    let mut out: Vec<Arc<Tenant>> = Vec::new();
    let mut seen: HashSet<(&str, &str)> = HashSet::new();
    let mut accounts = TokenAccounts::default();
    for (entry, place) in in_files.chain(laid_over).chain(of_program) {
        let mut report = Report::default();
        let tenant = resolve(vendors, entry, &mut report).map(Arc::new);
        if !seen.insert((&entry.id, &entry.vendor)) {
            report.problem(at(&[], "id"), "this tenant is stated already at this vendor; keep one of the two");
        } else if let Some(tenant) = &tenant
            && let Err(other) = accounts.add(tenant)
        {
            report.problem(at(&[], "account"), other.no_token_with(tenant));
        }
        out.extend(tenant);
        let layer = match place {
            Some((text, index)) => Layer { file: Some(text), base: vec!["tenants".into(), Step::Index(index)] },
            None => Layer {
                file: None,
                base: vec!["tenant".into(), entry.id.as_str().into(), entry.vendor.as_str().into()],
            },
        };
        let is_told = |problem: &&Problem| {
            let is_own = matches!(problem.path.first(), Some(Step::Key(key)) if OWN.contains(&key.as_str()));
            is_own || !wrong.contains(entry.vendor.as_str())
        };
        let told = report.problems.iter().filter(is_told);
        told.for_each(|problem| messages.add(std::slice::from_ref(&layer), problem));
    }
    // Sorted for binary search: this needs no second copy of the ids, and the order is the same for each load.
    out.sort_unstable_by(|a, b| order(a, &b.id, &b.vendor.name));
    out
}

/// The callers of all files, in the order of the files.
fn callers<'f, 't: 'f>(
    sources: &Sources,
    files: impl Iterator<Item = &'f (Text<'t>, File)>,
    messages: &mut Messages<'t>,
) -> Vec<Arc<Caller>> {
    let mut out: Vec<Arc<Caller>> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for (text, file) in files {
        for (index, entry) in file.callers.iter().enumerate() {
            let mut report = Report::default();
            let caller = validate::caller(entry, &sources.resolvers, &mut report);
            // The parser's paths identify a caller's table by its `name` if that is valid. The step must be the same
            // here, so that `Messages` recognizes a value that the parser has already reported.
            let is_name = validate::check_id("a caller's name", &entry.name).is_ok();
            let is_first = seen.insert(&entry.name);
            let step = if is_name && is_first { Step::Named(entry.name.clone()) } else { Step::Index(index) };
            if !is_first {
                report.problem(at(&[], "name"), "a caller of this name is stated already; keep one of the two");
            }
            if seen.len() > MAX_CALLERS {
                report.problem(vec![], format!("more than {MAX_CALLERS} callers"));
            }
            let layer = Layer { file: Some(*text), base: vec!["callers".into(), step] };
            report.problems.iter().for_each(|problem| messages.add(std::slice::from_ref(&layer), problem));
            out.extend(caller.map(Arc::new));
        }
    }
    out
}

/// The `[sharing]` table, which at most one of the files may have.
fn sharing<'f, 't: 'f>(
    files: impl Iterator<Item = &'f (Text<'t>, File)>,
    messages: &mut Messages<'t>,
) -> Option<Sharing> {
    let mut first: Option<(&str, Option<Sharing>)> = None;
    for (text, file) in files {
        let Some(entry) = &file.sharing else { continue };
        let mut report = Report::default();
        match &first {
            Some((earlier, _)) => {
                report.problem(vec![], format!("sharing is stated already in {earlier}; keep one of the two"));
            }
            None => first = Some((text.name, Sharing::new(entry, &mut report))),
        }
        let layer = Layer { file: Some(*text), base: vec!["sharing".into()] };
        report.problems.iter().for_each(|problem| messages.add(std::slice::from_ref(&layer), problem));
    }
    first.and_then(|(_, sharing)| sharing)
}

/// Compares `tenant` with an id and a vendor's name, in the order of [`Loaded::tenants`].
pub(super) fn order(tenant: &Tenant, id: &str, vendor: &str) -> Ordering {
    (*tenant.id).cmp(id).then_with(|| (*tenant.vendor.name).cmp(vendor))
}

/// Warns if tenants that share a limit state different figures for it, because only one of them can apply.
fn disagreements(tenants: &[Arc<Tenant>], warnings: &mut Vec<String>) {
    if tenants.iter().all(|tenant| tenant.overrides.is_none()) {
        return;
    }
    // The first tenant seen of each account, and of each vendor as a whole.
    let mut first: HashMap<(&str, &str, Option<&str>), &Arc<Tenant>> = HashMap::new();
    for tenant in tenants {
        let vendor = &tenant.vendor;
        for (scope, account) in [(Scope::Account, Some(&*tenant.account)), (Scope::Vendor, None)] {
            let other = *first.entry((&vendor.name, &vendor.environment, account)).or_insert(tenant);
            if Arc::ptr_eq(&other.vendor, vendor) || warnings.len() >= MAX_WARNINGS {
                continue;
            }
            // Overrides keep the order of endpoints and limits, so the two lists can be compared item by item.
            let differs = figures(&other.vendor, scope).zip(figures(vendor, scope)).find(|(a, b)| a.kind != b.kind);
            if let Some((limit, _)) = differs {
                warnings.push(format!(
                    "tenants `{}` and `{}` share the limit `{}` at vendor `{}` but state different figures for it; \
                     state the same ones",
                    other.id, tenant.id, limit.name, vendor.name
                ));
            }
        }
    }
}

fn figures(vendor: &Vendor, scope: Scope) -> impl Iterator<Item = &Limit> {
    let endpoints = vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits);
    vendor.limits.iter().chain(endpoints).filter(move |limit| limit.scope == scope)
}
