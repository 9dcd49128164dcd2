//! Writes events as a PyTorch profiler trace.

use crate::event::{Call, CallKind, Events, Kernel, Transfer, TransferKind};
use crate::names::{self, KernelKind};
use crate::program::Program;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// Process id of the program.
const PID: u32 = 1628;

/// Writes the first process of a program as a PyTorch profiler trace, which has one process.
pub fn write(program: &Program, to: impl Write) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, to);
    head(program, &mut out)?;
    let events = &program.events;
    // Kernel of each call, for the operator around it.
    let mut launched: HashMap<u32, u16> = HashMap::new();
    for kernel in events.kernels.iter().filter(|k| k.process == 0) {
        launched.entry(kernel.correlation).or_insert(kernel.name);
    }
    let mut external = 0;
    for call in events.calls.iter().filter(|c| c.process == 0) {
        let kind = launched.get(&call.correlation).and_then(|name| names::kinds().get(usize::from(*name)));
        if let Some(kind) = kind {
            external += 1;
            operators(call, kind, external, &mut out)?;
        }
    }
    for range in events.ranges.iter().filter(|r| r.process == 0) {
        let tid = PID + 1000 * u32::from(range.thread);
        write!(
            out,
            ",\n  {{\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"{}\", \"pid\": {PID}, \"tid\": {tid},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": 0, \"Ev Idx\": 0\n    }}\n  }}",
            range.name,
            Micros(range.start),
            Micros(range.end - range.start)
        )?;
        if let Some((start, end)) = range.gpu {
            write!(
                out,
                ",\n  {{\n    \"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"{}\", \"pid\": 0, \"tid\": 7,\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": 0\n    }}\n  }}",
                range.name,
                Micros(start),
                Micros(end - start)
            )?;
        }
    }
    for call in events.calls.iter().filter(|c| c.process == 0) {
        self::call(call, &mut out)?;
    }
    for kernel in events.kernels.iter().filter(|k| k.process == 0) {
        self::kernel(kernel, &mut out)?;
    }
    transfers(program, &mut out)?;
    out.write_all(b"\n  ],\n  \"traceName\": \"made-up.json\"\n}\n")?;
    out.flush()
}

