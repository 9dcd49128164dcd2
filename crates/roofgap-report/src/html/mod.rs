//! `report.html`: one file without a network, readable without scripts, with a timeline where they run.
//!
//! Everything but the timeline and the sorting of tables is plain HTML and SVG made here. What came from a capture is escaped;
//! besides, the page carries a policy under which a browser runs this crate's own script, known by its hash, and nothing else.

mod class;
mod findings;
mod head;
mod kernels;
pub(crate) mod markup;
mod operators;
mod pack;
mod provenance;
mod roofline;
mod stages;
mod steps;
mod timeline;

use crate::bundle::Bundle;
use markup::{escape, escape_cut, fill, script_json};
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// In the order in which they run; each is a part of one strict function.
const SCRIPTS: [&str; 5] = [
    include_str!("columns.js"),
    include_str!("canvas.js"),
    include_str!("timeline.js"),
    include_str!("table.js"),
    include_str!("app.js"),
];

/// The page.
pub fn html(bundle: Bundle<'_>) -> Vec<u8> {
    let analysis = bundle.analysis;
    let timeline = timeline::timeline(bundle);
    let script = format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat());
    let hash = pack::base64(&Sha256::digest(script.as_bytes()));
    let names = timeline.as_ref().ok().map(|t| &t.kernel_names);
    let (meta, columns, absent) = match &timeline {
        Ok(t) => (script_json(&t.meta), t.columns.as_str(), String::new()),
        Err(why) => ("null".into(), "", absence("No timeline", why)),
    };
    let parts = [
        ("policy", format!("script-src 'sha256-{hash}'")),
        ("title", escape_cut(&bundle.context.title, 160)),
        ("style", STYLE.to_owned()),
        ("head", head::head(bundle)),
        ("stages", stages::stages(bundle)),
        ("steps", steps::steps(bundle)),
        ("findings", findings::findings(bundle)),
        ("no-timeline", absent),
        (
            "timeline-state",
            if timeline.is_ok() { "" } else { "hidden" }.to_owned(),
        ),
        ("roofline", roofline::roofline(analysis)),
        ("kernels", kernels::table(analysis)),
        ("operators", operators::table(analysis)),
        ("provenance", provenance::provenance(bundle)),
        ("kernel-data", script_json(&kernels::data(analysis, names))),
        ("timeline-meta", meta),
        ("timeline-columns", columns.to_owned()),
        ("script", script),
    ];
    fill(PAGE, &parts).into_bytes()
}

/// Says that a part is not there, and why.
fn absence(what: &str, why: &str) -> String {
    let why = why.trim_end_matches('.');
    format!("<p class=\"absent\">{}: {}.</p>", escape(what), escape(why))
}
