//! Saved queries find what is planted; formats, parameters, trend, regress and report.

use crate::support::{TestLake, answer, ok, run};
use roofgap_lake::query::saved::Query;
use serde_json::Value;

const EXTENT: [&str; 6] = ["--runs", "288", "--days", "6", "--hosts", "4"];

fn close(value: &Value, expected: &Value, within: f64) -> bool {
    (value.as_f64().unwrap() - expected.as_f64().unwrap()).abs() < within
}

#[test]
fn saved_queries_find_what_is_planted() {
    let (lake, planted) = TestLake::synthetic(&EXTENT);
    assert_eq!((lake.count("runs"), lake.count("stages")), (288, 2880));
    let engine = lake.engine();
    let ask = |name: &str| match answer(&engine, Query::named(name).unwrap()) {
        Value::Array(rows) => rows,
        other => panic!("{other}"),
    };

    let slow = &planted["regression"];
    let changes = ask("regressions");
    // Each GPU has a series with labels and one without.
    let gpus: std::collections::BTreeSet<_> = changes.iter().map(|change| change["gpu"].as_str()).collect();
    assert_eq!(gpus.len(), 2, "{changes:#?}");
    for change in &changes {
        for column in ["project", "model", "stage", "git_commit"] {
            assert_eq!(change[column], slow[column], "{column}");
        }
        assert!(close(&change["change_pct"], &slow["change_pct"], 3.0), "{change}");
    }

    // A larger batch is other work.
    let larger = &planted["batch_change"];
    let ratio = lake.ask(&format!(
        "select avg(case when r.batch = {0} then s.mean_ns end) / avg(case when r.batch <> {0} then s.mean_ns end) as ratio \
         from stages s join runs r on r.run_key = s.run_key where s.stage = 'decode' and r.project = {1} and r.model = {2}",
        larger["batch"],
        larger["project"].to_string().replace('"', "'"),
        larger["model"].to_string().replace('"', "'"),
    ));
    assert!(close(&ratio[0]["ratio"], &serde_json::json!(1.5), 0.05), "{ratio:?}");
    let is_larger = |row: &&Value| row["project"] == larger["project"] && row["model"] == larger["model"];
    assert_eq!(changes.iter().find(is_larger), None);

    let hosts = ask("slow-hosts");
    assert_eq!(hosts[0]["host"], planted["slow_host"]["host"]);
    assert!(close(&hosts[0]["slowdown_pct"], &planted["slow_host"]["slowdown_pct"], 3.0), "{hosts:#?}");

    let kernels = ask("driver-kernels");
    assert!(!kernels.is_empty());
    for kernel in &kernels {
        for column in ["driver", "previous_driver", "short_name"] {
            assert_eq!(kernel[column], planted["slow_driver"][column], "{column}");
        }
        assert!(close(&kernel["change_pct"], &planted["slow_driver"]["change_pct"], 3.0), "{kernel}");
    }

    let ranks = ask("slow-ranks");
    assert_eq!(ranks[0]["rank"], planted["slow_rank"]["rank"]);
    assert!(close(&ranks[0]["slowdown_pct"], &planted["slow_rank"]["slowdown_pct"], 2.0), "{}", ranks[0]);

    let utilisation = ask("utilisation");
    for expected in planted["utilisation"].as_array().unwrap() {
        let of = |stage: &str| {
            let mut rows = utilisation.iter();
            let is = |row: &&Value| {
                row["stage"] == stage && row["model"] == expected["model"] && row["gpu"] == expected["gpu"]
            };
            rows.find(is).unwrap()
        };
        assert!(close(&of("prefill")["mfu_pct"], &expected["prefill_mfu_pct"], 1e-9));
        assert!(close(&of("decode")["mbu_pct"], &expected["decode_mbu_pct"], 1e-9));
    }

    // Every saved query has rows; nothing changed since the default date of `changes-since`, which is before the first run.
    assert!(Query::all().count() >= 15);
    for query in Query::all().filter(|query| query.name != "changes-since") {
        assert!(!ask(query.name).is_empty(), "{} has no rows", query.name);
    }
    let names = ok(["queries"]);
    assert_eq!(names.lines().count(), Query::all().count(), "{names}");
}

#[test]
fn regress_is_a_gate_and_trend_shows_the_change() {
    let (lake, planted) = TestLake::synthetic(&EXTENT);
    let commit = planted["regression"]["git_commit"].as_str().unwrap();
    let found = run(["regress", "--lake", lake.path()]);
    assert_eq!(found.status, Some(5), "{}", found.stderr);
    assert!(found.stdout.contains(commit), "{}", found.stdout);
    // Later than the change.
    let later = run(["regress", "--lake", lake.path(), "--since", "2026-03-05"]);
    assert_eq!(later.status, Some(0), "{}", later.stdout);
    let stricter = run(["regress", "--lake", lake.path(), "--param", "min_pct=50"]);
    assert_eq!(stricter.status, Some(0), "{}", stricter.stdout);

    let trend = ["trend", "token_ns", "--lake", lake.path(), "--model", "llama-3.1-8b", "--project", "chat"];
    let rows: Vec<Value> = serde_json::from_str(&ok(trend.into_iter().chain(["--format", "json"]))).unwrap();
    assert_eq!(rows.len(), 6, "three commits on two GPUs");
    let at = rows.iter().position(|row| row["git_commit"] == commit).unwrap();
    let ratio = rows[at]["token_ns"].as_f64().unwrap() / rows[at - 1]["token_ns"].as_f64().unwrap();
    assert!((1.17..1.23).contains(&ratio), "{ratio}");
    let chart = ok(trend);
    assert!(chart.starts_with("token_ns\n") && chart.contains('█'), "{chart}");
    assert_eq!(chart.lines().count(), 7);
    let wrong = run(["trend", "no_metric", "--lake", lake.path()]);
    assert_eq!(wrong.status, Some(2));
    assert!(wrong.stderr.contains("token_ns"), "{}", wrong.stderr);
}

