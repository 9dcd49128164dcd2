//! `roofgap-lake`: arguments, printing and exit statuses.

use std::io::{ErrorKind, IsTerminal as _, Write as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use roofgap_base::exit::Exit;
use roofgap_base::file::write_atomic;
use roofgap_base::text::lines_without_controls;
use roofgap_lake::LakeError;
use roofgap_lake::check::check;
use roofgap_lake::compact::{Limits, compact};
use roofgap_lake::ingest::{AddProps, Added, Outcome, add};
use roofgap_lake::page::{answer_page, fleet_page};
use roofgap_lake::query::answer::bars;
use roofgap_lake::query::saved::{Query, fill, parameters};
use roofgap_lake::query::{Answer, Engine};
use roofgap_lake::store::Store;
use roofgap_lake::tables::markdown;
use roofgap_lake::trend::{TrendProps, regressions, trend};
use terminal_size::{Width, terminal_size};

/// Collect many runs as Parquet tables, and ask questions about them.
#[derive(Debug, Parser)]
#[command(name = "roofgap-lake", bin_name = "roofgap lake", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add run directories and captures; an input that is in the lake is skipped
    Add(Add),
    /// Answer a saved query, SQL, or a file with SQL
    Query(Ask),
    /// List the saved queries, or show one
    Queries {
        /// Query to show: its text, parameters and columns
        name: Option<String>,
    },
    /// Show a metric of a stage over commits or other properties of runs
    Trend(Trend),
    /// Find commits at which a stage became slower; exits with 5 if there is one
    Regress(Regress),
    /// Write a page about the fleet
    Report {
        /// Page to write
        out: PathBuf,
        #[command(flatten)]
        lake: Lake,
    },
    /// Merge the small files of each partition
    Compact {
        #[command(flatten)]
        lake: Lake,
    },
    /// Check every file; exits with 3 if answers are affected
    Check {
        #[command(flatten)]
        lake: Lake,
        /// Read footers only, not the rows
        #[arg(long)]
        quick: bool,
    },
    /// Describe the tables as Markdown
    Schema,
}

#[derive(Debug, Args)]
struct Lake {
    /// Lake: a folder or s3://BUCKET/PREFIX
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    lake: String,
}

#[derive(Debug, Args)]
struct Add {
    #[command(flatten)]
    props: AddProps,
    /// Lake: a folder or s3://BUCKET/PREFIX; created where it is missing
    #[arg(long, value_name = "LAKE", env = "ROOFGAP_LAKE")]
    to: String,
    /// Print one JSON object for each input
    #[arg(long)]
    json: bool,
}

/// Format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// Array of objects
    Json,
    /// Comma-separated values
    Csv,
    /// Parquet file; a terminal needs --output
    Parquet,
    /// Bars of the last column of numbers
    Chart,
    /// Page
    Html,
}

