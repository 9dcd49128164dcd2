//! The timeline of GPU work: `cuda_gpu_trace` and its older name `gputrace`, with a row per kernel, copy and set.

use super::{Table, TimeUnit, Title, is_cut, load};
use crate::decimal::{scaled, ungrouped};
use crate::{
    Device, DeviceId, Format, GpuOp, LaunchShape, LossKind, MemoryKind, OpKind, ProcessId, ReadError,
    ShapeId, Source, SourceFormat, Trace,
};
use rustc_hash::FxHashMap;
use std::path::Path;

pub const FORMAT: Format = Format {
    name: "nsys-gpu-trace",
    description: "a GPU trace of `nsys stats`",
    detect: |head| Table::find(&String::from_utf8_lossy(&head.bytes), Columns::of).is_some().into(),
    read: |file, input| read(&file.path, &mut input.trace),
    ..super::summary::FORMAT
};

/// Name of the format in messages.
const NAME: &str = "GPU trace of nsys stats";

/// Size limit, bytes: about four million launches.
const MAX_BYTES: u64 = 2 << 30;

/// The columns of a GPU trace.
#[derive(Debug, Clone, Copy)]
struct Columns {
    start: (usize, TimeUnit),
    duration: (usize, TimeUnit),
    correlation: usize,
    /// Blocks and threads, x, y and z.
    shape: Option<[usize; 6]>,
    registers: Option<usize>,
    /// Size and rate of a copy or set, with the power of ten of the unit.
    bytes: Option<(usize, i32)>,
    rate: Option<(usize, i32)>,
    /// Memory of source and target.
    memory: Option<[usize; 2]>,
    device: usize,
    stream: usize,
    name: usize,
}

impl Columns {
    /// Parses a header; `None` if it is not that of a GPU trace.
    fn of(titles: &[Title]) -> Option<Self> {
        let find = |name: &str| titles.iter().position(|title| title.name == name);
        let unit = |at: usize| titles.get(at).map_or("", |title| title.unit.as_str());
        let time = |name: &str| find(name).and_then(|at| Some((at, TimeUnit::parse(unit(at))?)));
        let size = |name: &str| find(name).and_then(|at| Some((at, size_power(unit(at))?)));
        let all = |names: [&str; 6]| {
            let found = names.map(find);
            found.iter().all(Option::is_some).then(|| found.map(Option::unwrap_or_default))
        };
        Some(Self {
            start: time("start")?,
            duration: time("duration")?,
            correlation: find("corrid")?,
            shape: all(["grdx", "grdy", "grdz", "blkx", "blky", "blkz"]),
            registers: find("reg/trd"),
            bytes: size("bytes"),
            rate: size("throughput"),
            memory: find("srcmemkd").zip(find("dstmemkd")).map(|(source, target)| [source, target]),
            device: find("device")?,
            stream: find("strm")?,
            name: find("name")?,
        })
    }
}

/// Returns the power of ten of a unit of size or of a rate such as `MB`, `MB/s` or `MBps`.
fn size_power(unit: &str) -> Option<i32> {
    let unit = unit.strip_suffix("/s").or_else(|| unit.strip_suffix("ps")).unwrap_or(unit);
    ["B", "KB", "MB", "GB", "TB"]
        .iter()
        .zip((0..).step_by(3))
        .find_map(|(own, power)| (*own == unit).then_some(power))
}

/// Reads a GPU trace into `trace`.
pub fn read(path: &Path, trace: &mut Trace) -> Result<(), ReadError> {
    let damaged = |what: String| ReadError::damaged(path, NAME, what);
    let text = load(path, NAME, MAX_BYTES)?;
    let (columns, table) = Table::find(&text, Columns::of).ok_or_else(|| damaged("no header".into()))?;
    let before = trace.ops.len();
    let mut rows = Rows { columns, process: trace.add_process(0, ""), devices: FxHashMap::default(), trace };
    let mut is_last_malformed = false;
    let read = table.each(|_, row| {
        is_last_malformed = row.ok().and_then(|row| rows.add(row)).is_none();
        rows.trace.losses.add(LossKind::EventMalformed, u64::from(is_last_malformed));
        Ok(())
    });
    read.map_err(damaged)?;
    if trace.ops.len() == before {
        return Err(damaged("the table has no rows".into()));
    }
    trace.losses.add(LossKind::CaptureCut, u64::from(table.is_cut() && is_last_malformed));
    trace.losses.add(LossKind::NoRuntime, 1);
    trace.sources.push(Source::new(path, SourceFormat::GpuTrace));
    Ok(())
}

/// The rows as they are read.
struct Rows<'t> {
    columns: Columns,
    /// The table names no processes.
    process: ProcessId,
    /// Devices by the text of their cell.
    devices: FxHashMap<String, DeviceId>,
    trace: &'t mut Trace,
}

