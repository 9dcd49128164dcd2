//! The raw page: a header, a row of units, then a row a launch with every metric in a column of its own.

use std::io::Read;

use super::cell::{self, Cell};
use super::error::NcuError;
use super::model::{CounterSet, Metric, MetricId};
use super::page::{LaunchColumns, Page};
use super::unit::{Scaled, Unit};
use crate::model::LossKind;

struct Column {
    index: usize,
    id: MetricId,
    unit: Option<Scaled>,
}

/// Reads `ncu --page raw --csv`, with automatic or with base units.
///
/// # Errors
/// See [`NcuError`]; a single row or value that cannot be read is counted in [`CounterSet::losses`] instead.
pub fn read(input: impl Read) -> Result<CounterSet, NcuError> {
    let (mut page, header) = Page::open(input)?;
    if header.iter().any(|name| name == "Metric Name") {
        return Err(NcuError::OtherPage {
            wanted: "raw",
            found: "it has a column `Metric Name`, as the details page",
        });
    }
    let columns = LaunchColumns::of(&header);
    let mut set = CounterSet::default();
    let mut metrics: Vec<Column> = header
        .iter()
        .enumerate()
        .filter(|(index, name)| !columns.contains(*index) && !name.is_empty())
        .map(|(index, name)| Column {
            index,
            id: set.intern(name),
            unit: None,
        })
        .collect();
    let mut units_read = false;
    while let Some(row) = page.next()? {
        let Some(mut launch) = columns.launch(&row) else {
            if !units_read && set.launches.is_empty() && row.get(0).is_some_and(str::is_empty) {
                for column in &mut metrics {
                    column.unit = row.get(column.index).and_then(Scaled::parse);
                }
                units_read = true;
            } else {
                set.losses.add(LossKind::CounterMalformed, 1);
            }
            continue;
        };
        // Words of the program between two rows, or what is left of a row: which values are missing cannot be told.
        if row.len() < page.least {
            set.losses.add(LossKind::CounterMalformed, 1);
            continue;
        }
        for column in &metrics {
            match cell::parse(row.get(column.index).unwrap_or_default()) {
                Cell::Empty => {}
                Cell::NotAvailable => launch.missing.push(column.id),
                Cell::Text(text) => launch.texts.push((column.id, text.into())),
                Cell::Malformed => set.losses.add(LossKind::CounterMalformed, 1),
                Cell::Number { value, .. } => {
                    let (unit, value) = match column.unit {
                        Some(scaled) => (scaled.unit, scaled.apply(value)),
                        None => {
                            set.losses.add(LossKind::UnitUnknown, 1);
                            (Unit::UNSTATED, value)
                        }
                    };
                    launch.metrics.push(Metric {
                        id: column.id,
                        unit,
                        value,
                    });
                }
            }
        }
        set.losses.add(LossKind::CounterMalformed, launch.seal());
        set.launches.push(launch);
    }
    if set.launches.is_empty() {
        return Err(NcuError::NoLaunches);
    }
    Ok(set)
}
