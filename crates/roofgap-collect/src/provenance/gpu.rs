//! GPUs and driver, from `nvidia-smi`.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::child::probe;
use crate::command::{CommandLine, find_on_path, folders_in_variable};
use crate::tool::ToolError;

/// A GPU. Facts the driver does not report are `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// Index in `nvidia-smi`.
    pub index: u32,
    /// UUID.
    pub uuid: Option<String>,
    /// Model name.
    pub name: Option<String>,
    /// Compute capability, such as `9.0`.
    pub compute_capability: Option<String>,
    /// Memory size, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory in use, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Power limit, W.
    pub power_limit_w: Option<f64>,
    /// Default power limit, W.
    pub power_default_w: Option<f64>,
    /// Highest power limit, W.
    pub power_max_w: Option<f64>,
    /// SM clock, MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Highest SM clock, MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Memory clock, MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Highest memory clock, MHz.
    pub memory_clock_max_mhz: Option<u32>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Utilization, percent.
    pub utilization_pct: Option<u32>,
    /// MIG mode (`Enabled`, `Disabled`).
    pub mig_mode: Option<String>,
    /// ECC mode.
    pub ecc_mode: Option<String>,
    /// Persistence mode.
    pub persistence_mode: Option<String>,
    /// Compute mode (`Default`, `Exclusive_Process`, `Prohibited`).
    pub compute_mode: Option<String>,
}

/// GPUs of this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// Driver version.
    pub driver: Option<String>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// MIG instances, as in `nvidia-smi -L`.
    pub mig: Vec<String>,
    /// Processes that compute on the GPUs: number and name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
}

/// A field to query, the field that it becomes here, and the conversion of its text.
type Field = (&'static str, &'static str, fn(&str) -> Value);

const FIELDS: &[Field] = &[
    ("index", "index", whole),
    ("uuid", "uuid", text),
    ("name", "name", text),
    ("driver_version", DRIVER, text),
    ("compute_cap", "compute_capability", text),
    ("memory.total", "memory_bytes", mebibytes),
    ("memory.used", "memory_used_bytes", mebibytes),
    ("power.limit", "power_limit_w", number),
    ("power.max_limit", "power_max_w", number),
    ("clocks.current.sm", "sm_clock_mhz", whole),
    ("clocks.max.sm", "sm_clock_max_mhz", whole),
    ("clocks.current.memory", "memory_clock_mhz", whole),
    ("clocks.max.memory", "memory_clock_max_mhz", whole),
    ("temperature.gpu", "temperature_c", whole),
    ("utilization.gpu", "utilization_pct", whole),
    ("mig.mode.current", "mig_mode", text),
    ("ecc.mode.current", "ecc_mode", text),
    ("persistence_mode", "persistence_mode", text),
    ("compute_mode", "compute_mode", text),
    ("power.default_limit", "power_default_w", number),
];

/// Field of [`Gpus`]; the others are of a [`Gpu`].
const DRIVER: &str = "driver";

fn text(text: &str) -> Value {
    text.into()
}

fn number(text: &str) -> Value {
    text.parse::<f64>().ok().into()
}

fn whole(text: &str) -> Value {
    text.parse::<u32>().ok().into()
}

fn mebibytes(text: &str) -> Value {
    text.parse::<u64>().ok().map(|count| count << 20).into()
}

/// Time limit of `nvidia-smi`, which may have to load the driver.
const TIME_LIMIT: Duration = Duration::from_secs(30);

impl Gpus {
    /// Finds `nvidia-smi` and queries it.
    pub(crate) fn find() -> Result<Self, ToolError> {
        let nvidia_smi = find_on_path(Path::new("nvidia-smi"), &folders_in_variable("PATH"))
            .or_else(|| find_on_path(Path::new("/usr/bin/nvidia-smi"), &[]))
            .ok_or_else(|| ToolError("nvidia-smi is not on the PATH".to_owned()))?;
        Self::query(&nvidia_smi)
    }

    /// Queries `nvidia-smi`.
    pub fn query(nvidia_smi: &Path) -> Result<Self, ToolError> {
        let mut fields = FIELDS.to_vec();
        loop {
            let names: Vec<&str> = fields.iter().map(|(name, ..)| *name).collect();
            let line = CommandLine::new(nvidia_smi)
                .arg(format!("--query-gpu={}", names.join(",")))
                .arg("--format=csv,noheader,nounits");
            let output = probe(&line, TIME_LIMIT)?;
            let mut gpus = parse(&fields, &output.stdout);
            // A warning, such as a damaged infoROM, changes the exit status, but the GPUs are listed.
            if output.success || !gpus.gpus.is_empty() {
                gpus.processes = processes(nvidia_smi);
                if gpus.is_mig_enabled() {
                    gpus.mig = mig_devices(nvidia_smi);
                }
                return Ok(gpus);
            }
            // An older driver lacks some fields and names the first one.
            let text = output.text();
            let Some(unknown) =
                names.iter().position(|name| text.contains(&format!("\"{name}\" is not a valid field")))
            else {
                let message = text.trim().lines().next().unwrap_or("no output").to_owned();
                let ended = output.ended;
                return Err(ToolError(format!("nvidia-smi {ended}: {message}")));
            };
            fields.remove(unknown);
        }
    }

