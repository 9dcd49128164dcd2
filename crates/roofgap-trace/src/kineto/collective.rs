//! The collective that the framework attaches to a communication kernel.

use super::block_names::BlockNames;
use super::rows::{CollectiveRow, Filler};
use crate::decimal::unsigned;
use crate::model::group_label;
use crate::{Collective, Trace};

/// An argument of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name,
    InputElements,
    OutputElements,
    Dtype,
    GroupSize,
    Group,
    Description,
    Sequence,
    Peer,
}

/// The arguments of a collective, as they are written.
#[derive(Debug, Default)]
pub struct CollectiveText<'a> {
    name: Option<&'a [u8]>,
    input_elements: Option<&'a [u8]>,
    output_elements: Option<&'a [u8]>,
    dtype: Option<&'a [u8]>,
    group_size: Option<&'a [u8]>,
    group: Option<&'a [u8]>,
    description: Option<&'a [u8]>,
    sequence: Option<&'a [u8]>,
    peer: Option<&'a [u8]>,
}

impl<'a> CollectiveText<'a> {
    /// Returns the field of a key.
    #[inline(always)]
    pub fn field(key: &[u8]) -> Option<Field> {
        Some(match key {
            b"Collective name" => Field::Name,
            b"In msg nelems" => Field::InputElements,
            b"Out msg nelems" => Field::OutputElements,
            b"dtype" => Field::Dtype,
            b"Group size" => Field::GroupSize,
            b"Process Group Name" => Field::Group,
            b"Process Group Description" => Field::Description,
            b"Seq" => Field::Sequence,
            // A send names its target and a receive its source.
            b"Src Rank" | b"Dst Rank" => Field::Peer,
            _ => return None,
        })
    }

    pub fn set(&mut self, field: Field, value: Option<&'a [u8]>) {
        *match field {
            Field::Name => &mut self.name,
            Field::InputElements => &mut self.input_elements,
            Field::OutputElements => &mut self.output_elements,
            Field::Dtype => &mut self.dtype,
            Field::GroupSize => &mut self.group_size,
            Field::Group => &mut self.group,
            Field::Description => &mut self.description,
            Field::Sequence => &mut self.sequence,
            Field::Peer => &mut self.peer,
        } = value;
    }

    /// Keeps it for the operation that is added next.
    pub fn keep(&self, filler: &mut Filler<'a, '_>) {
        let Some(name) = self.name.filter(|name| !name.is_empty()) else {
            return;
        };
        let element = self.dtype.and_then(element_bytes);
        let bytes = |elements: Option<&[u8]>| unsigned(elements?)?.checked_mul(element?);
        let row = CollectiveRow {
            name: filler.name(name),
            group: self.group.map(|group| filler.name(group)),
            description: self.description.map(|text| filler.name(text)),
            group_size: self
                .group_size
                .and_then(unsigned)
                .and_then(|size| u32::try_from(size).ok())
                .unwrap_or(0),
            input_bytes: bytes(self.input_elements),
            output_bytes: bytes(self.output_elements),
            sequence: self.sequence.and_then(unsigned),
            peer: self.peer.and_then(unsigned).and_then(|rank| u32::try_from(rank).ok()),
        };
        let op = filler.rows.ops.len();
        filler.rows.collectives.push((op, row));
    }
}

impl CollectiveRow {
    /// Resolves the names of the block.
    pub fn resolve(&self, names: &mut BlockNames<'_>, trace: &mut Trace) -> Collective {
        let group = self.group.map_or("", |group| names.text(group));
        let described = self.description.map_or("", |text| names.text(text));
        Collective {
            group: trace.names.intern(&group_label(group, described)),
            name: names.get(self.name, trace),
            group_size: self.group_size,
            input_bytes: self.input_bytes,
            output_bytes: self.output_bytes,
            sequence: self.sequence,
            peer: self.peer,
        }
    }
}

/// Returns the size of an element of a type as PyTorch names it.
fn element_bytes(dtype: &[u8]) -> Option<u64> {
    Some(match dtype {
        b"Byte" | b"Char" | b"Bool" | b"QInt8" | b"QUInt8" => 1,
        b"Float8_e5m2" | b"Float8_e4m3fn" | b"Float8_e5m2fnuz" | b"Float8_e4m3fnuz" | b"Float8_e8m0fnu" => 1,
        b"Short" | b"UInt16" | b"Half" | b"BFloat16" => 2,
        b"Int" | b"UInt32" | b"Float" | b"ComplexHalf" | b"QInt32" => 4,
        b"Long" | b"UInt64" | b"Double" | b"ComplexFloat" => 8,
        b"ComplexDouble" => 16,
        _ => return None,
    })
}
