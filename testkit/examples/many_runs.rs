//! Writes run directories of a small fleet with planted causes, for the saved questions: `many_runs FOLDER`.
//!
//! 72 runs of 12 commits on 3 hosts with a GPU each; every sixth is a job of two ranks. Planted: a token takes 25 % longer from the
//! seventh commit on, and 10 % longer on host gpu-2, whose GPU is throttled; attention takes 40 % longer with the newer driver; rank 1
//! computes longer than rank 0.

use roofgap_wire::{
    Call, CallName, Device, End, EventKind, FrameBuilder, Header, Host, Kernel, LaunchShape,
    LauncherVariable, Message, NvtxEvent, NvtxPop, Process, Record, StreamEntry, Text, TextEntry, Thread,
};
use serde_json::json;
use std::error::Error;
use std::fs;
use std::path::Path;

const KERNELS: [&str; 3] = ["gemm_bf16", "flash_attention", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"];
const STEPS: u64 = 8;
/// 2026-03-01, ns since the epoch.
const FIRST_NS: u64 = 1_772_323_200_000_000_000;
const HALF_DAY_NS: u64 = 43_200_000_000_000;

/// A run of the fleet.
struct Run {
    number: u64,
    host: u64,
    commit: u64,
    is_new_driver: bool,
    ranks: u32,
}

impl Run {
    fn new(number: u64) -> Self {
        Self {
            number,
            host: number % 3,
            commit: number / 6,
            is_new_driver: number >= 24,
            ranks: if number % 6 == 5 { 2 } else { 1 },
        }
    }

    fn start(&self) -> u64 {
        FIRST_NS + self.number * HALF_DAY_NS
    }

    /// Returns the durations of the kernels of a step, ns.
    fn kernels(&self, rank: u32) -> [u64; 3] {
        let slower = |is: bool, pct: u64| if is { 100 + pct } else { 100 };
        let noise = 995 + self.number * 7 % 11;
        let gemm = 20_000 * noise * slower(self.commit >= 6, 25) / 100 * slower(self.host == 2, 10) / 100;
        let late = gemm / 20;
        let attention = 10_000 * slower(self.is_new_driver, 40);
        // Rank 0 waits for the other one in the collective.
        match (self.ranks, rank) {
            (1, _) => [gemm, attention, 0],
            (_, 0) => [gemm, attention, 1_000_000 + late],
            _ => [gemm + late, attention, 1_000_000],
        }
    }

    fn write(&self, folder: &Path) -> Result<(), Box<dyn Error>> {
        let at = format!("2026-03-{:02}T{:02}:00:00Z", 1 + self.number / 2, self.number % 2 * 12);
        let id = format!("202603{:02}-{:02}0000", 1 + self.number / 2, self.number % 2 * 12);
        let run = folder.join(&id);
        for name in ["native", "vitals"] {
            fs::create_dir_all(run.join(name))?;
        }
        let write = |name: &str, document: serde_json::Value| fs::write(run.join(name), document.to_string());
        let failed = self.number == 7;
        let phase = json!({"name": "timeline", "status": "ok", "tool": "native", "wall_ns": null, "notes": [],
            "commands": [], "outputs": [], "asked": true, "started": at, "finished": at});
        write(
            "session.json",
            json!({
                "schema": "roofgap.session/1", "run_id": id, "roofgap_version": "0.1.0", "command_line": ["roofgap"],
                "repeat_command": "roofgap profile", "mode": "deep", "workload": "server", "started": at, "finished": at,
                "state": if failed { "failed" } else { "done" }, "exit_status": if failed { 4 } else { 0 },
                "missing": [], "phases": [phase],
            }),
        )?;
        fs::write(run.join("config.yaml"), "run:\n  mode: deep\n")?;
        write(
            "env.json",
            json!({
                "schema": "roofgap.env/1",
                "gpus": {"driver": if self.is_new_driver { "580.95" } else { "570.86" }, "gpus": [{"name": "NVIDIA H200"}]},
                "workload_revision": {"commit": format!("{:07x}", 0xabc_0000 + self.commit), "modified": self.number == 3},
            }),
        )?;
        let times =
            |ns: u64| json!({"count": 100, "mean": ns, "p50": ns, "p90": ns, "p99": 2 * ns, "max": 3 * ns});
        write(
            "native/workload.json",
            json!({
                "schema": "roofgap.workload/1", "model": {"name": "qwen3_8b", "dtype": "bfloat16"},
                "engine": {"name": "vLLM", "version": if self.commit < 3 { "0.25" } else { "0.26" }},
                "tokens": {"prompt": 512, "generated": STEPS + 1, "batch": 4},
                "requests": {
                    "sent": 100, "completed": 98, "failed": 2, "window_ns": 1_000_000_000, "start_unix_ns": self.start(),
                    "ttft_ns": times(40_000_000 + self.commit * 1_000_000), "itl_ns": times(9_000_000),
                    "e2e_ns": times(100_000_000), "tokens_per_s": 880.0 + self.commit as f64, "requests_per_s": 98.0,
                },
            }),
        )?;
        if self.number % 10 == 4 {
            write(
                "incident.json",
                json!({
                    "schema": "roofgap.incident/1", "at": at, "unix_ns": self.start(), "trigger": "slow-step",
                    "what": "a step took longer", "step_ns": 5_000_000, "dump_ms": 3, "cause": null, "finding": null,
                    "processes": [], "notes": [],
                }),
            )?;
        }
        // Not from `json!`, which may sort the keys: the schema comes first.
        let head = r#"{"schema":"roofgap.vitals/1","devices":[{"device":0,"max_sm_mhz":1980}]}"#;
        let mut lines = vec![head.to_owned()];
        let (works_ns, mut energy_mj) = ((STEPS + 1) * self.kernels(0).iter().sum::<u64>(), 0);
        for sample in 0..100 {
            let at = self.start() + sample * 5_000_000;
            let (mhz, reasons) = if self.host == 2 { (1500, 4) } else { (1980, 0) };
            energy_mj += if sample * 5_000_000 < works_ns { 3_500 } else { 500 };
            lines.push(json!({"at": at, "device": 0, "energy_mj": energy_mj}).to_string());
            let state =
                json!({"at": at, "device": 0, "instant_mw": 700_000, "sm_mhz": mhz, "reasons": reasons});
            lines.push(state.to_string());
        }
        fs::write(run.join("vitals/timeline.jsonl"), lines.join("\n"))?;
        for rank in 0..self.ranks {
            fs::write(run.join(format!("native/{}-2.rgcap", 11 + rank)), self.capture(rank))?;
        }
        Ok(())
    }

    /// Makes a capture: prefill, then decode with its steps. Each step launches three kernels, or two without other ranks.
    fn capture(&self, rank: u32) -> Vec<u8> {
        let (start, pid) = (self.start(), 11 + rank);
        let mut frame = FrameBuilder::new();
        frame.put(&Record::Process(Process { pid, parent: 1, at: start, name: Text(b"python3") }));
        if self.ranks > 1 {
            for (name, value) in [("RANK", rank), ("WORLD_SIZE", self.ranks)] {
                let name = Text(name.as_bytes());
                frame.put(&Record::LauncherVariable(LauncherVariable { value, name }));
            }
        }
        let host = format!("gpu-{}", self.host);
        frame.put(&Record::Host(Host { name: Text(host.as_bytes()) }));
        frame.put(&Record::Device(Device {
            id: 0,
            visible: 1,
            source: 1,
            major: 9,
            minor: 0,
            sms: 132,
            clock_khz: 1_980_000,
            l2_bytes: 60 << 20,
            memory_bytes: 141_000_000_000,
            bandwidth: 4_800_000_000_000,
            name: Text(b"NVIDIA H200"),
            uuid: Text(b""),
        }));
        for (id, name) in (0..).zip(KERNELS) {
            frame.put(&Record::TextEntry(TextEntry { id, text: Text(name.as_bytes()) }));
            frame.put(&Record::LaunchShape(LaunchShape {
                id,
                name: id,
                grid: [132, 1, 1],
                block: [128, 1, 1],
                registers: 40,
                static_shared: 0,
                dynamic_shared: 0,
                local: 0,
            }));
        }
        frame.put(&Record::StreamEntry(StreamEntry { id: 0, device: 0, context: 1, stream: 7 }));
        frame.put(&Record::CallName(CallName { api: 211, name: Text(b"cudaLaunchKernel_v7000") }));
        frame.put(&Record::Thread(Thread { tid: 7, handle: 900, at: start }));
        let (mut at, mut correlation) = (start + 5_000, 0);
        push(&mut frame, at, "prefill");
        at = self.step(&mut frame, at, rank, &mut correlation);
        pop(&mut frame, at);
        push(&mut frame, at + 1_000, "decode");
        at += 2_000;
        for _ in 0..STEPS {
            push(&mut frame, at, "decode_step");
            at = self.step(&mut frame, at, rank, &mut correlation);
            pop(&mut frame, at);
            at += 3_000;
        }
        pop(&mut frame, at);
        let mut bytes = Header::new(pid, start, 2).encode().to_vec();
        bytes.extend_from_slice(frame.close());
        frame.put(&Record::End(End { how: 1, at: at + 1_000 }));
        bytes.extend_from_slice(frame.close());
        bytes
    }

    /// Puts the calls and kernels of a step. Returns its end.
    fn step(&self, frame: &mut FrameBuilder, begin: u64, rank: u32, correlation: &mut u32) -> u64 {
        let mut at = begin + 1_000;
        for (shape, lasts) in (0..).zip(self.kernels(rank)).filter(|(_, lasts)| *lasts > 0) {
            *correlation += 1;
            frame.put(&Record::Call(Call {
                api: 211,
                thread: 900,
                correlation: *correlation,
                result: 0,
                start: begin + 100 * u64::from(shape),
                end: begin + 100 * u64::from(shape) + 50,
            }));
            frame.put(&Record::Kernel(Kernel {
                shape,
                stream_id: 0,
                correlation: *correlation,
                graph: 0,
                start: at,
                end: at + lasts,
                node: 0,
            }));
            at += lasts + 500;
        }
        at
    }
}

fn push(frame: &mut FrameBuilder, at: u64, name: &str) {
    frame.put(&Record::NvtxEvent(NvtxEvent {
        kind: EventKind::Push,
        tid: 7,
        domain: 0,
        at,
        range: 0,
        category: 0,
        payload_kind: 0,
        payload: 0,
        message: Message::Inline(Text(name.as_bytes())),
    }));
}

fn pop(frame: &mut FrameBuilder, at: u64) {
    frame.put(&Record::NvtxPop(NvtxPop { tid: 7, domain: 0, at }));
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("many_runs FOLDER")?;
    (0..72).try_for_each(|number| Run::new(number).write(Path::new(&folder)))
}
