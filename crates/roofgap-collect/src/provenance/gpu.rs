//! The GPUs and the driver, as `nvidia-smi` has them.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::child::probe;
use crate::command::CommandLine;

/// A GPU. What the driver does not tell is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpu {
    /// Its number for `nvidia-smi`.
    pub index: u32,
    /// Its own name for good.
    pub uuid: Option<String>,
    /// Its model.
    pub name: Option<String>,
    /// Its compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// What of it was in use.
    pub memory_used_bytes: Option<u64>,
    /// The power it may draw now, in watts.
    pub power_limit_w: Option<f64>,
    /// The power it could be allowed to draw, in watts.
    pub power_max_w: Option<f64>,
    /// The clock of its processors now, in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// The fastest they can go, in MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// The clock of its memory now, in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// The fastest that can go, in MHz.
    pub memory_clock_max_mhz: Option<u32>,
    /// Its temperature, in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// How busy it was, in percent.
    pub utilization_pct: Option<u32>,
    /// Whether it is cut into instances (`Enabled`, `Disabled`).
    pub mig_mode: Option<String>,
    /// Whether it corrects errors.
    pub ecc_mode: Option<String>,
    /// Whether the driver stays loaded.
    pub persistence_mode: Option<String>,
    /// Who may use it (`Default`, `Exclusive_Process`, `Prohibited`).
    pub compute_mode: Option<String>,
}

/// The GPUs of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gpus {
    /// The version of the driver.
    pub driver: Option<String>,
    /// The GPUs.
    pub gpus: Vec<Gpu>,
    /// The instances of those that are cut up, as `nvidia-smi -L` lists them.
    pub mig: Vec<String>,
}

const FIELDS: &[&str] = &[
    "index",
    "uuid",
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "memory.used",
    "power.limit",
    "power.max_limit",
    "clocks.current.sm",
    "clocks.max.sm",
    "clocks.current.memory",
    "clocks.max.memory",
    "temperature.gpu",
    "utilization.gpu",
    "mig.mode.current",
    "ecc.mode.current",
    "persistence_mode",
    "compute_mode",
];

/// The longest `nvidia-smi` may take: it loads the driver where nobody has.
const PATIENCE: Duration = Duration::from_secs(30);

impl Gpus {
    /// Asks `nvidia-smi`; the error says why there is no answer.
    pub fn ask(nvidia_smi: &Path) -> Result<Gpus, String> {
        let mut fields = FIELDS.to_vec();
        loop {
            let line = CommandLine::new(nvidia_smi)
                .arg(format!("--query-gpu={}", fields.join(",")))
                .arg("--format=csv,noheader,nounits");
            let answer = probe(&line, PATIENCE).map_err(|error| error.to_string())?;
            let mut gpus = read(&fields, &answer.stdout);
            // It ends with another status where it warns, of a damaged infoROM for one, and lists the GPUs all the same.
            if answer.ok || !gpus.gpus.is_empty() {
                if gpus
                    .gpus
                    .iter()
                    .any(|gpu| gpu.mig_mode.as_deref() == Some("Enabled"))
                {
                    gpus.mig = mig_devices(nvidia_smi);
                }
                return Ok(gpus);
            }
            // An older driver does not know every field, and says which.
            let said = answer.text();
            let Some(unknown) = fields
                .iter()
                .position(|field| said.contains(&format!("\"{field}\" is not a valid field")))
            else {
                let first = said.trim().lines().next().unwrap_or("it says nothing").to_owned();
                return Err(format!("nvidia-smi {}: {first}", answer.how));
            };
            fields.remove(unknown);
        }
    }
}

fn read(fields: &[&str], csv: &str) -> Gpus {
    let mut driver = None;
    let mut gpus = Vec::new();
    for line in csv.lines().filter(|line| !line.trim().is_empty()) {
        let values: Vec<&str> = line.split(',').map(str::trim).collect();
        let value = |field: &str| -> Option<&str> {
            let text = *values.get(fields.iter().position(|known| *known == field)?)?;
            // "[N/A]", "[Not Supported]", "[Unknown Error]", and "N/A" in older versions.
            (!text.is_empty() && !text.starts_with('[') && text != "N/A").then_some(text)
        };
        let Some(index) = value("index").and_then(|text| text.parse().ok()) else {
            continue;
        };
        let text = |field| value(field).map(str::to_owned);
        let number = |field| value(field).and_then(|text| text.parse::<f64>().ok());
        let whole = |field| value(field).and_then(|text| text.parse::<u32>().ok());
        let mebibytes = |field| {
            value(field)
                .and_then(|text| text.parse::<u64>().ok())
                .map(|count| count << 20)
        };
        driver = driver.or_else(|| text("driver_version"));
        gpus.push(Gpu {
            index,
            uuid: text("uuid"),
            name: text("name"),
            compute_capability: text("compute_cap"),
            memory_bytes: mebibytes("memory.total"),
            memory_used_bytes: mebibytes("memory.used"),
            power_limit_w: number("power.limit"),
            power_max_w: number("power.max_limit"),
            sm_clock_mhz: whole("clocks.current.sm"),
            sm_clock_max_mhz: whole("clocks.max.sm"),
            memory_clock_mhz: whole("clocks.current.memory"),
            memory_clock_max_mhz: whole("clocks.max.memory"),
            temperature_c: whole("temperature.gpu"),
            utilization_pct: whole("utilization.gpu"),
            mig_mode: text("mig.mode.current"),
            ecc_mode: text("ecc.mode.current"),
            persistence_mode: text("persistence_mode"),
            compute_mode: text("compute_mode"),
        });
    }
    Gpus {
        driver,
        gpus,
        mig: Vec::new(),
    }
}

