//! The raw page: a header, a row of units, then one row per launch with one column per metric.

use std::io::Read;

use csv::StringRecord;

use super::NcuError;
use super::model::{CounterSet, MetricId};
use super::page::{LaunchColumns, Page};
use super::unit::Scaled;
use crate::model::LossKind;

struct Column {
    index: usize,
    id: MetricId,
    unit: Option<Scaled>,
}

/// Returns the columns of a header that hold metrics.
fn metric_columns(header: &StringRecord, launch: &LaunchColumns, set: &mut CounterSet) -> Vec<Column> {
    header
        .iter()
        .enumerate()
        .filter(|(index, name)| !launch.contains(*index) && !name.is_empty())
        .map(|(index, name)| Column { index, id: set.intern(name), unit: None })
        .collect()
}

/// Reads `ncu --page raw --csv`, with automatic or with base units.
///
/// # Errors
/// See [`NcuError`]; a single row or value that cannot be read is counted in [`CounterSet::losses`] instead.
pub fn read(input: impl Read) -> Result<CounterSet, NcuError> {
    let (mut page, header) = Page::open(input)?;
    let mut columns = LaunchColumns::find(&header);
    let mut set = CounterSet::default();
    let mut metrics = metric_columns(&header, &columns, &mut set);
    // True until a row of units or a launch follows the header.
    let mut units_follow = true;
    while let Some(row) = page.next()? {
        // Where pages were joined, each has its header and its units.
        if row.get(0) == Some("ID") {
            columns = LaunchColumns::find(&row);
            metrics = metric_columns(&row, &columns, &mut set);
            page.least = row.len();
            units_follow = true;
            continue;
        }
        let Some(mut launch) = columns.launch(&row) else {
            if units_follow && row.get(0).is_some_and(str::is_empty) {
                for column in &mut metrics {
                    column.unit = row.get(column.index).and_then(Scaled::parse);
                }
                units_follow = false;
            } else {
                set.losses.add(LossKind::CounterMalformed, 1);
            }
            continue;
        };
        units_follow = false;
        // Words of the program between two rows, or what is left of a row: which values are missing cannot be told.
        if row.len() < page.least {
            set.losses.add(LossKind::CounterMalformed, 1);
            continue;
        }
        for column in &metrics {
            match row.get(column.index).unwrap_or_default().trim() {
                "" => {}
                text => set.add_cell(&mut launch, column.id, text, column.unit),
            }
        }
        set.check(&mut launch);
        set.launches.push(launch);
    }
    set.finished()
}
