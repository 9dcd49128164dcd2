//! `roofgap-lake`: arguments, printing and exit statuses.

mod args;
mod output;

use std::path::Path;
use std::process::ExitCode;

use args::{Arguments, Command};
use clap::Parser as _;
use output::{deliver, print, print_error};
use roofgap_base::exit::Exit;
use roofgap_base::text::lines_without_controls;
use roofgap_lake::check::check;
use roofgap_lake::compact::{Limits, compact};
use roofgap_lake::error::LakeError;
use roofgap_lake::ingest::{Added, Outcome, add};
use roofgap_lake::page::fleet_page;
use roofgap_lake::query::Engine;
use roofgap_lake::query::saved::{Query, fill, parameters};
use roofgap_lake::store::Store;
use roofgap_lake::tables::markdown;
use roofgap_lake::trend::{regressions, trend};

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
            output::save(&out, fleet_page(&engine, &lake.lake)?.as_bytes())?;
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

fn run_add(args: args::Add) -> Result<Exit, LakeError> {
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
