//! Reads gzip files, with a limit on their growth.

use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Growth limit of large files. Captures grow 3 to 40 times.
const MOST_GROWTH: u64 = 200;

/// Size below which growth is not limited, bytes.
const SMALL: u64 = 64 << 20;

/// Content of a gzip file. Reading fails with `FileTooLarge` when it grows beyond the limit.
pub struct Unpacked {
    decoder: MultiGzDecoder<Counted>,
    /// Number of bytes returned.
    given: u64,
}

/// A buffered file that counts the bytes read.
struct Counted {
    file: BufReader<File>,
    read: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.read += amount as u64;
        self.file.consume(amount);
    }
}

impl Unpacked {
    /// Opens a gzip file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = BufReader::with_capacity(1 << 18, File::open(path)?);
        Ok(Self { decoder: MultiGzDecoder::new(Counted { file, read: 0 }), given: 0 })
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.given += count as u64;
        if self.given > SMALL && self.given / self.decoder.get_ref().read.max(1) > MOST_GROWTH {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!(
                    "the compressed data grows more than {MOST_GROWTH} times, which no capture does; \
                     unpack it to read it all the same"
                ),
            ));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zeros(megabytes: usize, each: &[u8]) -> io::Result<u64> {
        let mut file = tempfile::NamedTempFile::new()?;
        let mut encoder = flate2::write::GzEncoder::new(&mut file, flate2::Compression::best());
        for _ in 0..megabytes {
            encoder.write_all(&[0; 1 << 20])?;
            encoder.write_all(each)?;
        }
        encoder.finish()?;
        io::copy(&mut Unpacked::open(file.path())?, &mut io::sink())
    }

    #[test]
    fn growth_beyond_reason_ends_the_reading() {
        let error = zeros(100, b"").unwrap_err();
        assert!(error.to_string().contains("grows more than 200 times"), "{error}");
    }

    #[test]
    fn what_is_small_or_dense_enough_is_read_whole() {
        assert_eq!(zeros(20, b"").unwrap(), 20 << 20);
        let mut noise: u32 = 1;
        let dense: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(8 << 10)
        .collect();
        assert_eq!(zeros(80, &dense).unwrap(), 80 * ((1 << 20) + (8 << 10)));
    }
}
