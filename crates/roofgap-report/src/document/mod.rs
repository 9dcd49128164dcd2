//! Reports as documents: ordered sections of sentences, tables and drawings, which text, Markdown and HTML render.
//!
//! - `table`: a table of cells
//! - `brief`: the first screen of a terminal
//! - `headline`: the first lines: time per token, the numbers of one run, the confidence in them
//! - `findings`, `trial`: what to do, and changes of the workload that were measured
//! - `stages`: the time of each stage, its MFU and MBU
//! - `vitals`: clocks, power and energy
//! - `serving`: requests, the steps of a serving engine, and incidents
//! - `kernels`: kernels, operators, counters and layers, with their distance to the `roof`
//! - `gpu_work`: copies, graphs and communication; several ranks
//! - `provenance`: inputs, environment, phases, profiler overhead, losses, why a part is missing; figures of a Stage 1 runner
//! - `summary`: the document for stakeholders

pub mod brief;
pub mod findings;
pub mod gpu_work;
pub mod headline;
pub mod kernels;
pub mod provenance;
pub mod roof;
pub mod serving;
pub mod stages;
pub mod summary;
pub mod table;
pub mod trial;
pub mod vitals;

use crate::render::screen::Tone;
use crate::render::text::TextOptions;
use crate::{Bundle, Context};
use roofgap_analyze::gpu::reword;
use roofgap_analyze::{About, Analysis};
use table::Table;

/// The most kernels of a list of all kernels.
pub const KERNELS: usize = 500;

/// Sections that text leaves out: the first lines have their numbers, or only the page draws them.
const NOT_IN_TEXT: [&str; 10] = [
    "spikes",
    "idle-flame",
    "per-run",
    "receipts",
    "startup",
    "mfu",
    "timeline",
    "roofline",
    "flame",
    "operators",
];

/// Sections whose numbers the page has in its head, its cards and its drawings.
const NOT_ON_PAGE: [&str; 4] = ["per-run", "mfu", "counters", "aggregates"];

/// A part of a document.
#[derive(Debug, Default)]
pub struct Section {
    /// Anchor on the page.
    pub id: &'static str,
    /// Heading; empty for the first lines of a document.
    pub title: String,
    /// On the page, a part of the section before it.
    pub inner: bool,
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Debug)]
pub enum Block {
    /// A sentence.
    Line(String),
    /// A sentence that explains a table.
    Note(String),
    /// A sentence on a part that is missing.
    Missing(String),
    /// A list.
    List(Vec<Item>),
    /// A numbered list.
    Steps(Vec<Item>),
    Table(Table),
    /// Rows that a table leaves out, and what they have together.
    Rest {
        all: usize,
        shown: usize,
        what: String,
    },
    /// A command.
    Code(String),
    /// Markdown of this program; no other format shows it.
    Markdown(String),
    /// The place of what only the page draws.
    Drawing,
}

/// An item of a list.
#[derive(Debug, Default)]
pub struct Item {
    /// Name in bold; empty for a plain item.
    pub name: String,
    /// Verdict on what is named.
    pub word: Option<(&'static str, Tone)>,
    pub text: String,
    /// Lines below the item.
    pub lines: Vec<String>,
}

impl From<String> for Item {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Block {
    /// Returns a sentence.
    pub(crate) fn line(text: &str) -> Self {
        Self::Line(text.to_owned())
    }

    /// Returns the sentence that explains a table.
    fn explanation(id: &str) -> Self {
        Self::Note(explanation(id).to_owned())
    }

    /// Returns a list; `None` for no lines.
    pub(crate) fn list(lines: impl IntoIterator<Item = String>) -> Option<Self> {
        let items: Vec<Item> = lines.into_iter().map(Item::from).collect();
        (!items.is_empty()).then_some(Self::List(items))
    }

    /// Returns a table; `None` for one without rows.
    pub(crate) fn table(table: Table) -> Option<Self> {
        (!table.is_empty()).then_some(Self::Table(table))
    }

