//! Judges the analysis of every capture of the judged corpus that is at hand.
//!
//! `roofgap-judge [--public DIR] [--all | --unseen | ID...]`. `judged/corpus.py collect` fills DIR with the third-party captures. Without
//! `--all` or `--unseen` the captures that are kept from the authors of the rules are left out.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

#[path = "../judged/mod.rs"]
mod judged;

use judged::{Grade, corpus, worst};
use std::collections::BTreeMap;
use std::path::Path;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let public = arguments.iter().position(|argument| argument == "--public").map(|at| {
        arguments.remove(at);
        arguments.remove(at)
    });
    let wanted = |id: &str, unseen: bool| match arguments.first().map(String::as_str) {
        None => !unseen,
        Some("--all") => true,
        Some("--unseen") => unseen,
        Some(_) => arguments.iter().any(|argument| argument == id),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut rules: BTreeMap<(&str, String), [u32; 3]> = BTreeMap::new();
    let (mut captures, mut firsts, mut missing) = ([0; 3], [0; 3], 0);
    for case in corpus().into_iter().filter(|case| wanted(&case.id, case.unseen)) {
        let Some(file) = case.file(public.as_deref().map(Path::new), folder.path()) else {
            missing += 1;
            continue;
        };
        let answers = case.judge(&file);
        let grade = worst(&answers);
        captures[grade as usize] += 1;
        println!(
            "{grade:<9} {}{}",
            case.id,
            case.open.as_deref().map_or(String::new(), |open| format!(" (known: {open})"))
        );
        for answer in answers {
            if answer.subject == "first" {
                firsts[answer.grade as usize] += 1;
            }
            rules.entry((answer.subject, answer.rule.clone())).or_default()[answer.grade as usize] += 1;
            if answer.grade != Grade::Right {
                println!("          {} {}: {} {}", answer.subject, answer.grade, answer.rule, answer.text);
            }
        }
        if grade != Grade::Right {
            println!("          judgement: {}", case.why);
        }
    }
    println!("\n{:<8} {:<28} {:>6} {:>10} {:>6}", "subject", "answer", "right", "imprecise", "wrong");
    for ((subject, rule), [right, imprecise, wrong]) in rules {
        println!("{subject:<8} {rule:<28} {right:>6} {imprecise:>10} {wrong:>6}");
    }
    for (name, [right, imprecise, wrong]) in [("captures", captures), ("first findings", firsts)] {
        println!("{name}: {right} right, {imprecise} imprecise, {wrong} wrong");
    }
    println!("{missing} captures are not at hand");
}
