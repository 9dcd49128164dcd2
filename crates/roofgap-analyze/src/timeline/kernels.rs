//! Kernels by total time.

use crate::names::Naming;
use crate::result::Kernel;
use roofgap_base::stats::median;
use roofgap_trace::{DeviceId, NameId, OpKind, Trace};

/// Groups the kernels among `rows` of `Trace::ops` by name and device, most time first.
pub fn table(trace: &Trace, rows: impl Iterator<Item = usize>, naming: &mut Naming) -> Vec<Kernel> {
    let ops = &trace.ops;
    let mut groups = Groups::default();
    let mut durations: Vec<(NameId, DeviceId, Vec<i64>)> = Vec::new();
    for row in rows.filter(|&row| ops.kind[row] == OpKind::Kernel) {
        let (name, device) = (ops.name[row], ops.device[row]);
        let at = groups.of(name, device);
        if at == durations.len() {
            durations.push((name, device, Vec::new()));
        }
        if let Some(group) = durations.get_mut(at) {
            group.2.push(ops.duration(row));
        }
    }
    let mut kernels: Vec<Kernel> = durations
        .into_iter()
        .map(|(name, device, list)| {
            let device = trace.devices.get(device.index()).map(|d| d.number);
            row(trace.names.get(name), device, list, naming)
        })
        .collect();
    sort(&mut kernels);
    kernels
}

/// Builds the table of kernels from the durations of each on a device, most time first.
pub fn from_durations(groups: Vec<(&str, u32, Vec<i64>)>, naming: &mut Naming) -> Vec<Kernel> {
    let groups = groups.into_iter();
    let mut kernels: Vec<Kernel> =
        groups.map(|(name, device, list)| row(name, Some(device), list, naming)).collect();
    sort(&mut kernels);
    kernels
}

fn row(name: &str, device: Option<u32>, mut durations: Vec<i64>, naming: &mut Naming) -> Kernel {
    let (total_ns, calls) = (durations.iter().sum::<i64>(), durations.len() as u64);
    let (short_name, family) = naming.of(name);
    Kernel {
        name: name.to_owned(),
        short_name,
        family,
        device,
        total_ns,
        calls,
        mean_ns: divide(total_ns, calls as i64),
        min_ns: durations.iter().min().copied(),
        max_ns: durations.iter().max().copied(),
        median_ns: median(&mut durations),
        ..Kernel::default()
    }
}

/// Numbers the pairs of name and device as they come. Both are positions in tables, so tables find them without hashing.
#[derive(Default)]
struct Groups {
    /// For each name and then each device one more than the number; 0 is none yet.
    numbers: Vec<Vec<u32>>,
    count: u32,
}

impl Groups {
    fn of(&mut self, name: NameId, device: DeviceId) -> usize {
        if self.numbers.len() <= name.index() {
            self.numbers.resize(name.index() + 1, Vec::new());
        }
        let devices = &mut self.numbers[name.index()];
        if devices.len() <= device.index() {
            devices.resize(device.index() + 1, 0);
        }
        let number = &mut devices[device.index()];
        if *number == 0 {
            self.count += 1;
            *number = self.count;
        }
        *number as usize - 1
    }
}

/// Kernels of a summary table: the totals that another tool added up.
pub fn from_totals(trace: &Trace, naming: &mut Naming) -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = trace
        .kernel_totals
        .iter()
        .map(|total| {
            let text = trace.names.get(total.name);
            let (short_name, family) = naming.of(text);
            Kernel {
                name: text.to_owned(),
                short_name,
                family,
                device: None,
                total_ns: total.total_ns,
                calls: total.calls,
                mean_ns: divide(total.total_ns, total.calls as i64),
                median_ns: total.median_ns.map(|m| m.round() as i64),
                min_ns: total.min_ns,
                max_ns: total.max_ns,
                ..Kernel::default()
            }
        })
        .collect();
    sort(&mut kernels);
    kernels
}

fn sort(kernels: &mut [Kernel]) {
    kernels.sort_by(|a, b| {
        b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)).then(a.device.cmp(&b.device))
    });
}

/// `a / b` to the nearest integer; 0 for an empty group.
pub fn divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { (a as f64 / b as f64).round() as i64 }
}