#[test]
fn an_answer_has_many_formats() {
    let (lake, _) = TestLake::synthetic(&["--runs", "24", "--days", "2", "--hosts", "2"]);
    let sql = "select model, count(*) as runs from runs group by model order by model";
    let ask = |format: &str| ok(["query", sql, "--lake", lake.path(), "--format", format]);
    let table = ask("table");
    assert!(table.starts_with("model          runs\nllama-3.1-70b     8\n"), "{table}");
    assert_eq!(ask("csv"), "model,runs\nllama-3.1-70b,8\nllama-3.1-8b,8\nqwen3-32b,8\n");
    assert!(ask("chart").contains("llama-3.1-70b 8 █"));
    let page = ask("html");
    assert!(page.contains(">qwen3-32b</td>") && !page.contains("<script"), "{page}");
    // A row without a value of utilisation is a row.
    let sql_null = "select 'row-1' as name, cast(null as double) as mfu_pct";
    let page = ok(["query", sql_null, "--lake", lake.path(), "--format", "html"]);
    assert!(page.contains(">row-1</td>"), "{page}");
    let out = lake.0.path().join("answer.parquet");
    ok(["query", sql, "--lake", lake.path(), "--format", "parquet", "-o", out.to_str().unwrap()]);
    assert!(std::fs::read(out).unwrap().starts_with(b"PAR1"));
    // A file of SQL with a parameter.
    let file = lake.0.path().join("mine.sql");
    std::fs::write(&file, "-- Mine.\nselect count(*) as n from runs where model = {{model:none}}\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(ok(["query", file, "--lake", lake.path(), "--format", "csv"]), "n\n0\n");
    let given = ok(["query", file, "--lake", lake.path(), "--format", "csv", "--param", "model=qwen3-32b"]);
    assert_eq!(given, "n\n8\n");
    // Prices come from a file only.
    let cost = "select gpu, price_per_hour from prices";
    assert_eq!(ok(["query", cost, "--lake", lake.path(), "--format", "csv"]), "gpu,price_per_hour\n");
    let prices = lake.0.path().join("prices.csv");
    std::fs::write(&prices, "gpu,price_per_hour\nNVIDIA H200,3.5\n").unwrap();
    let prices = prices.to_str().unwrap();
    let priced = ok(["query", cost, "--lake", lake.path(), "--format", "csv", "--prices", prices]);
    assert_eq!(priced, "gpu,price_per_hour\nNVIDIA H200,3.5\n");
}

#[test]
fn a_query_cannot_write_and_a_wrong_one_says_why() {
    let (lake, _) = TestLake::synthetic(&["--runs", "4", "--days", "1", "--hosts", "1"]);
    let before = lake.files();
    for (query, why) in [
        ("drop table runs", "DDL"),
        ("insert into runs select * from runs", "DML"),
        ("copy runs to '/tmp/out.parquet'", "DML"),
        ("create external table x stored as csv location '/etc/passwd'", "DDL"),
        ("select no_column from runs", "no_column"),
        ("no-such-query", "queries"),
        ("select 1 where {{x", "without"),
    ] {
        let run = run(["query", query, "--lake", lake.path()]);
        assert_eq!(run.status, Some(2), "{query}: {}", run.stdout);
        assert!(run.stderr.contains(why), "{query}: {}", run.stderr);
    }
    assert_eq!(before, lake.files());
}

#[test]
fn the_fleet_is_one_page() {
    let (lake, planted) = TestLake::synthetic(&EXTENT);
    let page = lake.0.path().join("fleet.html");
    ok(["report", page.to_str().unwrap(), "--lake", lake.path()]);
    let page = std::fs::read_to_string(page).unwrap();
    for text in [
        planted["regression"]["git_commit"].as_str().unwrap(),
        planted["slow_host"]["host"].as_str().unwrap(),
        "flash_fwd_kernel",
        "<polyline",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["<script", "http://", "https://", "src="] {
        assert!(!page.contains(text), "{text}");
    }
    // A lake without runs has a page too.
    let empty = TestLake::new();
    put_marker(&empty);
    let page = empty.0.path().join("fleet.html");
    ok(["report", page.to_str().unwrap(), "--lake", empty.path()]);
    assert!(std::fs::read_to_string(page).unwrap().contains("No rows."));
}

fn put_marker(lake: &TestLake) {
    crate::support::put(lake, "roofgap.lake.json", b"{\"schema\": \"roofgap.lake/1\"}\n");
}