#[derive(Debug, Args)]
struct Output {
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Ask {
    /// Name of a saved query, SQL, or FILE.sql
    query: String,
    #[command(flatten)]
    lake: Lake,
    #[command(flatten)]
    output: Output,
    /// Parameter of the query, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// CSV file with the columns gpu and price_per_hour: the table `prices`
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Trend {
    #[command(flatten)]
    props: TrendProps,
    #[command(flatten)]
    lake: Lake,
    /// Format
    #[arg(long, value_enum, default_value_t = Format::Chart)]
    format: Format,
    /// File to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Regress {
    #[command(flatten)]
    lake: Lake,
    #[command(flatten)]
    output: Output,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    since: Option<String>,
    /// Parameter of the saved query `regressions`, NAME=VALUE; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    param: Vec<String>,
}

fn main() -> ExitCode {
    let exit = match Arguments::try_parse() {
        Ok(arguments) => run(arguments.command).unwrap_or_else(|error| {
            print_error(&error);
            error.exit()
        }),
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() { Exit::Usage } else { Exit::Done }
        }
    };
    ExitCode::from(exit.code())
}

fn run(command: Command) -> Result<Exit, LakeError> {
    match command {
        Command::Add(args) => run_add(args),
        Command::Query(args) => {
            let title = args.query.clone();
            let sql = fill(&sql(&args.query)?, &parameters(&args.param)?)?;
            let engine = Engine::open(&Store::open(&args.lake.lake)?, args.prices.as_deref())?;
            deliver(&engine.query(&sql)?, args.output.format, args.output.output.as_deref(), &title)?;
            Ok(Exit::Done)
        }
        Command::Queries { name } => run_queries(name.as_deref()),
        Command::Trend(args) => {
            let engine = Engine::open(&Store::open(&args.lake.lake)?, None)?;
            let title = format!("{} of {}", args.props.metric, args.props.stage);
            deliver(&trend(&engine, &args.props)?, args.format, args.output.as_deref(), &title)?;
            Ok(Exit::Done)
        }
        Command::Regress(args) => {
            let mut given = parameters(&args.param)?;
            given.extend(args.since.map(|since| ("since".to_owned(), since)));
            let engine = Engine::open(&Store::open(&args.lake.lake)?, None)?;
            let found = regressions(&engine, &given)?;
            deliver(&found.answer, args.output.format, args.output.output.as_deref(), "Changes at commits")?;
            Ok(if found.worse > 0 { Exit::GateBroken } else { Exit::Done })
        }
        Command::Report { out, lake } => {
            let engine = Engine::open(&Store::open(&lake.lake)?, None)?;
            save(&out, fleet_page(&engine, &lake.lake)?.as_bytes())?;
            print(&format!("page: {}\n", out.display()))?;
            Ok(Exit::Done)
        }
        Command::Compact { lake } => {
            let done = compact(&Store::open(&lake.lake)?, Limits::default())?;
            let (written, replaced, rows) = (done.written, done.replaced, done.rows);
            print(&format!("{written} merged files with {rows} rows replace {replaced} files\n"))?;
            Ok(Exit::Done)
        }
        Command::Check { lake, quick } => run_check(&lake.lake, quick),
        Command::Schema => {
            print(&markdown())?;
            Ok(Exit::Done)
        }
    }
}

/// Returns the text of a saved query, of a file, or the SQL itself.
fn sql(query: &str) -> Result<String, LakeError> {
    if query.ends_with(".sql") {
        let text = roofgap_base::file::read_text(Path::new(query));
        return text.map_err(|source| LakeError::store("read", query, source));
    }
    if query.contains(char::is_whitespace) {
        return Ok(query.to_owned());
    }
    Query::required(query).map(|query| query.text.to_owned())
}

fn run_add(args: Add) -> Result<Exit, LakeError> {
    let store = Store::create(&args.to)?;
    let each = |added: &Added| {
        let line = if args.json { json_line(added) } else { text_line(added) };
        // The lake is what matters; a closed pipe does not stop the work.
        let _ = print(&line);
    };
    let added = add(&store, &args.props, &each)?;
    let failed = added.iter().filter(|added| matches!(added.outcome, Outcome::Unreadable(_))).count();
    Ok(match failed {
        0 => Exit::Done,
        failed if failed == added.len() => Exit::Usage,
        _ => Exit::Partial,
    })
}

fn text_line(added: &Added) -> String {
    let (key, source) = (&added.key, added.source.display());
    lines_without_controls(&match &added.outcome {
        Outcome::Added => format!("added    {key}  {source}\n"),
        Outcome::Present => format!("present  {key}  {source}\n"),
        Outcome::Unreadable(why) => format!("failed   {key}  {source}: {why}\n"),
    })
    .into_owned()
}

fn json_line(added: &Added) -> String {
    let (status, error) = match &added.outcome {
        Outcome::Added => ("added", None),
        Outcome::Present => ("present", None),
        Outcome::Unreadable(why) => ("failed", Some(why)),
    };
    let line = serde_json::json!({
        "source": added.source.display().to_string(),
        "run_key": added.key,
        "status": status,
        "error": error,
    });
    format!("{line}\n")
}

fn run_queries(name: Option<&str>) -> Result<Exit, LakeError> {
    let Some(name) = name else {
        let width = Query::all().map(|query| query.name.len()).max().unwrap_or(0);
        let line = |query: Query| format!("{:<width$}  {}\n", query.name, query.title());
        print(&Query::all().map(line).collect::<String>())?;
        return Ok(Exit::Done);
    };
    print(Query::required(name)?.text)?;
    Ok(Exit::Done)
}

fn run_check(address: &str, quick: bool) -> Result<Exit, LakeError> {
    let checked = check(&Store::open(address)?, quick)?;
    let mut text = String::new();
    for (table, rows) in &checked.rows {
        text.push_str(&format!("{table:<14} {rows:>12} rows\n"));
    }
    for problem in &checked.problems {
        text.push_str(&format!("{:<10} {}: {}\n", problem.kind, problem.path, problem.why));
    }
    let damage = checked.problems.iter().filter(|problem| problem.kind.is_damage()).count();
    let (files, problems) = (checked.files, checked.problems.len());
    text.push_str(&format!("{files} files, {problems} problems, {damage} of which affect answers\n"));
    print(&lines_without_controls(&text))?;
    Ok(if checked.is_damaged() { Exit::Partial } else { Exit::Done })
}

/// Width of a chart that does not go to a terminal.
const WIDTH: usize = 100;

/// Prints an error on stderr.
fn print_error(error: &LakeError) {
    let _ = writeln!(stderr(), "error: {}", lines_without_controls(&error.to_string()));
}

/// Prints an answer. A reader that closed the pipe has seen enough.
fn print(text: &str) -> Result<(), LakeError> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<(), LakeError> {
    let mut out = stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(LakeError::Stdout(error)),
        _ => Ok(()),
    }
}

/// Writes a file.
fn save(path: &Path, bytes: &[u8]) -> Result<(), LakeError> {
    write_atomic(path, bytes).map_err(|source| LakeError::store("write", path.display().to_string(), source))
}

/// Prints or saves an answer.
fn deliver(answer: &Answer, format: Format, output: Option<&Path>, title: &str) -> Result<(), LakeError> {
    if !fits(format, output, stdout().is_terminal()) {
        let why = "Parquet is not text: give a file with --output, or send the answer into a pipe";
        return Err(LakeError::Usage(why.to_owned()));
    }
    let width = terminal_size().map_or(WIDTH, |(Width(width), _)| width.into());
    let bytes = match format {
        Format::Table => lines_without_controls(&answer.table()?).into_owned().into_bytes(),
        Format::Json => answer.json()?,
        Format::Csv => answer.csv()?,
        Format::Parquet => answer.parquet()?,
        Format::Chart => lines_without_controls(&bars(answer, width)?).into_owned().into_bytes(),
        Format::Html => answer_page(title, answer)?.into_bytes(),
    };
    match output {
        Some(path) => save(path, &bytes),
        None => print_bytes(&bytes),
    }
}

/// Tells whether an answer may be written: a terminal cannot show Parquet.
fn fits(format: Format, output: Option<&Path>, is_terminal: bool) -> bool {
    format != Format::Parquet || output.is_some() || !is_terminal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parquet_never_goes_to_a_terminal() {
        let file = Some(Path::new("answer.parquet"));
        assert!(!fits(Format::Parquet, None, true));
        assert!(fits(Format::Parquet, None, false));
        assert!(fits(Format::Parquet, file, true));
        assert!(fits(Format::Json, None, true));
    }
}