    /// States how many rows were left out; `None` where all are shown.
    fn rest(all: usize, most: usize, what: &str) -> Option<Self> {
        (all > most).then(|| Self::Rest { all, shown: most, what: what.to_owned() })
    }

    /// Returns the first rows of a table, and the number of the others.
    fn first_rows(mut table: Table, most: usize) -> Vec<Self> {
        let all = table.rows.len();
        table.rows.truncate(most);
        Self::table(table).into_iter().chain(Self::rest(all, most, "")).collect()
    }
}

impl Section {
    pub(crate) fn new(id: &'static str, title: impl Into<String>) -> Self {
        Self { id, title: title.into(), ..Self::default() }
    }

    /// Adds blocks.
    pub(crate) fn with(mut self, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.blocks.extend(blocks);
        self
    }

    /// Lists its sentences and headings, without the cells of tables.
    fn texts(&mut self) -> Vec<&mut String> {
        let mut texts = vec![&mut self.title];
        for block in &mut self.blocks {
            match block {
                Block::Line(text) | Block::Note(text) | Block::Missing(text) => texts.push(text),
                Block::List(items) | Block::Steps(items) => texts.extend(
                    items
                        .iter_mut()
                        .flat_map(|item| [&mut item.name, &mut item.text].into_iter().chain(&mut item.lines)),
                ),
                Block::Table(table) => {
                    texts.extend(table.headings.iter_mut().map(|heading| &mut heading.name))
                }
                Block::Rest { .. } | Block::Code(_) | Block::Markdown(_) | Block::Drawing => {}
            }
        }
        texts
    }

    /// Makes it a part of the section before it.
    pub(crate) fn inner(self) -> Self {
        Self { inner: true, ..self }
    }

    /// Gives it another title.
    pub fn titled(self, title: &str) -> Self {
        Self { title: title.to_owned(), ..self }
    }
}

/// The form of a document: how much of everything it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For a terminal.
    Text(TextOptions),
    /// `report.md` and `stakeholder_summary.md`.
    Report,
    /// A list of everything of one kind.
    List,
    /// `report.html`.
    Page,
}

/// An analysis as a document.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    pub analysis: &'a Analysis,
    pub context: &'a Context,
    pub form: Form,
}

impl<'a> Document<'a> {
    pub fn of(bundle: Bundle<'a>, form: Form) -> Self {
        Self { analysis: bundle.analysis, context: bundle.context, form }
    }

    /// Lists the sections of a report that have something in them, in order.
    pub fn sections(&self) -> Vec<Section> {
        let mut all = self.all_sections();
        all.retain(|section| !section.blocks.is_empty());
        all
    }

    /// Lists the sections that a report can have, in order.
    pub fn all_sections(&self) -> Vec<Section> {
        let drawn = |id, title| Section::new(id, title).with(self.on_page(Block::Drawing));
        let mut all = vec![
            self.first_lines(),
            self.incident(),
            self.findings(),
            self.tried(),
            self.stages(),
            self.spikes(),
            self.host(),
            drawn("idle-flame", "Idle time by stack of the CPU"),
            self.per_run(),
            self.requests(),
            self.serving(),
            self.receipts(),
            self.startup(),
            self.utilisation(),
            self.vitals(),
            drawn("timeline", "Timeline"),
            drawn("roofline", "Roofline"),
        ];
        all.extend(self.kernels());
        all.push(self.layers());
        all.extend(self.job());
        all.extend(self.gpu_work());
        all.extend([self.counters(), self.ncu_rules(), drawn("flame", "Flame graph"), self.operators()]);
        all.extend(self.provenance());
        match self.form {
            Form::Text(_) => all.retain(|section| !NOT_IN_TEXT.contains(&section.id)),
            Form::Page => {
                let no_stages = self.analysis.stages.is_empty();
                all.retain(|section| {
                    !(NOT_ON_PAGE.contains(&section.id) || no_stages && section.id == "stages")
                });
                for section in all.iter_mut().filter(|section| ["findings", "stages"].contains(&section.id)) {
                    section.blocks = vec![Block::Drawing];
                }
            }
            Form::Report | Form::List => {}
        }
        self.worded(all)
    }

