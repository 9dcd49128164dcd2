//! The result of one launch: its shape, its metrics.

use super::super::model::{LaunchCounters, Metric};
use super::super::protobuf::{Fields, Malformed, Wire};
use super::super::unit::Unit;
use super::nvtx;
use super::report::{Block, Report};
use crate::model::LossKind;

impl Report {
    pub fn launch(&mut self, message: &[u8], block: &Block) -> Result<(), Malformed> {
        let mut launch = LaunchCounters {
            id: self.set.launches.len() as u64,
            process: block.process,
            process_name: block.process_name.clone(),
            ..LaunchCounters::default()
        };
        let mut thread = None;
        let mut nvtx = None;
        let (mut demangled, mut function) = (None, None);
        for field in Fields::of(message) {
            match field? {
                (1, Wire::Varint(id)) => thread = Some(id),
                (5, name) => launch.mangled = name.text(),
                (6, name) => function = name.text(),
                (7, name) => demangled = name.text(),
                (10, Wire::Bytes(grid)) => launch.grid = dimensions(grid)?,
                (11, Wire::Bytes(block)) => launch.block = dimensions(block)?,
                (13, Wire::Bytes(metric)) => self.metric(metric, &mut launch)?,
                (19, Wire::Bytes(rule)) => self.rule(rule)?,
                (21, Wire::Bytes(state)) => nvtx = Some(state),
                (22, Wire::Varint(id)) => launch.context = u32::try_from(id).ok(),
                (23, Wire::Varint(id)) => launch.stream = u32::try_from(id).ok(),
                (25, Wire::Bytes(clocks)) => {
                    for field in Fields::of(clocks) {
                        if let (2, Wire::Varint(locked)) = field? {
                            launch.clocks_locked = Some(locked != 0);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(state) = nvtx {
            nvtx::ranges(state, thread, &mut launch.nvtx)?;
        }
        launch.kernel = [demangled, function, launch.mangled.clone()]
            .into_iter()
            .flatten()
            .find(|n| !n.is_empty())
            .unwrap_or_default();
        self.set.losses.add(LossKind::CounterMalformed, launch.seal());
        let number = |name: &str| {
            self.set
                .quantity(&launch, name)
                .map(|quantity| quantity.value)
                .filter(|value| (0.0..256.0).contains(value))
        };
        let device = number("launch__device_id").map(|id| id as u32);
        let major = number("device__attribute_compute_capability_major");
        let minor = number("device__attribute_compute_capability_minor");
        launch.device = device;
        launch.compute_capability = major.zip(minor).map(|(major, minor)| (major as u8, minor as u8));
        self.set.launches.push(launch);
        Ok(())
    }

    fn metric(&mut self, message: &[u8], launch: &mut LaunchCounters) -> Result<(), Malformed> {
        let (mut name, mut value) = (None, None);
        for field in Fields::of(message) {
            match field? {
                (1, Wire::Varint(index)) => {
                    name = usize::try_from(index).ok().and_then(|at| self.names.get(at))
                }
                (2, Wire::Bytes(message)) => value = Value::read(message)?,
                _ => {}
            }
        }
        let Some(&(id, unit)) = name else {
            self.set.losses.add(LossKind::NameMissing, 1);
            return Ok(());
        };
        match value {
            Some(Value::Number(value)) if value.is_finite() => {
                let unit = unit.unwrap_or_else(|| {
                    self.set.losses.add(LossKind::UnitUnknown, 1);
                    Unit::UNSTATED
                });
                launch.metrics.push(Metric { id, unit, value });
            }
            Some(Value::Number(_)) => launch.missing.push(id),
            Some(Value::Text(text)) if !text.is_empty() => launch.texts.push((id, text.into())),
            Some(Value::Text(_)) => {}
            // The breakdown of a throughput lists metrics and has no value of its own.
            None if self.set.name(id).starts_with("breakdown:") => {}
            None => launch.missing.push(id),
        }
        Ok(())
    }
}

enum Value {
    Number(f64),
    Text(String),
}

impl Value {
    fn read(message: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut value = None;
        for field in Fields::of(message) {
            match field? {
                (1, text) => value = text.text().map(Self::Text),
                (2, Wire::Fixed32(bits)) => value = Some(Self::Number(f64::from(f32::from_bits(bits)))),
                (3, Wire::Fixed64(bits)) => value = Some(Self::Number(f64::from_bits(bits))),
                (4 | 5, Wire::Varint(number)) => value = Some(Self::Number(number as f64)),
                _ => {}
            }
        }
        Ok(value)
    }
}

fn dimensions(message: &[u8]) -> Result<Option<[u32; 3]>, Malformed> {
    let mut out = [0u32; 3];
    for field in Fields::of(message) {
        let (number, value) = field?;
        let slot = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .and_then(|at| out.get_mut(at));
        if let (Some(slot), Some(value)) = (slot, value.unsigned()) {
            let Ok(value) = u32::try_from(value) else {
                return Ok(None);
            };
            *slot = value;
        }
    }
    Ok(Some(out))
}
