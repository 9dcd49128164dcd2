//! The text of a file in blocks, cut where an event probably begins.

use super::rows::Rows;
use memchr::memrchr;
use roofgap_base::file::Unpacked;
use std::io::{self, Read};
use std::path::Path;

/// Room for a piece of text, and for the rows that are read from it.
#[derive(Debug)]
pub struct Block {
    room: Vec<u8>,
    length: usize,
    pub rows: Rows,
}

impl Block {
    pub fn new(size: usize) -> Self {
        Self { room: vec![0; size.max(1)], length: 0, rows: Rows::default() }
    }

    /// Returns the text.
    pub fn text(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Returns the text and the target of its rows.
    pub fn split(&mut self) -> (&[u8], &mut Rows) {
        (&self.room[..self.length], &mut self.rows)
    }
}

/// A file as text, unpacked where it is compressed.
pub struct Blocks {
    input: Unpacked,
    /// Bytes read after the end of the last block.
    carry: Vec<u8>,
    ended: bool,
}

impl Blocks {
    /// Opens a file, compressed or not.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { input: Unpacked::open(path)?, carry: Vec::new(), ended: false })
    }

    /// Tells whether the file is compressed.
    pub fn is_packed(&self) -> bool {
        self.input.is_packed()
    }

    /// Fills a block with the text that follows; `false` when there is none left.
    pub fn next(&mut self, block: &mut Block) -> io::Result<bool> {
        block.length = 0;
        if self.ended {
            return Ok(false);
        }
        let carried = self.carry.len();
        if let Some(start) = block.room.get_mut(..carried) {
            start.copy_from_slice(&self.carry);
            block.length = carried;
        }
        self.carry.clear();
        while let Some(free) = block.room.get_mut(block.length..).filter(|free| !free.is_empty()) {
            match self.input.read(free) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(true);
                }
                Ok(count) => block.length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if let Some((cut, rest)) =
            last_cut(block.text()).and_then(|cut| Some((cut, block.text().get(cut..)?)))
        {
            self.carry.extend_from_slice(rest);
            block.length = cut;
        }
        Ok(true)
    }
}

/// Finds the likely start of the last event: a brace before a quote, after a brace and a comma. The guess may be inside an
/// event. The reader of the text before it confirms the guess by ending there.
fn last_cut(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let at = memrchr(b'{', text.get(..end)?)?;
        let before = text.get(..at)?.trim_ascii_end();
        let after = text.get(at + 1..)?.trim_ascii_start();
        if after.first() == Some(&b'"')
            && before.strip_suffix(b",").is_some_and(|b| b.trim_ascii_end().ends_with(b"}"))
        {
            return Some(at);
        }
        end = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_is_before_the_last_event() {
        let text = br#"[{"a": 1}, {"b": "{lambda}"} ,
          {"ph": "X", "args": {"x": {}}"#;
        let cut = last_cut(text).unwrap();
        assert!(text[cut..].starts_with(br#"{"ph""#));
        assert_eq!(last_cut(br#"{"a": [1, {"b"#), None);
        assert_eq!(last_cut(b""), None);
        assert_eq!(last_cut(b"{"), None);
    }

    #[test]
    fn the_blocks_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let content = r#"[{"ph": "X"}, {"ph": "Y", "args": {"a": 1}}, {"ph": "Z"}]"#.repeat(3);
        std::fs::write(&path, &content).unwrap();
        for size in 1..content.len() + 2 {
            let mut blocks = Blocks::open(&path).unwrap();
            let mut block = Block::new(size);
            let mut read = Vec::new();
            while blocks.next(&mut block).unwrap() {
                read.extend_from_slice(block.text());
            }
            assert_eq!(read, content.as_bytes(), "in blocks of {size}");
        }
    }
}
