//! Prints the records of a native capture, one a line, and how it ended: `cargo run --example dump -- FILE`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::fs::File;
use std::io::BufReader;

use roofgap_inject::wire::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("name a file")?;
    let mut reader = Reader::open(BufReader::new(File::open(path)?))?;
    println!("{:?}", reader.header());
    while let Some(records) = reader.next_frame()? {
        for record in records {
            println!("{record:?}");
        }
    }
    println!("{:?}", reader.ending());
    Ok(())
}
