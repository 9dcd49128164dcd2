//! The work of the vision part.

use super::{Term, term};
use crate::model::{Architecture, Tower, Vision, biases, linears_text, matrices};

/// Images of one size that go through the vision part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Side in pixels.
    pub image_size: u64,
    /// Number of images.
    pub count: u64,
}

impl Vision {
    /// Features that one image of this size becomes.
    pub fn features(&self, image_size: u64) -> u64 {
        self.towers.iter().fold(0, |before, tower| tower.features(image_size, before))
    }

    /// The images that give this many vision tokens, where exactly one way of laying them out is known for it.
    pub fn views_for(&self, vision_tokens: u64) -> Option<Vec<View>> {
        if vision_tokens == 0 {
            return Some(Vec::new());
        }
        let whole = self.features(self.image_size);
        if whole == 0 {
            return None;
        }
        // The published layouts, as tokens an image and tokens once: features alone, a separator after each or after all, and
        // a line break after each row.
        let side = (whole as f64).sqrt().round() as u64;
        let rows = if side * side == whole { side } else { 0 };
        let layouts = [(whole, 0), (whole, 1), (whole + 1, 0), (whole + rows, 1), (whole + rows + 1, 0)];
        let mut counts: Vec<u64> = layouts
            .iter()
            .filter_map(|&(each, once)| {
                let tokens = vision_tokens.checked_sub(once)?;
                (tokens > 0 && tokens.is_multiple_of(each)).then_some(tokens / each)
            })
            .collect();
        counts.sort_unstable();
        counts.dedup();
        match counts.as_slice() {
            [count] => {
                return Some(vec![View { image_size: self.image_size, count: *count }]);
            }
            [] => {}
            _ => return None,
        }
        self.local_views(vision_tokens, whole)
    }

    /// DeepSeek-OCR-2's crops: the whole image, its separator, and any number of the smaller query table.
    fn local_views(&self, vision_tokens: u64, whole: u64) -> Option<Vec<View>> {
        let small = *self.towers.last()?.queries.first().filter(|small| **small > 0 && **small < whole)?;
        let rest = vision_tokens.checked_sub(whole + 1)?;
        let side = (small as f64).sqrt().round() as u64;
        // A query stands for 64 pixels a side: 16 of the patch, 4 of the downsampling.
        rest.is_multiple_of(small).then(|| {
            vec![
                View { image_size: self.image_size, count: 1 },
                View { image_size: side * 64, count: rest / small },
            ]
        })
    }
}

impl Tower {
    /// Features that leave the tower for one image. `before` are those of the tower before it.
    fn features(&self, image_size: u64, before: u64) -> u64 {
        if !self.queries.is_empty() {
            return self.queries_for(before);
        }
        if self.patch == 0 {
            return before;
        }
        (self.grid(image_size) >> self.downsample.len().min(32)).pow(2)
    }

    /// The query table used for this many patches: the smallest that is not smaller.
    fn queries_for(&self, patches: u64) -> u64 {
        let fitting = self.queries.iter().find(|queries| patches <= **queries);
        fitting.or(self.queries.last()).copied().unwrap_or(0)
    }
}

impl Architecture {
    pub(super) fn vision_terms(&self, vision: &Vision, views: &[View], batch: u64) -> Vec<Term> {
        let mut terms = Vec::new();
        let weight_bytes = self.weights.other_bits / 8.0;
        for (index, view) in views.iter().enumerate() {
            let images = view.count.saturating_mul(batch);
            if images == 0 {
                continue;
            }
            // Further views run through the same weights, which one pass over all of them could read once.
            let weight_bytes = if index > 0 { 0.0 } else { weight_bytes };
            let mut images = Images { size: view.image_size, images, weight_bytes, terms: &mut terms };
            let mut features = 0;
            for tower in &vision.towers {
                images.tower(tower, features);
                features = tower.features(view.image_size, features);
            }
            if !vision.projector.is_empty() {
                let values = matrices(&vision.projector);
                let how = format!("{features} features x ({})", linears_text(&vision.projector));
                let weights = values + biases(&vision.projector);
                images.add("projector".to_owned(), features as f64 * values, weights, how);
            }
        }
        terms
    }
}

