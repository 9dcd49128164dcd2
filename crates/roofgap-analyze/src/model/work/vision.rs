//! The work of the vision part.

use super::{Term, term};
use crate::model::{
    Architecture, Linear, Projector, Sam, Tower, Vision, VisionEncoder, Vit, biases, conv3x3, linears_text,
    matrices, projector_values,
};

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
        let Some(Tower::Encoder(encoder)) = self.towers.last() else {
            return None;
        };
        let small = *encoder.queries.first().filter(|small| **small > 0 && **small < whole)?;
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
    /// Features that leave the tower for one image.
    fn features(&self, image_size: u64, before: u64) -> u64 {
        match self {
            Self::Sam(sam) => {
                let side = sam.grid(image_size) >> sam.downsample.len().min(32);
                side * side
            }
            Self::Vit(vit) if vit.fed_by_previous => before,
            Self::Vit(vit) => vit.patches(image_size),
            Self::Encoder(encoder) => encoder.queries_for(before),
        }
    }
}

impl VisionEncoder {
    /// The query table used for this many patches: the smallest that is not smaller.
    fn queries_for(&self, patches: u64) -> u64 {
        let fitting = self.queries.iter().copied().find(|queries| patches <= *queries);
        fitting.or_else(|| self.queries.last().copied()).unwrap_or(0)
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
            let mut before = 0;
            for tower in &vision.towers {
                match tower {
                    Tower::Sam(sam) => images.sam(sam),
                    Tower::Vit(vit) => images.vit(vit, before),
                    Tower::Encoder(encoder) => images.encoder(encoder, before),
                }
                before = tower.features(view.image_size, before);
            }
            images.projector(&vision.projector, before);
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
    fn add(&mut self, name: &str, multiplies: f64, weights: f64, how: String) {
        self.add_flops(
            name,
            2.0 * self.images as f64 * multiplies,
            weights,
            format!("2 x {} images x {how}", self.images),
        );
    }

    fn add_flops(&mut self, name: &str, flops: f64, weights: f64, how: String) {
        self.terms.push(term(name, flops, weights * self.weight_bytes, how));
    }

    fn patches(&mut self, name: &str, patches: f64, (side, hidden): (u64, u64), more: f64) {
        let pixels = 3.0 * (side as f64).powi(2);
        let values = pixels * hidden as f64;
        let how = format!("{patches} patches x {pixels} values x {hidden}");
        self.add(&format!("{name}: patches"), patches * values, values + more, how);
    }

    /// Adds the matrix products of the layers of a tower.
    fn products(&mut self, name: &str, layers: u64, linears: &[Linear], tokens: f64, norms: f64) {
        let depth = layers as f64;
        let values = matrices(linears);
        self.add(
            &format!("{name}: products"),
            tokens * depth * values,
            depth * (values + biases(linears) + norms),
            format!("{tokens} tokens x {layers} layers x ({})", linears_text(linears)),
        );
    }

    /// Adds the attention of the layers of a tower: pairs of tokens, and how many they are.
    fn attention(&mut self, name: &str, (layers, hidden): (u64, u64), pairs: f64, weights: f64, how: String) {
        let images = self.images;
        self.add_flops(
            &format!("{name}: attention"),
            4.0 * images as f64 * layers as f64 * hidden as f64 * pairs,
            weights,
            format!("4 x {images} images x {layers} layers x {hidden} x {how}"),
        );
    }

    fn sam(&mut self, sam: &Sam) {
        let grid = sam.grid(self.size) as f64;
        let tokens = grid * grid;
        let hidden = sam.hidden as f64;
        let positions = if sam.absolute_positions { tokens * hidden } else { 0.0 };
        self.patches("sam", tokens, (sam.patch, sam.hidden), hidden + positions);
        // Windows are padded to whole ones before the attention, and its projections run over the padding too.
        let side = sam.window.max(1) as f64;
        let windows = (grid / side).ceil().powi(2);
        let padded = windows * side * side;
        let global = sam.global_layers.min(sam.layers) as f64;
        let local = sam.layers as f64 - global;
        let linears = sam.linears();
        let (attention, inner) = linears.split_at(2.min(linears.len()));
        let attention_rows = local * padded + global * tokens;
        self.add(
            "sam: products",
            attention_rows * matrices(attention) + sam.layers as f64 * tokens * matrices(inner),
            sam.layers as f64 * (matrices(&linears) + biases(&linears) + 4.0 * hidden),
            format!(
                "(({local} windowed layers x {padded} tokens + {global} global x {tokens}) x ({}) + {} layers x {tokens} x ({}))",
                linears_text(attention),
                sam.layers,
                linears_text(inner)
            ),
        );
        let pairs = local * windows * (side * side).powi(2) + global * tokens * tokens;
        let (mut relative, mut tables) = (0.0, 0.0);
        if sam.relative_positions {
            relative = 2.0 * hidden * (local * padded * 2.0 * side + global * tokens * 2.0 * grid);
            let head_dim = hidden / sam.heads.max(1) as f64;
            tables = 2.0 * head_dim * (local * (2.0 * side - 1.0) + global * (2.0 * grid - 1.0));
        }
        let how = format!(
            "{} images x (4 x {} x ({local} layers x {windows} windows x {}^2 + {global} layers x {tokens}^2) + relative positions \
             {relative})",
            self.images,
            sam.hidden,
            side * side
        );
        let flops = self.images as f64 * (4.0 * hidden * pairs + relative);
        self.add_flops("sam: attention", flops, tables, how);
        self.sam_neck(sam, tokens);
    }

    fn sam_neck(&mut self, sam: &Sam, tokens: f64) {
        let (mut multiplies, mut weights) = (0.0, 0.0);
        let mut how = Vec::new();
        if sam.neck > 0 {
            let both = sam.hidden as f64 * sam.neck as f64 + conv3x3(sam.neck, sam.neck);
            multiplies += tokens * both;
            weights += both + 4.0 * sam.neck as f64;
            how.push(format!("{tokens} x ({}x{} + 9x{}x{})", sam.hidden, sam.neck, sam.neck, sam.neck));
        }
        let mut cells = tokens;
        for (inputs, outputs) in sam.downsample_steps() {
            cells /= 4.0;
            multiplies += cells * conv3x3(inputs, outputs);
            weights += conv3x3(inputs, outputs);
            how.push(format!("{cells} x 9x{inputs}x{outputs}"));
        }
        if multiplies > 0.0 {
            self.add("sam: neck and downsampling", multiplies, weights, format!("({})", how.join(" + ")));
        }
    }

    fn vit(&mut self, vit: &Vit, before: u64) {
        let name = vit.name;
        let hidden = vit.hidden as f64;
        let patches = if vit.fed_by_previous { before } else { vit.patches(self.size) } as f64;
        if !vit.fed_by_previous {
            self.patches(name, patches, (vit.patch, vit.hidden), 0.0);
        }
        let tokens = patches + if vit.class_token { 1.0 } else { 0.0 };
        self.products(name, vit.layers, &vit.linears(), tokens, 4.0 * hidden);
        let positions = vit.positions.min(tokens as u64) as f64 * hidden;
        self.attention(name, (vit.layers, vit.hidden), tokens * tokens, positions, format!("{tokens}^2"));
    }

    fn encoder(&mut self, encoder: &VisionEncoder, before: u64) {
        let patches = before as f64;
        let queries = encoder.queries_for(before) as f64;
        let hidden = encoder.hidden as f64;
        let name = "vision_encoder";
        self.products(name, encoder.layers, &encoder.linears(), patches + queries, 2.0 * hidden);
        // Patches look at all patches; queries at all patches and at the queries before them.
        let pairs = patches * patches + queries * patches + queries * (queries + 1.0) / 2.0;
        let how = format!("({patches}^2 + {queries} x {patches} + {queries} x {} / 2)", queries + 1.0);
        let weights = queries * hidden + hidden;
        self.attention(name, (encoder.layers, encoder.hidden), pairs, weights, how);
    }

    fn projector(&mut self, projector: &Projector, features: u64) {
        let multiplies = match *projector {
            Projector::Linear { inputs, outputs } => inputs as f64 * outputs as f64,
            Projector::TwoLayer { inputs, outputs } => (inputs as f64 + outputs as f64) * outputs as f64,
            Projector::Unknown => return,
        };
        let (values, how) = projector_values(projector);
        let how = format!("{features} features x ({how})");
        self.add("projector", features as f64 * multiplies, values, how);
    }
}
