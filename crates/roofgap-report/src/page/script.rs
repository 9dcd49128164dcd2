//! The script of the page, and the policy that lets a browser run it and nothing else.

use crate::render::html::policy;
use maud::html;

/// The scripts, in the order in which they run; each is a part of one strict function.
const SCRIPTS: [&str; 12] = [
    include_str!("columns.js"),
    include_str!("sections.js"),
    include_str!("canvas.js"),
    include_str!("detail.js"),
    include_str!("span.js"),
    include_str!("search.js"),
    include_str!("gestures.js"),
    include_str!("pieces.js"),
    include_str!("timeline.js"),
    include_str!("table.js"),
    include_str!("ranks.js"),
    include_str!("app.js"),
];

/// First element of the head.
const CHARSET: &str = "<meta charset=\"utf-8\">";

/// Returns the script.
pub fn script() -> String {
    format!("(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat())
}

/// A page for a server to give.
#[derive(Debug)]
pub struct ServedPage {
    /// Page that names the address of its timeline.
    pub page: String,
    /// Value of the header `Content-Security-Policy`: the browser runs no other script, whatever the page contains.
    pub policy: String,
}

/// Names in a page of this version the address at which its script finds windows of the timeline. Returns `None` for a page of
/// another version, whose script is not known.
pub fn served(page: &str, timeline: &str) -> Option<ServedPage> {
    let policy = policy(Some(&script()), true);
    let (before, after) = page.split_once(CHARSET)?;
    // The policy of the page is the next element.
    let known = after.find(&policy).is_some_and(|at| at < 100);
    let source = html! { meta name="roofgap-timeline" content=(timeline); };
    known.then(|| ServedPage {
        page: format!("{before}{CHARSET}{}{after}", source.into_string()),
        policy: format!("{policy}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    })
}
