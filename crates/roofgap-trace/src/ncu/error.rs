//! Errors that prevent counters from being read. Partial losses are a [`super::Loss`].

/// Why an ncu input could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NcuError {
    /// The input could not be read.
    #[error("reading {what}")]
    Io {
        /// Input being read.
        what: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A CSV record could not be split.
    #[error("splitting a record of the ncu CSV page")]
    Csv(#[source] csv::Error),
    /// No line of the input is the header of an ncu page.
    #[error(
        "looking for the header of an ncu CSV page: no line begins with the column ID; \
         export one with `ncu --import FILE --page raw --csv --print-units base`"
    )]
    NoHeader,
    /// A page of ncu, but not the one asked for.
    #[error("reading ncu's {wanted} page: {found}; export it with `ncu --import FILE --page {wanted} --csv`")]
    OtherPage {
        /// The page that was asked for.
        wanted: &'static str,
        /// Content of the header.
        found: &'static str,
    },
    /// One line is too long to be of ncu.
    #[error("reading an ncu CSV page: a line is longer than {limit} bytes, so this is no such page")]
    LineTooLong {
        /// The longest line accepted.
        limit: usize,
    },
    /// The last row of a page is not whole.
    #[error(
        "reading an ncu CSV page: it breaks off in the middle of a row; \
         export it again with `ncu --import FILE --page raw --csv --print-units base`"
    )]
    Cut,
    /// The file does not begin as a report.
    #[error("reading an ncu report: it does not begin with the letters NVR")]
    NotAReport,
    /// The report breaks off or breaks its own format.
    #[error(
        "reading an ncu report at byte {offset}: {problem}; copy it again, or, if the file is whole, read the page \
         that `ncu --import FILE --page raw --csv --print-units base` prints instead"
    )]
    BadReport {
        /// Offset in the file, bytes.
        offset: u64,
        /// Description of the damage.
        problem: String,
    },
    /// Nothing was profiled.
    #[error("reading ncu's counters: no launch is in it; `No kernels were profiled` also ends with status 0")]
    NoLaunches,
}
