//! A metric of a stage over commits, days, drivers or other properties of runs, and its regressions.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};

use crate::LakeError;
use crate::query::saved::{Query, fill};
use crate::query::{Answer, Engine};

/// Metrics of a stage: column and unit.
pub const METRICS: [(&str, &str); 12] = [
    ("token_ns", "ns"),
    ("tokens_per_s", "tokens/s"),
    ("elapsed_ns", "ns"),
    ("mean_ns", "ns"),
    ("wall_ns", "ns"),
    ("busy_ns", "ns"),
    ("kernel_ns", "ns"),
    ("kernel_count", "kernels"),
    ("launch_count", "launches"),
    ("mfu_pct", "%"),
    ("mbu_pct", "%"),
    ("roof_pct", "%"),
];

/// A property of runs that a trend runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Commit of the profiled program
    Commit,
    /// Date
    Date,
    /// GPU driver
    Driver,
    /// Version of the serving engine
    EngineVersion,
    /// Host
    Host,
}

impl By {
    /// Returns the column of `runs`.
    fn column(self) -> &'static str {
        match self {
            Self::Commit => "git_commit",
            Self::Date => "date",
            Self::Driver => "driver",
            Self::EngineVersion => "engine_version",
            Self::Host => "host",
        }
    }
}

/// The question of a trend.
#[derive(Debug, Clone, Args)]
pub struct TrendProps {
    /// Metric: a column of the table stages, such as token_ns, elapsed_ns or mfu_pct
    pub metric: String,
    /// Stage
    #[arg(long, default_value = "decode")]
    pub stage: String,
    /// Property of runs
    #[arg(long, value_enum, default_value_t = By::Commit)]
    pub by: By,
    /// First date, YYYY-MM-DD
    #[arg(long)]
    pub since: Option<String>,
    /// Model
    #[arg(long)]
    pub model: Option<String>,
    /// Project
    #[arg(long)]
    pub project: Option<String>,
}

/// Answers with one row for each project, model, GPU and value of the property, in the order of the first run. The last column is the
/// mean of the metric over runs.
pub fn trend(engine: &Engine, props: &TrendProps) -> Result<Answer, LakeError> {
    let metric = props.metric.as_str();
    if !METRICS.iter().any(|(name, _)| *name == metric) {
        let known = METRICS.map(|(name, _)| name).join(", ");
        return Err(LakeError::Usage(format!("no metric {metric:?}; the metrics are {known}")));
    }
    let by = props.by.column();
    let sql = format!(
        "SELECT r.project, r.model, r.gpu, r.{by} AS {by}, COUNT(*) AS runs, \
         CAST(MIN(s.{metric}) AS DOUBLE) AS least, CAST(MAX(s.{metric}) AS DOUBLE) AS most, \
         AVG(CAST(s.{metric} AS DOUBLE)) AS {metric} \
         FROM stages s JOIN runs r ON r.run_key = s.run_key \
         WHERE s.stage = {{{{stage:decode}}}} AND s.date >= {{{{since:1970-01-01}}}} AND r.date >= {{{{since:1970-01-01}}}} \
         AND ({{{{model:}}}} = '' OR r.model = {{{{model:}}}}) AND ({{{{project:}}}} = '' OR r.project = {{{{project:}}}}) \
         AND s.{metric} IS NOT NULL AND r.{by} IS NOT NULL \
         GROUP BY r.project, r.model, r.gpu, r.{by} \
         ORDER BY r.project, r.model NULLS LAST, r.gpu NULLS LAST, MIN(r.date), MIN(r.started_at) NULLS LAST, r.{by}"
    );
    let given = [
        ("stage", Some(&props.stage)),
        ("since", props.since.as_ref()),
        ("model", props.model.as_ref()),
        ("project", props.project.as_ref()),
    ];
    let given = given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.clone())));
    engine.query(&fill(&sql, &given.collect())?)
}

/// Change points of all series, by the saved query `regressions`, which states the method. Changes for the worse come first.
#[derive(Debug)]
pub struct Regressions {
    /// Rows of the query.
    pub answer: Answer,
    /// Number of rows that became slower.
    pub worse: usize,
}

/// Finds commits at which a stage became slower or faster.
pub fn regressions(engine: &Engine, given: &BTreeMap<String, String>) -> Result<Regressions, LakeError> {
    let answer = engine.query(&fill(Query::required("regressions")?.text, given)?)?;
    let column = answer.names().iter().position(|name| *name == "change_pct");
    let changes = column.map_or_else(|| Ok(Vec::new()), |column| answer.numbers(column))?;
    let worse = changes.iter().flatten().filter(|change| **change > 0.0).count();
    Ok(Regressions { answer, worse })
}