    /// Returns true when MIG is enabled on a GPU.
    pub(crate) fn is_mig_enabled(&self) -> bool {
        self.gpus.iter().any(|gpu| gpu.mig_mode.as_deref() == Some("Enabled"))
    }
}

fn parse(fields: &[Field], csv: &str) -> Gpus {
    let mut all = Gpus::default();
    for line in csv.lines() {
        let values = fields.iter().zip(line.split(',').map(str::trim));
        // "[N/A]", "[Not Supported]", "[Unknown Error]", and "N/A" in older versions.
        let known = values.filter(|(_, text)| !text.is_empty() && !text.starts_with('[') && *text != "N/A");
        let facts: Map<String, Value> =
            known.map(|((_, field, convert), text)| ((*field).to_owned(), convert(text))).collect();
        let driver = facts.get(DRIVER).and_then(Value::as_str).map(str::to_owned);
        if facts.get("index").is_some_and(Value::is_u64)
            && let Ok(gpu) = serde_json::from_value(Value::Object(facts))
        {
            all.driver = all.driver.or(driver);
            all.gpus.push(gpu);
        }
    }
    all
}

fn processes(nvidia_smi: &Path) -> Vec<String> {
    let line = CommandLine::new(nvidia_smi).args(["--query-compute-apps=pid,name", "--format=csv,noheader"]);
    let Ok(output) = probe(&line, TIME_LIMIT) else {
        return Vec::new();
    };
    let process = |line: &str| {
        let (pid, name) = line.split_once(", ").filter(|(_, name)| !name.contains(", "))?;
        Some(format!("{name} ({})", pid.trim().parse::<u32>().ok()?))
    };
    output.stdout.lines().filter_map(process).collect()
}

fn mig_devices(nvidia_smi: &Path) -> Vec<String> {
    let Ok(output) = probe(&CommandLine::new(nvidia_smi).arg("-L"), TIME_LIMIT) else {
        return Vec::new();
    };
    output.stdout.lines().map(str::trim).filter(|line| line.starts_with("MIG ")).map(str::to_owned).collect()
}

/// Returns the positions in `gpus` that `CUDA_VISIBLE_DEVICES` leaves visible. The driver stops at the first entry that
/// names no GPU.
pub fn visible_gpus(gpus: &[Gpu], value: Option<&str>) -> Vec<usize> {
    let Some(value) = value else {
        return (0..gpus.len()).collect();
    };
    let mut seen = Vec::new();
    for entry in value.split(',').map(str::trim) {
        let position = match entry.parse::<u32>() {
            Ok(index) => gpus.iter().position(|gpu| gpu.index == index),
            Err(_) if entry.starts_with("GPU-") => {
                gpus.iter().position(|gpu| gpu.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(entry)))
            }
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
        let gpus = parse(FIELDS, ROW);
        assert_eq!(gpus.driver.as_deref(), Some("580.159.04"));
        let gpu = gpus.gpus.first().unwrap();
        assert_eq!(gpu.name.as_deref(), Some("NVIDIA H200"));
        assert_eq!(gpu.memory_bytes, Some(143_771 << 20));
        assert_eq!((gpu.power_limit_w, gpu.sm_clock_max_mhz), (Some(700.0), Some(1980)));
    }

    #[test]
    fn unknown_facts_are_none() {
        let row = "0, GPU-x, Orin, 540.4, 8.7, [N/A], [N/A], [Not Supported], [N/A], 1, 2, 3, 4, N/A, 0, [N/A], [N/A], Enabled, Default";
        let gpu = parse(FIELDS, row).gpus.remove(0);
        assert_eq!((gpu.memory_bytes, gpu.power_limit_w, gpu.temperature_c), (None, None, None));
        assert_eq!(parse(FIELDS, "No devices were found\n").gpus, []);
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
        let gpus = Gpus::query(&script).unwrap();
        let gpu = gpus.gpus.first().unwrap();
        assert_eq!((gpu.compute_capability.as_deref(), gpu.memory_bytes), (None, Some(16_160 << 20)));

        std::fs::write(
            &script,
            format!(
                "#!/bin/sh\necho '{ROW}'\necho 'WARNING: infoROM is corrupted at gpu 0000:00:06.0'\nexit 14\n"
            ),
        )
        .unwrap();
        assert_eq!(Gpus::query(&script).unwrap().gpus.len(), 1);

        std::fs::write(
            &script,
            "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not talk to the driver'; exit 9\n",
        )
        .unwrap();
        let error = Gpus::query(&script).unwrap_err();
        assert!(error.to_string().contains("could not talk to the driver"));
    }

    #[test]
    fn visible_devices() {
        let mut first = parse(FIELDS, ROW).gpus.remove(0);
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
            assert_eq!(visible_gpus(&gpus, value), expected, "{value:?}");
        }
    }
}
