//! The price of watching, from the program's own accounts of a watched and an unwatched run.

use roofgap_trace::account::Account;

/// The fastest measured time of each stage, in the order of first occurrence. The fastest, because what else runs on a
/// machine only ever adds to a time.
fn fastest(account: &Account) -> Vec<(&str, i64)> {
    let mut fastest: Vec<(&str, i64)> = Vec::new();
    let measured = account.repeats.iter().filter(|repeat| !repeat.warmup);
    for stage in measured.flat_map(|repeat| &repeat.stages) {
        match fastest.iter_mut().find(|(name, _)| *name == stage.name) {
            Some((_, best)) => *best = (*best).min(stage.wall_ns),
            None => fastest.push((&stage.name, stage.wall_ns)),
        }
    }
    fastest
}

/// Watched over unwatched time of each stage that both accounts have.
pub fn overhead(unwatched: &Account, watched: &Account) -> Vec<(String, f64)> {
    let base = fastest(unwatched);
    fastest(watched)
        .into_iter()
        .filter_map(|(stage, watched_ns)| {
            let (_, base_ns) = base.iter().find(|(name, ns)| *name == stage && *ns > 0)?;
            Some((stage.to_owned(), watched_ns as f64 / *base_ns as f64))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use roofgap_trace::account::{Repeat, StageTime};

    use super::*;

    fn account(times: &[(bool, &str, i64)]) -> Account {
        let repeat = |(warmup, name, wall_ns): &(bool, &str, i64)| Repeat {
            warmup: *warmup,
            stages: vec![StageTime {
                name: (*name).to_owned(),
                wall_ns: *wall_ns,
                ..StageTime::default()
            }],
        };
        Account {
            repeats: times.iter().map(repeat).collect(),
            ..Account::default()
        }
    }

    #[test]
    fn overhead_is_of_the_fastest_measured_repeats() {
        let unwatched = account(&[
            (true, "decode", 1),
            (false, "decode", 120),
            (false, "decode", 100),
        ]);
        let watched = account(&[(false, "decode", 150), (false, "decode", 170), (false, "new", 5)]);
        assert_eq!(overhead(&unwatched, &watched), [("decode".to_owned(), 1.5)]);
        assert_eq!(overhead(&account(&[(false, "decode", 0)]), &watched), []);
    }
}