/// Images of one size, and the terms of their work so far.
struct Images<'t> {
    size: u64,
    images: u64,
    /// Bytes of a weight; 0 for weights that were read before.
    weight_bytes: f64,
    terms: &'t mut Vec<Term>,
}

impl Images<'_> {
    /// Adds the term of a number of multiplications and additions for each image. `how` is their formula.
    fn add(&mut self, name: String, multiplies: f64, weights: f64, how: String) {
        let how = format!("2 x {} images x {how}", self.images);
        let flops = 2.0 * self.images as f64 * multiplies;
        self.terms.push(term(name, flops, weights * self.weight_bytes, how));
    }

    fn tower(&mut self, tower: &Tower, before: u64) {
        let Tower { name, hidden, layers, .. } = tower;
        let (width, depth) = (*hidden as f64, *layers as f64);
        let grid = tower.grid(self.size) as f64;
        let patches = if tower.patch == 0 { before as f64 } else { grid * grid };
        if tower.patch > 0 {
            let pixels = 3.0 * (tower.patch as f64).powi(2);
            let values = pixels * width;
            let how = format!("{patches} patches x {pixels} values x {hidden}");
            self.add(format!("{name}: patches"), patches * values, values, how);
        }
        let rows = patches + if tower.class_token { 1.0 } else { 0.0 };
        let queries = tower.queries_for(before) as f64;
        let tokens = rows + queries;
        // Windows are padded to whole ones before the attention, and its projections run over the padding too.
        let local = tower.windowed_layers as f64;
        let global = depth - local;
        let side = tower.window.max(1) as f64;
        let windows = (grid / side).ceil().powi(2);
        let padded = windows * side * side;

        let (attention, network) = tower.linears();
        let norms = if tower.gated { 2.0 } else { 4.0 } * width;
        let layer = matrices(&attention) + biases(&attention) + matrices(&network) + biases(&network) + norms;
        let windowed = if local > 0.0 { format!("{local} x {padded} in windows + ") } else { String::new() };
        self.add(
            format!("{name}: products"),
            (local * padded + global * tokens) * matrices(&attention) + depth * tokens * matrices(&network),
            depth * layer,
            format!(
                "(({windowed}{global} layers x {tokens} tokens) x ({}) + {layers} layers x {tokens} x ({}))",
                linears_text(&attention),
                linears_text(&network)
            ),
        );

        // Patches look at all patches; queries at all patches and at the queries before them.
        let pairs = rows * rows + queries * rows + queries * (queries + 1.0) / 2.0;
        let all_pairs = local * padded * side * side + global * pairs;
        let (mut relative, mut tables) = (0.0, 0.0);
        if tower.relative_positions {
            relative = local * padded * 2.0 * side + global * tokens * 2.0 * grid;
            let head = width / tower.heads.max(1) as f64;
            tables = 2.0 * head * (local * (2.0 * side - 1.0) + global * (2.0 * grid - 1.0));
        }
        let positions = (tower.positions as f64).min(tokens - queries);
        self.add(
            format!("{name}: attention"),
            width * (2.0 * all_pairs + relative),
            (positions + queries + tower.vectors as f64) * width + tables,
            format!("{hidden} x (2 x {all_pairs} pairs of tokens + relative positions {relative})"),
        );

        let convolutions = tower.convolutions();
        if !convolutions.is_empty() {
            let cells = |halvings: u32| patches / 4f64.powi(halvings as i32);
            let parts =
                convolutions.iter().map(|(halvings, values)| format!("{} x {values}", cells(*halvings)));
            let how = format!("({})", parts.collect::<Vec<_>>().join(" + "));
            let multiplies = convolutions.iter().map(|(halvings, values)| cells(*halvings) * values).sum();
            let weights =
                convolutions.iter().map(|(_, values)| values).sum::<f64>() + 4.0 * tower.neck as f64;
            self.add(format!("{name}: neck and downsampling"), multiplies, weights, how);
        }
    }
}
