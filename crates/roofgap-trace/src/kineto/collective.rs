//! The collective that the framework attaches to a communication kernel.

use super::cursor::decode;
use super::rows::Filler;
use crate::decimal::unsigned;
use crate::model::group_label;
use crate::{Collective, NameId};

/// The arguments of a collective, as they are written.
#[derive(Debug, Default)]
pub struct CollectiveText<'a>([Option<&'a [u8]>; 9]);

impl<'a> CollectiveText<'a> {
    /// Returns the position of a key.
    #[inline(always)]
    pub fn field(key: &[u8]) -> Option<usize> {
        Some(match key {
            b"Collective name" => 0,
            b"In msg nelems" => 1,
            b"Out msg nelems" => 2,
            b"dtype" => 3,
            b"Group size" => 4,
            b"Process Group Name" => 5,
            b"Process Group Description" => 6,
            b"Seq" => 7,
            // A send names its target and a receive its source.
            b"Src Rank" | b"Dst Rank" => 8,
            _ => return None,
        })
    }

    pub fn set(&mut self, field: usize, value: Option<&'a [u8]>) {
        self.0[field] = value;
    }

    /// Keeps it, with names of the block, for the operation that is added next.
    pub fn keep(&self, filler: &mut Filler<'a, '_>) {
        let [name, input, output, dtype, group_size, group, description, sequence, peer] = self.0;
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return;
        };
        let element = dtype.and_then(element_bytes);
        let bytes = |elements: Option<&[u8]>| unsigned(elements?)?.checked_mul(element?);
        let small = |text: Option<&[u8]>| u32::try_from(unsigned(text?)?).ok();
        let [group, description] = [group, description].map(|text| decode(text.unwrap_or_default()));
        let collective = Collective {
            name: NameId(filler.name(name)),
            group: NameId(filler.composed(group_label(&group, &description))),
            group_size: small(group_size).unwrap_or(0),
            input_bytes: bytes(input),
            output_bytes: bytes(output),
            sequence: sequence.and_then(unsigned),
            peer: small(peer),
        };
        let op = filler.rows.ops.len();
        filler.rows.collectives.push((op, collective));
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
