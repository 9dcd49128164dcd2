//! The details page: one row for each metric, under the label of its section, and the results of ncu's rules between them.
//!
//! A metric row ends after its value and a rule row leaves the metric columns empty, so the rows differ in length; the
//! columns are found by name. Labels become the names of the metrics they stand for, where that is known.

use std::io::Read;

use csv::StringRecord;

use super::NcuError;
use super::metric::{is_name, metric_of_label};
use super::model::{CounterSet, LaunchCounters, Rule, RuleKind, Speedup, SpeedupScope};
use super::page::{DETAILS, LaunchColumns, Page, number};
use super::unit::Scaled;
use crate::model::LossKind;

/// Finds the columns of a launch and those of [`DETAILS`]; `None` for a header without metrics.
fn find(header: &StringRecord) -> Option<(LaunchColumns, [Option<usize>; 9])> {
    let columns = DETAILS.map(|name| header.iter().position(|column| column == name));
    let has_metrics = columns[1..4].iter().all(Option::is_some);
    has_metrics.then(|| (LaunchColumns::find(header), columns))
}

/// Reads `ncu --page details --csv`, which is also what `ncu --csv` prints while it profiles.
///
/// # Errors
/// See [`NcuError`]; a single row or value that cannot be read is counted in [`CounterSet::losses`] instead.
pub fn read(input: impl Read) -> Result<CounterSet, NcuError> {
    let (mut page, header) = Page::open(input)?;
    let mut columns = find(&header).ok_or(NcuError::NoHeader)?;
    let mut set = CounterSet::default();
    let mut open: Option<LaunchCounters> = None;
    let mut width = header.len();
    while let Some(row) = page.next()? {
        // Where pages were joined, each has a header and numbers its launches from 0.
        if row.get(0) == Some("ID")
            && let Some(next) = find(&row)
        {
            columns = next;
            width = row.len();
            close(&mut set, open.take());
            continue;
        }
        let (launch_columns, [section, label, unit, value, rule, kind, text, scope, percent]) = &columns;
        let Some(id) = launch_columns.id(&row) else {
            set.losses.add(LossKind::CounterMalformed, 1);
            continue;
        };
        let same = open.as_ref().is_some_and(|launch| launch.id == id);
        if !same {
            let Some(next) = launch_columns.launch(&row) else {
                set.losses.add(LossKind::CounterMalformed, 1);
                continue;
            };
            close(&mut set, open.replace(next));
        }
        let Some(launch) = open.as_mut() else { continue };
        let index = set.launches.len();
        let cell = |column: &Option<usize>| column.and_then(|at| row.get(at)).unwrap_or_default();
        let (section, label) = (cell(section), cell(label));
        page.least = width;
        if !label.is_empty() {
            page.least = value.map_or(0, |at| at + 1);
            let id = match metric_of_label(section, label) {
                Some(name) => set.intern(name),
                None if is_name(section, label) => set.intern(label),
                // A label alone says too little, as two sections share some.
                None => set.intern(&format!("{section}: {label}")),
            };
            let unit = unit.and_then(|at| row.get(at)).and_then(Scaled::parse);
            set.add_cell(launch, id, cell(value), unit);
        } else if !cell(rule).is_empty() {
            set.rules.push(Rule {
                launch: index,
                section: section.to_owned(),
                name: cell(rule).to_owned(),
                kind: rule_kind(cell(kind)),
                text: cell(text).to_owned(),
                speedup: speedup(cell(scope), cell(percent)),
            });
        } else {
            set.losses.add(LossKind::CounterMalformed, 1);
        }
    }
    close(&mut set, open);
    set.finished()
}

fn close(set: &mut CounterSet, launch: Option<LaunchCounters>) {
    if let Some(mut launch) = launch {
        set.check(&mut launch);
        set.launches.push(launch);
    }
}

fn rule_kind(text: &str) -> RuleKind {
    match text {
        "OPT" => RuleKind::Optimization,
        "WRN" => RuleKind::Warning,
        "ERR" => RuleKind::Error,
        "OK" => RuleKind::Ok,
        _ => RuleKind::Info,
    }
}

fn speedup(scope: &str, percent: &str) -> Option<Speedup> {
    let scope = match scope {
        "global" => SpeedupScope::Global,
        "local" => SpeedupScope::Local,
        _ => return None,
    };
    Some(Speedup { scope, percent: number(percent.trim()).filter(Speedup::is_possible)? })
}