/// A time in ns, written in microseconds.
struct Micros(i64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

fn head(program: &Program, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [")?;
    for device in 0..program.spec.devices.max(1) {
        let comma = if device == 0 { "" } else { "," };
        write!(
            out,
            "{comma}\n    {{\n      \"id\": {device}, \"name\": \"NVIDIA H200\", \"totalGlobalMem\": 150109880320,\n      \"computeMajor\": 9, \"computeMinor\": 0,\n      \"maxThreadsPerBlock\": 1024, \"maxThreadsPerMultiprocessor\": 2048,\n      \"regsPerBlock\": 65536, \"warpSize\": 32,\n      \"sharedMemPerBlock\": 49152, \"numSms\": 132\n    }}"
        )?;
    }
    out.write_all(
        b"\n  ],\n  \"record_shapes\": 1,\n  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1790857026000000000,\n  \"traceEvents\": [",
    )?;
    write!(
        out,
        "\n  {{\n    \"name\": \"process_name\", \"ph\": \"M\", \"ts\": 0.000, \"pid\": {PID}, \"tid\": 0,\n    \"args\": {{\n      \"name\": \"python3\"\n    }}\n  }}"
    )
}

/// Writes the operator of a kernel, nested in another for every second matrix product.
fn operators(call: &Call, kind: &KernelKind, external: u32, out: &mut impl Write) -> io::Result<()> {
    let tid = PID + 1000 * u32::from(call.thread);
    let mut operator = |name: &str, before: i64, after: i64| {
        write!(
            out,
            ",\n  {{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"{name}\", \"pid\": {PID}, \"tid\": {tid},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": {external},\"Record function id\": 0, \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\"], \"Input Dims\": [[{}, 2048], [2048, 2048]], \"Ev Idx\": {}\n    }}\n  }}",
            Micros(call.start - before),
            Micros(call.end - call.start + before + after),
            kind.grid[0],
            external - 1,
        )
    };
    if call.kind == CallKind::DriverLaunch && call.correlation.is_multiple_of(2) {
        operator("aten::linear", 3_000, 600)?;
    }
    operator(kind.operator, 1_500, 300)
}

fn call(call: &Call, out: &mut impl Write) -> io::Result<()> {
    let tid = PID + 1000 * u32::from(call.thread);
    let (category, code) = match call.kind {
        CallKind::DriverLaunch => ("cuda_driver", 307),
        _ => ("cuda_runtime", 211),
    };
    write!(
        out,
        ",\n  {{\n    \"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{}\", \"pid\": {PID}, \"tid\": {tid},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": {},      \"cbid\": {code}, \"correlation\": {}\n    }}\n  }}",
        call.kind.name(),
        Micros(call.start),
        Micros(call.end - call.start),
        call.correlation,
        call.correlation
    )?;
    if !matches!(call.kind, CallKind::Synchronize | CallKind::Query) {
        write!(
            out,
            ",\n  {{\n    \"ph\": \"s\", \"id\": {}, \"pid\": {PID}, \"tid\": {tid}, \"ts\": {},\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }}",
            call.correlation,
            Micros(call.start)
        )?;
    }
    Ok(())
}

fn flow_end(correlation: u32, device: u16, stream: u16, start: i64, out: &mut impl Write) -> io::Result<()> {
    write!(
        out,
        ",\n  {{\n    \"ph\": \"f\", \"id\": {correlation}, \"pid\": {device}, \"tid\": {stream}, \"ts\": {},\n    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }}",
        Micros(start)
    )
}

fn kernel(kernel: &Kernel, out: &mut impl Write) -> io::Result<()> {
    let Some(kind) = names::kinds().get(usize::from(kernel.name)) else {
        return Ok(());
    };
    let &Kernel { device, stream, correlation, start, end, .. } = kernel;
    let blocks = f64::from(kind.grid.iter().product::<u32>()) / 132.0;
    let node = match kernel.node {
        0 => String::new(),
        node => format!("\"graph node id\": {node},      "),
    };
    write!(
        out,
        ",\n  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{}\", \"pid\": {device}, \"tid\": {stream},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": {correlation},      \"queued\": 0, \"device\": {device}, \"context\": 1,      \"stream\": {stream}, \"correlation\": {correlation},      {node}\"registers per thread\": {},      \"shared memory\": {},      \"blocks per SM\": {blocks:.6},      \"warps per SM\": {:.6},      \"grid\": [{}, {}, {}],      \"block\": [{}, 1, 1],      \"est. achieved occupancy %\": {}\n    }}\n  }}",
        kind.demangled,
        Micros(start),
        Micros(end - start),
        kind.registers,
        kind.dynamic_shared,
        blocks * f64::from(kind.block / 32),
        kind.grid[0],
        kind.grid[1],
        kind.grid[2],
        kind.block,
        kind.block % 100,
    )?;
    flow_end(correlation, device, stream, start, out)
}

fn transfers(program: &Program, out: &mut impl Write) -> io::Result<()> {
    let Events { copies, sets, .. } = &program.events;
    for transfer in copies.iter().chain(sets).filter(|t| t.process == 0) {
        let (category, name, bandwidth) = match transfer.kind {
            TransferKind::ToDevice => ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1.5),
            TransferKind::ToHost => ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 1.5),
            TransferKind::Set | TransferKind::Graph => ("gpu_memset", "Memset (Device)", 0.1),
        };
        let &Transfer { device, stream, correlation, bytes, start, end, .. } = transfer;
        write!(
            out,
            ",\n  {{\n    \"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": {device}, \"tid\": {stream},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      \"External id\": {correlation},      \"device\": {device}, \"context\": 1,      \"stream\": {stream}, \"correlation\": {correlation},      \"bytes\": {bytes}, \"memory bandwidth (GB/s)\": {bandwidth}\n    }}\n  }}",
            Micros(start),
            Micros(end - start)
        )?;
        flow_end(correlation, device, stream, start, out)?;
    }
    Ok(())
}
