//! Communication as bars: the part hidden behind computation and the exposed part of each collective.

use crate::view::numbers::time;
use crate::view::table::cut;
use maud::{Markup, html};
use roofgap_analyze::{Analysis, CommunicationRow};

/// The most bars; the table below has all rows, also those without a time.
const MOST: usize = 12;

/// Renders a bar for each of the longest rows.
pub fn bars(analysis: &Analysis) -> Markup {
    let timed = analysis.communication.iter().filter(|row| row.total_ns > 0);
    let rows: Vec<&CommunicationRow> = timed.take(MOST).collect();
    let widest = rows.iter().map(|row| row.total_ns).max().unwrap_or(0).max(1);
    html! {
        @if !rows.is_empty() {
            ul.legend {
                li { i.busy {} "hidden " small { "behind computation" } }
                li { i.idle-launch {} "exposed " small { "no computation at the same time" } }
            }
            @for row in rows { (bar(row, widest)) }
        }
    }
}

fn bar(row: &CommunicationRow, widest: i64) -> Markup {
    let name = cut(&row.collective, 60);
    let device = match row.device {
        Some(device) => format!(", GPU {device}"),
        None if row.on == "cpu" => ", CPU".to_owned(),
        None => String::new(),
    };
    let exposed = row.exposed_ns.clamp(0, row.total_ns);
    let share = 100.0 * exposed as f64 / row.total_ns as f64;
    let label = format!("{name}{device}: {share:.1} % exposed");
    html! {
        div.bar-row {
            span.bar-name { (name) (device) " " b { (time(row.total_ns)) } }
            div.bar.thin role="img" aria-label=(label) title=(label) style=(format!("width:{:.3}%", 100.0 * row.total_ns as f64 / widest as f64)) {
                span.busy style=(format!("flex:{:.4}", 100.0 - share)) {}
                span.idle-launch style=(format!("flex:{share:.4}")) {}
            }
        }
    }
}
