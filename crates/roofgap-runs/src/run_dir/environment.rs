//! Reads `env.json`. Missing keys are skipped, so that documents of any version can be read.

use roofgap_analyze::Engine;
use roofgap_base::file::read_document;
use serde_json::Value;

use super::Layout;

/// `env.json` of a run.
#[derive(Debug, Default)]
pub struct Environment(Value);

impl Environment {
    /// Reads the document; an unreadable one is empty.
    pub fn read(layout: &Layout) -> Self {
        let bytes = read_document(&layout.environment()).unwrap_or_default();
        Environment(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    fn text(&self, pointer: &str) -> Option<String> {
        text(self.0.pointer(pointer)?)
    }

    fn gpus(&self) -> &[Value] {
        let gpus = self.0.pointer("/gpus/gpus").and_then(Value::as_array);
        gpus.map_or(&[], Vec::as_slice)
    }

    /// Returns the names of the GPUs.
    pub fn gpu_names(&self) -> Vec<String> {
        self.gpus().iter().filter_map(|gpu| text(gpu.get("name")?)).collect()
    }

    /// Returns the version of the GPU driver.
    pub fn driver(&self) -> Option<String> {
        self.text("/gpus/driver")
    }

    /// Returns the version of a Python package.
    pub fn package(&self, name: &str) -> Option<String> {
        let packages = self.0.pointer("/python/packages")?;
        text(packages.get(name)?)
    }

    /// Returns the commit of the profiled program, and true where its files were modified since; `None` where that is unknown.
    pub fn workload_revision(&self) -> Option<(String, Option<bool>)> {
        let modified = self.0.pointer("/workload_revision/modified");
        let commit = self.text("/workload_revision/commit")?;
        Some((commit, modified.and_then(Value::as_bool)))
    }

    /// Lists the environment for a report, as name and value.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                lines.push((name.to_owned(), value));
            }
        };
        if self.gpus().is_empty() {
            add("GPU", self.text("/no_gpu_because"));
        } else {
            self.gpus().iter().for_each(|gpu| add("GPU", describe_gpu(gpu)));
            add("driver", self.text("/gpus/driver"));
        }
        for (name, tool) in self.0.get("tools").and_then(Value::as_object).into_iter().flatten() {
            let keys = ["version", "unusable_because", "sha256"];
            add(name, keys.iter().find_map(|key| text(tool.get(key)?)));
        }
        add("CPU", self.text("/machine/cpu"));
        add("cores", self.text("/machine/cores"));
        let memory = self.0.pointer("/machine/memory_bytes").and_then(Value::as_f64);
        add("memory", memory.map(|bytes| format!("{:.1} GiB", bytes / f64::from(1 << 30))));
        add("system", self.text("/machine/os"));
        add("Python", self.text("/python/version"));
        for package in std::iter::once("torch").chain(Engine::packages()) {
            add(package, self.text(&format!("/python/packages/{package}")));
        }
        let modified = self.0.pointer("/workload_revision/modified") == Some(&Value::Bool(true));
        let commit = self.text("/workload_revision/commit");
        let suffix = if modified { ", modified" } else { "" };
        add("workload revision", commit.map(|commit| format!("{commit}{suffix}")));
        lines
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn describe_gpu(gpu: &Value) -> Option<String> {
    let number = |key: &str| gpu.get(key).and_then(Value::as_f64);
    let mut more = Vec::new();
    more.extend(number("power_limit_w").map(|watts| format!("{watts:.0} W")));
    more.extend(number("sm_clock_max_mhz").map(|clock| format!("at most {clock} MHz")));
    more.extend(gpu.get("uuid").and_then(text));
    let name = text(gpu.get("name")?)?;
    Some(if more.is_empty() { name } else { format!("{name} ({})", more.join(", ")) })
}