fn mig_devices(nvidia_smi: &Path) -> Vec<String> {
    let Ok(answer) = probe(&CommandLine::new(nvidia_smi).arg("-L"), PATIENCE) else {
        return Vec::new();
    };
    answer
        .stdout
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("MIG "))
        .map(str::to_owned)
        .collect()
}

/// Which GPUs a program sees under a value of `CUDA_VISIBLE_DEVICES`: their positions in `gpus`. The driver reads the
/// list up to the first entry that names no GPU.
pub fn visible(gpus: &[Gpu], value: Option<&str>) -> Vec<usize> {
    let Some(value) = value else {
        return (0..gpus.len()).collect();
    };
    let mut seen = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let position = match entry.parse::<u32>() {
            Ok(index) => gpus.iter().position(|gpu| gpu.index == index),
            Err(_) if entry.starts_with("GPU-") => gpus
                .iter()
                .position(|gpu| gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(entry))),
            Err(_) => None,
        };
        match position {
            Some(position) if !seen.contains(&position) => seen.push(position),
            _ => break,
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ROW: &str = "0, GPU-b2bf9c37-0c06-a4cd-2437-0b4e6bcb4b8a, NVIDIA H200, 580.159.04, 9.0, 143771, 4, 700.00, 700.00, \
                       345, 1980, 3201, 3201, 31, 0, Disabled, Enabled, Enabled, Default\n";

    #[test]
    fn a_row() {
        let gpus = read(FIELDS, ROW);
        assert_eq!(gpus.driver.as_deref(), Some("580.159.04"));
        let gpu = gpus.gpus.first().unwrap();
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H200"));
        assert_eq!(gpu.memory_bytes, Some(143_771 << 20));
        assert_eq!(
            (gpu.power_limit_w, gpu.sm_clock_max_mhz),
            (Some(700.0), Some(1980))
        );
    }

    #[test]
    fn what_is_not_told_is_none() {
        let row = "0, GPU-x, Orin, 540.4, 8.7, [N/A], [N/A], [Not Supported], [N/A], 1, 2, 3, 4, N/A, 0, [N/A], [N/A], Enabled, Default";
        let gpu = read(FIELDS, row).gpus.remove(0);
        assert_eq!(
            (gpu.memory_bytes, gpu.power_limit_w, gpu.temperature_c),
            (None, None, None)
        );
        assert_eq!(read(FIELDS, "No devices were found\n").gpus, []);
    }

    #[test]
    fn a_field_an_older_driver_does_not_know_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("nvidia-smi");
        std::fs::write(
            &script,
            "#!/bin/sh\ncase \"$1\" in *compute_cap*) echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2;; \
             *index,uuid,name,driver_version*) echo '0, GPU-1, Old GPU, 450.1, 16160, 0, 300, 300, 1, 2, 3, 4, 5, 6, [N/A], Enabled, Enabled, Default';; esac\n",
        )
        .unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let gpus = Gpus::ask(&script).unwrap();
        let gpu = gpus.gpus.first().unwrap();
        assert_eq!(
            (gpu.compute_capability.as_deref(), gpu.memory_bytes),
            (None, Some(16_160 << 20))
        );

        std::fs::write(
            &script,
            format!(
                "#!/bin/sh\necho '{ROW}'\necho 'WARNING: infoROM is corrupted at gpu 0000:00:06.0'\nexit 14\n"
            ),
        )
        .unwrap();
        assert_eq!(Gpus::ask(&script).unwrap().gpus.len(), 1);

        std::fs::write(
            &script,
            "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9\n",
        )
        .unwrap();
        assert!(
            Gpus::ask(&script)
                .unwrap_err()
                .contains("could not talk to the driver")
        );
    }

    #[test]
    fn what_cuda_visible_devices_leaves() {
        let mut first = read(FIELDS, ROW).gpus.remove(0);
        let mut second = first.clone();
        first.uuid = Some("GPU-aaa".to_owned());
        second.index = 1;
        second.uuid = Some("GPU-bbb".to_owned());
        let gpus = [first, second];
        for (value, expected) in [
            (None, vec![0, 1]),
            (Some("1"), vec![1]),
            (Some("1,0"), vec![1, 0]),
            (Some("GPU-b"), vec![1]),
            (Some(""), vec![]),
            (Some("-1"), vec![]),
            (Some("0,7,1"), vec![0]),
            (Some("NoDevFiles"), vec![]),
        ] {
            assert_eq!(visible(&gpus, value), expected, "{value:?}");
        }
    }
}
