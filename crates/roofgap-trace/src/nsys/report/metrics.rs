//! Sampled hardware counters: events whose fields the header of the report describes.

use super::container::{ReportFault, Strings};
use crate::protobuf::{Fields, Malformed, Wire, messages, number};
use crate::sqlite::Value;

/// Name of the source of these events.
const SOURCE: &[u8] = b"GpuMetrics";

/// Bits of the number of a type that name its source.
const SOURCE_BITS: u64 = !0xffff_ffff;

/// Values of `GenericEventField.Type`.
const SIGNED: u64 = 1;
const FLOAT: u64 = 2;

/// The types of samples.
pub struct Metrics {
    types: Vec<(u64, Vec<Metric>)>,
}

/// A value of a sample.
struct Metric {
    name: Vec<u8>,
    offset: usize,
    size: usize,
    form: u64,
}

impl Metrics {
    /// Reads the types in the header of the events.
    pub fn read(header: &[u8], strings: &Strings) -> Result<Self, ReportFault> {
        let mut sources = Vec::new();
        for source in messages(header, 13)? {
            if number(source, 3)?.and_then(|name| strings.get(name)) == Some(SOURCE) {
                sources.push(number(source, 1)?.unwrap_or(0));
            }
        }
        let mut types = Vec::new();
        for kind in messages(header, 14)? {
            let id = number(kind, 1)?.unwrap_or(0);
            if sources.contains(&(id & SOURCE_BITS)) {
                let metrics = messages(kind, 3)?.into_iter().map(|field| Metric::read(field, strings));
                types.push((id, metrics.collect::<Result<_, _>>()?));
            }
        }
        Ok(Self { types })
    }

    /// Steps through the metrics of all types: type, number, name.
    pub fn names(&self, mut row: impl FnMut(&[Value<'_>])) {
        for (id, metrics) in &self.types {
            for (number, metric) in metrics.iter().enumerate() {
                row(&[Value::Int(*id as i64), Value::Int(number as i64), Value::Text(&metric.name)]);
            }
        }
    }

    /// Steps through the values of samples: time, type, number, value.
    pub fn values(&self, events: &[u8], mut row: impl FnMut(&[Value<'_>])) -> Result<(), Malformed> {
        let mut cursor = Fields::new(events);
        while !cursor.is_empty() {
            let (mut id, mut at, mut data) = (0, 0, &b""[..]);
            for field in Fields::new(cursor.delimited()?) {
                match field? {
                    (1, Wire::Varint(value)) => id = value,
                    (2, Wire::Varint(time)) => at = time as i64,
                    (3, Wire::Bytes(bytes)) => data = bytes,
                    _ => {}
                }
            }
            let metrics = self.types.iter().find(|(known, _)| *known == id).map(|(_, metrics)| metrics);
            for (number, metric) in metrics.into_iter().flatten().enumerate() {
                row(&[Value::Int(at), Value::Int(id as i64), Value::Int(number as i64), metric.value(data)]);
            }
        }
        Ok(())
    }
}

impl Metric {
    fn read(field: &[u8], strings: &Strings) -> Result<Self, Malformed> {
        let size = |wanted| -> Result<usize, Malformed> {
            Ok(usize::try_from(number(field, wanted)?.unwrap_or(0)).unwrap_or(usize::MAX))
        };
        Ok(Self {
            name: number(field, 1)?.and_then(|id| strings.get(id)).unwrap_or_default().to_vec(),
            offset: size(2)?,
            size: size(3)?,
            // Field 4 said before version 2023 that a number is signed.
            form: number(field, 8)?.or(number(field, 4)?).unwrap_or(0),
        })
    }

    fn value<'a>(&self, data: &[u8]) -> Value<'a> {
        let bytes = data.get(self.offset..).and_then(|rest| rest.get(..self.size));
        let Some(bytes) = bytes.filter(|bytes| (1..=8).contains(&bytes.len())) else {
            return Value::Null;
        };
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let unused = 64 - 8 * bytes.len() as u32;
        match (self.form, bytes.len()) {
            (FLOAT, 4) => Value::Real(f64::from(f32::from_bits(number as u32))),
            (FLOAT, _) => Value::Real(f64::from_bits(number)),
            (SIGNED, _) => Value::Int((number << unused) as i64 >> unused),
            _ => Value::Int(number as i64),
        }
    }
}
