//! Shows how reliable the catalogue is: its figures by source and age.

use std::collections::BTreeMap;
use std::io::{self, Write};

use integration_client::config::LimitKind;
use jiff::civil::Date;

use super::entry::Entry;
use super::page;
use crate::output::{Screen, TITLE, table};
use crate::text;

/// Figures that were read more months ago should be looked up again, because vendors change their limits about once a
/// year.
const MONTHS: i64 = 9;

pub(super) fn write(entries: &[Entry], today: Date, screen: Screen, out: &mut dyn Write) -> io::Result<()> {
    let mut sure: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut figures, mut undated, mut largest) = (0, 0, 0);
    let mut old: BTreeMap<(String, String), usize> = BTreeMap::new();
    for entry in entries {
        for limit in page::figures(entry) {
            figures += 1;
            let source = limit.source.as_ref();
            *sure.entry(source.map_or("", |source| &source.confidence)).or_default() += 1;
            largest += usize::from(matches!(&limit.kind, LimitKind::Rate(rate) if rate.largest_request.is_some()));
            let as_of = source.map_or("", |source| &source.as_of);
            match read(as_of) {
                None => undated += 1,
                Some(read) if is_older(read, today) => {
                    *old.entry((entry.live.name.to_string(), as_of.to_owned())).or_default() += 1;
                }
                Some(_) => {}
            }
        }
    }
    let older: usize = old.values().sum();
    if !old.is_empty() {
        writeln!(out, "{TITLE}Read more than {MONTHS} months ago{TITLE:#}")?;
        let rows =
            old.into_iter().map(|((vendor, as_of), figures)| vec![vendor, as_of, text::count(figures, "figure")]);
        writeln!(out, "{}", table(screen, &["vendor", "read", "figures"], rows.collect(), &[]))?;
    }
    let of = |confidence: &str| sure.get(confidence).copied().unwrap_or_default();
    let count = |which: &dyn Fn(&Entry) -> bool| entries.iter().filter(|entry| which(entry)).count();
    writeln!(
        out,
        "catalogue: entries={} unpublished={} figures={figures} documented={} seen_in_code={} from_memory={} \
         without_source={} idempotency={} largest_requests={largest} older_than_{MONTHS}_months={older} undated={undated}",
        entries.len(),
        count(&|entry| entry.live.unpublished),
        of("documented"),
        of("seen in code"),
        of("from memory"),
        of(""),
        count(&|entry| entry.live.idempotency.carrier.is_some()),
    )
}

/// The day on which a figure was read, parsed from the beginning of a text: `2026-03-20`, `2026-03`, `2026`. A missing
/// day or month counts as the first.
fn read(as_of: &str) -> Option<Date> {
    let date = as_of.split_whitespace().next()?;
    let mut parts = date.split('-');
    let year = parts.next().filter(|year| year.len() == 4)?.parse().ok()?;
    let mut part = || parts.next().map_or(Some(1), |part| part.parse().ok());
    Date::new(year, part()?, part()?).ok()
}

fn is_older(read: Date, today: Date) -> bool {
    use jiff::ToSpan;
    read.checked_add(MONTHS.months()).is_ok_and(|due| due < today)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    #[test]
    fn dates_are_read_as_people_write_them() {
        assert_eq!(read("2026-03-20"), Some(date(2026, 3, 20)));
        assert_eq!(read("2026-03 (repo)"), Some(date(2026, 3, 1)));
        assert_eq!(read("2025 snapshot"), Some(date(2025, 1, 1)));
        for text in ["", "repo snapshot", "captures 2022-2026", "2026-13", "20263"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn figure_is_old_after_nine_months() {
        assert!(!is_older(date(2026, 2, 24), date(2026, 11, 24)));
        assert!(is_older(date(2026, 2, 23), date(2026, 11, 24)));
    }
}
