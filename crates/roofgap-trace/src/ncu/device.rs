//! The devices that counters were measured on, as ncu lists their attributes beside every launch.

use super::model::{CounterSet, LaunchCounters};
use crate::model::Device;

impl CounterSet {
    /// Returns every device of the launches once. A details page has no device attributes, only the number and the compute
    /// capability.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for launch in &self.launches {
            let number = launch.device.unwrap_or_default();
            if !devices.iter().any(|device| device.number == number) {
                devices.push(self.device_of(launch, number));
            }
        }
        devices
    }

    fn device_of(&self, launch: &LaunchCounters, number: u32) -> Device {
        let attribute = |name: &str| {
            let found = self.quantity(launch, &format!("device__attribute_{name}"))?;
            (found.value >= 1.0).then_some(found.value as u64)
        };
        let hertz = |name: &str| attribute(name).map(|khz| khz.saturating_mul(1000));
        // Twice the memory clock times the width of the bus, as CUDA defines the clock.
        let bandwidth = || {
            let clock = hertz("max_mem_frequency_khz").or_else(|| hertz("memory_clock_rate"))?;
            Some(clock.saturating_mul(2).saturating_mul(attribute("global_memory_bus_width")?) / 8)
        };
        Device {
            number,
            name: self.text(launch, "device__attribute_display_name").map(str::to_owned),
            compute_capability: launch.compute_capability.map(|(major, minor)| (major.into(), minor.into())),
            sms: attribute("multiprocessor_count").and_then(|count| u32::try_from(count).ok()),
            memory_bytes: attribute("total_memory"),
            bandwidth_bytes_per_s: bandwidth(),
            clock_hz: hertz("max_gpu_frequency_khz").or_else(|| hertz("clock_rate")),
            l2_bytes: attribute("l2_cache_size"),
            ..Device::default()
        }
    }
}