impl Rows<'_> {
    /// Adds a row; `None` if it has no times.
    fn add(&mut self, row: &csv::StringRecord) -> Option<()> {
        let columns = self.columns;
        let cell = |at: usize| row.get(at).unwrap_or_default().trim();
        let (start, duration) = (cell(columns.start.0), cell(columns.duration.0));
        let start_ns = columns.start.1.ns(start)?;
        let end = start_ns.checked_add(columns.duration.1.ns(duration)?)?;
        let is_rounded = columns.start.1.is_rounded(start) || columns.duration.1.is_rounded(duration);
        let text = cell(columns.name);
        let kind = match text {
            _ if text.starts_with("[CUDA memcpy") => OpKind::Copy,
            _ if text.starts_with("[CUDA memset") => OpKind::Set,
            _ => OpKind::Kernel,
        };
        let shape = match columns.shape.filter(|_| kind == OpKind::Kernel) {
            Some(cells) => {
                let [gx, gy, gz, bx, by, bz] = cells.map(|at| ungrouped(cell(at)).parse().unwrap_or(0));
                let registers = columns.registers.and_then(|at| cell(at).parse().ok()).unwrap_or(0);
                // Shared memory is rounded to kilobytes.
                let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
                self.trace.ops.intern_shape(LaunchShape { grid, block, registers, ..LaunchShape::default() })
            }
            None => ShapeId::default(),
        };
        let memory = columns.memory.map_or(Default::default(), |cells| {
            let [source, target] = cells.map(|at| memory_kind(cell(at)));
            // The one memory of a set is in the place of the source.
            if kind == OpKind::Set { (MemoryKind::Unknown, source) } else { (source, target) }
        });
        let size = |column: Option<(usize, i32)>| {
            column.and_then(|(at, power)| {
                let bytes = scaled(ungrouped(cell(at)).as_bytes(), power)?;
                Some((u64::try_from(bytes).ok()?, 10_u64.pow(power.unsigned_abs())))
            })
        };
        let op = GpuOp {
            kind,
            start: start_ns,
            end,
            name: self.trace.names.intern(text),
            device: self.device(cell(columns.device)),
            stream: ungrouped(cell(columns.stream)).parse().unwrap_or(0),
            process: self.process,
            correlation: ungrouped(cell(columns.correlation)).parse::<u64>().map_or(0, |id| id as u32),
            shape,
            bytes: bytes(size(columns.bytes), size(columns.rate), (end - start_ns) as u64),
            graph_node: 0,
            memory,
        };
        let losses = &mut self.trace.losses;
        losses.add(LossKind::TimeRounded, u64::from(is_rounded));
        losses.add(LossKind::NameCut, u64::from(is_cut(text)));
        losses.add(LossKind::NameMissing, u64::from(text.is_empty()));
        self.trace.ops.push(op);
        Some(())
    }

    /// Returns the device of a cell such as `NVIDIA H200 (0)`.
    fn device(&mut self, text: &str) -> DeviceId {
        if let Some(known) = self.devices.get(text) {
            return *known;
        }
        let numbered = text.strip_suffix(')').and_then(|text| text.rsplit_once('('));
        let numbered = numbered.and_then(|(name, number)| Some((name.trim(), number.parse().ok()?)));
        let (name, number) = numbered.unwrap_or((text, 0));
        let name = Some(name.to_owned()).filter(|name| !name.is_empty());
        let device = self.trace.add_device(Device { number, name, ..Device::default() });
        self.devices.insert(text.to_owned(), device);
        device
    }
}

/// Returns the size of a copy. It is rounded to a unit; the rate has more digits, and says the size where the two agree.
fn bytes(size: Option<(u64, u64)>, rate: Option<(u64, u64)>, duration_ns: u64) -> u64 {
    let Some((size, unit)) = size else {
        return 0;
    };
    // As nsys computes the rate.
    let each_second = 1_000_000_000_u64.checked_div(duration_ns).filter(|times| *times > 0);
    let exact = rate.zip(each_second).map(|((rate, _), times)| rate.saturating_add(times / 2) / times);
    exact.filter(|exact| exact.abs_diff(size) <= unit / 1_000).unwrap_or(size)
}