    /// Puts sections into the words of the vendor of the devices.
    fn worded(&self, mut sections: Vec<Section>) -> Vec<Section> {
        reword(&self.analysis.devices, sections.iter_mut().flat_map(Section::texts));
        sections
    }

    /// Returns the options of text; the defaults of any other form.
    fn text(&self) -> TextOptions {
        match self.form {
            Form::Text(options) => options,
            _ => TextOptions::default(),
        }
    }

    fn is_text(&self) -> bool {
        matches!(self.form, Form::Text(_))
    }

    fn is_page(&self) -> bool {
        self.form == Form::Page
    }

    /// Returns a block of the page.
    fn on_page(&self, block: Block) -> Option<Block> {
        self.is_page().then_some(block)
    }

    /// Returns a block that text leaves out.
    fn not_in_text(&self, block: Option<Block>) -> Option<Block> {
        block.filter(|_| !self.is_text())
    }

    /// Returns the most rows of a table in this form.
    fn most(&self, page: usize) -> usize {
        match self.form {
            Form::Text(options) => options.kernels,
            Form::Report => 25,
            Form::List => 200,
            Form::Page => page,
        }
    }

    /// Says that a part of the analysis is missing, and why.
    fn missing(&self, part: &About) -> Block {
        Block::Missing(provenance::missing(self.analysis, part))
    }

    /// Makes a phrase a sentence, except in text.
    fn sentence(&self, phrase: &str) -> String {
        if self.is_text() { phrase.to_owned() } else { format!("{}.", capitalized(phrase)) }
    }

    /// Returns a section with one table and its explanation.
    fn tabled(&self, id: &'static str, table: Table, most: usize) -> Section {
        let (title, meaning) = explained(id);
        self.tabled_as(id, title, meaning, table, most)
    }

    fn tabled_as(&self, id: &'static str, title: &str, meaning: &str, table: Table, most: usize) -> Section {
        let section = Section::new(id, title);
        if table.is_empty() || self.is_text() {
            return section.with(Block::first_rows(table, most));
        }
        let drawing = self.on_page(Block::Drawing);
        let scope = if self.is_page() { "" } else { "The whole capture. " };
        section.with([Block::Note(format!("{scope}{meaning}"))]).with(drawing).with(Block::table(table))
    }
}

/// Returns the title and the explanation of a table or a drawing: a line of `notes.tsv`, which has an id, a title and a text.
fn explained(id: &str) -> (&'static str, &'static str) {
    let mut lines = include_str!("notes.tsv").lines().filter_map(|line| line.split_once('\t'));
    let known = lines.find(|(known, _)| *known == id).and_then(|(_, rest)| rest.split_once('\t'));
    debug_assert!(known.is_some(), "no explanation of {id}");
    known.unwrap_or_default()
}

/// Returns the explanation of a table or a drawing.
pub fn explanation(id: &str) -> &'static str {
    explained(id).1
}

/// Formats a part of a sentence; nothing for a value that is missing.
pub fn maybe<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(String::new, format)
}

/// Joins texts.
pub fn joined<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, separator: &str) -> String {
    joined_any(texts, separator).unwrap_or_default()
}

/// Joins texts; `None` without any.
pub fn joined_any<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, separator: &str) -> Option<String> {
    let mut texts = texts.into_iter();
    let first = texts.next()?.as_ref().to_owned();
    Some(texts.fold(first, |all, text| all + separator + text.as_ref()))
}

/// Makes the first letter a capital.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().into_iter().flat_map(char::to_uppercase);
    first.chain(chars).collect()
}