fn memory_kind(text: &str) -> MemoryKind {
    match text {
        "Pageable" => MemoryKind::Pageable,
        "Pinned" => MemoryKind::Pinned,
        "Device" | "Array" | "Device Static" => MemoryKind::Device,
        "Managed" | "Managed Static" => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
    }

    fn read_text(text: &str) -> Result<Trace, ReadError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        crate::read(&[file.path().to_path_buf()]).map(|input| input.trace)
    }

    /// Kind, times, name, stream, correlation, grid and block, bytes and memory of each operation.
    type Row<'t> = (OpKind, i64, i64, &'t str, u32, u32, [u32; 3], [u32; 3], (u64, (MemoryKind, MemoryKind)));

    fn rows(trace: &Trace) -> Vec<Row<'_>> {
        let ops = &trace.ops;
        let row = |i: usize| {
            let shape = ops.shape_of(i);
            let transfer =
                ops.transfers.get(&(i as u32)).map_or_else(Default::default, |t| (t.bytes, t.memory));
            let name = trace.names.get(ops.name[i]);
            let (stream, correlation) = (ops.stream[i], ops.correlation[i]);
            (
                ops.kind[i],
                ops.start[i],
                ops.end[i],
                name,
                stream,
                correlation,
                shape.grid,
                shape.block,
                transfer,
            )
        };
        let mut rows: Vec<_> = (0..ops.len()).map(row).collect();
        rows.sort_by_key(|row| (row.1, row.5));
        rows
    }

    /// The table that nsys makes of an export has the operations of the export.
    #[test]
    fn it_has_the_operations_of_the_export() {
        let export = crate::read(&[fixture("h200/llama4.sqlite.gz")]).unwrap().trace;
        let table = crate::read(&[fixture("nsys-stats/llama4_cuda_gpu_trace.csv.gz")]).unwrap().trace;
        assert_eq!(rows(&export), rows(&table));
        let device = (table.devices[0].number, table.devices[0].name.as_deref());
        assert_eq!((table.devices.len(), device), (1, (0, Some("NVIDIA H200"))));
        assert_eq!(table.losses.iter().map(|loss| loss.kind).collect::<Vec<_>>(), [LossKind::NoRuntime]);
        assert_eq!(table.sources[0].format, SourceFormat::GpuTrace);
    }

    /// Long names are cut, everything else is the same.
    #[test]
    fn text_in_columns_has_the_same_operations() {
        let table = crate::read(&[fixture("nsys-stats/llama4_cuda_gpu_trace.csv.gz")]).unwrap().trace;
        let text = crate::read(&[fixture("nsys-stats/llama4_printed.txt.gz")]).unwrap().trace;
        assert_eq!(text.ops.len(), 3_504);
        let cut = |name: &str| name.chars().count() > 100;
        for (text, table) in rows(&text).iter().zip(rows(&table)) {
            let same_name = match text.3.strip_suffix('\u{2026}') {
                Some(beginning) => cut(table.3) && table.3.starts_with(beginning),
                None => text.3 == table.3,
            };
            assert!(same_name, "{} {}", text.3, table.3);
            assert_eq!(
                (text.0, text.1, text.2, text.4, text.5, text.6, text.7, text.8),
                (table.0, table.1, table.2, table.4, table.5, table.6, table.7, table.8)
            );
        }
        let long = rows(&table).iter().filter(|row| cut(row.3)).count() as u64;
        assert!(long > 0 && text.losses.count(LossKind::NameCut) == long);
    }

    const HEADER: &str = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n";

    #[test]
    fn rows_of_earlier_releases() {
        let header = "Start(nsec),Duration(nsec),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem(B),DymSMem(B),Bytes(B),Thru(B/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name\n";
        let copy = "5,\"1,000\",\"1,007\",,,,,,,,,,4096,4096000000,Pinned,Device,Tesla V100 (1),1,7,[CUDA memcpy HtoD]\n";
        let trace = read_text(&format!("{header}{copy}")).unwrap();
        let transfer = trace.ops.transfers[&0];
        assert_eq!((trace.ops.kind[0], trace.ops.start[0], trace.ops.end[0]), (OpKind::Copy, 5, 1_005));
        assert_eq!(trace.ops.correlation, [1_007]);
        assert_eq!((transfer.bytes, transfer.memory), (4_096, (MemoryKind::Pinned, MemoryKind::Device)));
        assert_eq!((trace.devices[0].number, trace.devices[0].name.as_deref()), (1, Some("Tesla V100")));
    }

    #[test]
    fn a_size_that_contradicts_the_rate_is_taken_as_written() {
        assert_eq!(bytes(Some((0, 1_000_000)), Some((4_310_000, 1_000_000)), 928), 4);
        assert_eq!(bytes(Some((8_389_000, 1_000_000)), Some((1, 1_000_000)), 928), 8_389_000);
        assert_eq!(bytes(Some((8_389_000, 1_000_000)), None, 0), 8_389_000);
        assert_eq!(bytes(Some((8_389_000, 1_000_000)), Some((5, 1)), u64::MAX), 8_389_000);
        assert_eq!(bytes(None, Some((1, 1)), 1), 0);
    }

    #[test]
    fn damaged_rows_are_losses() {
        let good = "1,2,3,4,5,6,7,8,9,10,0.0,0.0,,,,,GPU (0),1,7,k\n";
        let losses = |text: &str| {
            let trace = read_text(&format!("{HEADER}{text}")).unwrap();
            let count = |kind| trace.losses.count(kind);
            (trace.ops.len(), count(LossKind::EventMalformed), count(LossKind::CaptureCut))
        };
        assert_eq!(losses(&good.repeat(2)), (2, 0, 0));
        assert_eq!(losses(&format!("{good}x{good}1,2\n{good}")), (2, 2, 0));
        assert_eq!(losses(&format!("{good}1,2,3,4,5,6,7")), (1, 1, 1));
        for (text, what) in [
            (HEADER.to_owned(), "the table has no rows"),
            (format!("{HEADER}a{good}"), "the table has no rows"),
            (
                format!("{HEADER}{good}1,2,3,4,5,6,7,8,9,10,0.0,0.0,,,,,GPU (0),1,7,\"k"),
                "a quote is not closed",
            ),
        ] {
            let error = read_text(&text).expect_err(what).to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
