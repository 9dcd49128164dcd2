//! The work of the vision part.

use super::Term;
use crate::model::architecture::{Architecture, Linear, Projector, Sam, Tower, Vision, VisionEncoder, Vit};
use crate::model::matrices::{biases, conv3x3, linears_text, matrices, projector_values};
use serde::Serialize;

/// Images of one size that go through the vision part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
    pub(crate) fn vision_terms(&self, vision: &Vision, views: &[View], batch: u64, terms: &mut Vec<Term>) {
        let context = Context { value_bytes: self.dtype.bits() / 8.0, weight_bits: self.weights.other_bits };
        for (index, view) in views.iter().enumerate() {
            let images = view.count.saturating_mul(batch);
            if images == 0 {
                continue;
            }
            let first = terms.len();
            let mut before = 0;
            for tower in &vision.towers {
                match tower {
                    Tower::Sam(sam) => context.sam(sam, view.image_size, images, terms),
                    Tower::Vit(vit) => context.vit(vit, view.image_size, before, images, terms),
                    Tower::Encoder(encoder) => context.encoder(encoder, before, images, terms),
                }
                before = tower.features(view.image_size, before);
            }
            context.projector(&vision.projector, before, images, terms);
            // Further views run through the same weights, which one pass over all of them could read once.
            if index > 0 {
                for term in terms.iter_mut().skip(first) {
                    term.weight_bytes = 0.0;
                }
            }
        }
    }
}

struct Context {
    value_bytes: f64,
    weight_bits: f64,
}

impl Context {
    fn term(&self, name: String, flops: f64, weights: f64, activations: f64, how: String) -> Term {
        Term {
            name,
            flops,
            weight_bytes: weights * self.weight_bits / 8.0,
            kv_bytes: 0.0,
            activation_bytes: activations * self.value_bytes,
            how,
        }
    }

    /// The matrix products of the layers of a tower.
    fn products(
        &self,
        name: &str,
        layers: u64,
        linears: &[Linear],
        rows: f64,
        images: u64,
        norms: f64,
    ) -> Term {
        let depth = layers as f64;
        let all_rows = rows * images as f64;
        let sides: f64 = linears.iter().map(|l| (l.inputs + l.outputs) as f64).sum();
        self.term(
            format!("{name}: products"),
            2.0 * all_rows * depth * matrices(linears),
            depth * (matrices(linears) + biases(linears) + norms),
            all_rows * depth * sides,
            format!("2 x {images} images x {rows} tokens x {layers} layers x ({})", linears_text(linears)),
        )
    }

    fn sam(&self, sam: &Sam, image_size: u64, images: u64, terms: &mut Vec<Term>) {
        let grid = sam.grid(image_size) as f64;
        let tokens = grid * grid;
        let hidden = sam.hidden as f64;
        let count = images as f64;
        let pixels = 3.0 * (sam.patch as f64).powi(2);
        let positions = if sam.absolute_positions { tokens * hidden } else { 0.0 };
        terms.push(self.term(
            "sam: patches".to_owned(),
            2.0 * count * tokens * pixels * hidden,
            pixels * hidden + hidden + positions,
            count * tokens * (pixels + hidden),
            format!("2 x {images} images x {tokens} patches x {pixels} values x {}", sam.hidden),
        ));
        // Windows are padded to whole ones before the attention, and its projections run over the padding too.
        let side = sam.window.max(1) as f64;
        let windows = (grid / side).ceil().powi(2);
        let padded = windows * side * side;
        let global = sam.global_layers.min(sam.layers) as f64;
        let local = sam.layers as f64 - global;
        let linears = sam.linears();
        let (attention, inner) = linears.split_at(2.min(linears.len()));
        let attention_rows = count * (local * padded + global * tokens);
        let inner_rows = count * sam.layers as f64 * tokens;
        let norms = 4.0 * hidden;
        terms.push(self.term(
            "sam: products".to_owned(),
            2.0 * (attention_rows * matrices(attention) + inner_rows * matrices(inner)),
            sam.layers as f64 * (matrices(&linears) + biases(&linears) + norms),
            attention_rows * 6.0 * hidden + inner_rows * 2.0 * (hidden + sam.inner as f64),
            format!(
                "2 x {images} images x (({local} windowed layers x {padded} tokens + {global} global x {tokens}) x ({}) + {} \
                 layers x {tokens} x ({}))",
                linears_text(attention),
                sam.layers,
                linears_text(inner)
            ),
        ));
        let pairs = local * windows * (side * side).powi(2) + global * tokens * tokens;
        let relative = if sam.relative_positions {
            2.0 * hidden * (local * padded * 2.0 * side + global * tokens * 2.0 * grid)
        } else {
            0.0
        };
        let head_dim = hidden / sam.heads.max(1) as f64;
        let tables = if sam.relative_positions {
            2.0 * head_dim * (local * (2.0 * side - 1.0) + global * (2.0 * grid - 1.0))
        } else {
            0.0
        };
        terms.push(self.term(
            "sam: attention".to_owned(),
            count * (4.0 * hidden * pairs + relative),
            tables,
            attention_rows * 4.0 * hidden,
            format!(
                "{images} images x (4 x {} x ({local} layers x {windows} windows x {}^2 + {global} layers x {tokens}^2) + relative \
                 positions {relative})",
                sam.hidden,
                side * side
            ),
        ));
        self.sam_neck(sam, tokens, images, terms);
    }

    fn sam_neck(&self, sam: &Sam, tokens: f64, images: u64, terms: &mut Vec<Term>) {
        let mut multiplies = 0.0;
        let mut weights = 0.0;
        let mut activations = 0.0;
        let mut how = Vec::new();
        if sam.neck > 0 {
            let first = sam.hidden as f64 * sam.neck as f64;
            let second = conv3x3(sam.neck, sam.neck);
            multiplies += tokens * (first + second);
            weights += first + second + 4.0 * sam.neck as f64;
            activations += tokens * (sam.hidden + 3 * sam.neck) as f64;
            how.push(format!("{tokens} x ({}x{} + 9x{}x{})", sam.hidden, sam.neck, sam.neck, sam.neck));
        }
        let mut cells = tokens;
        for (inputs, outputs) in sam.downsample_steps() {
            let before = cells;
            cells /= 4.0;
            multiplies += cells * conv3x3(inputs, outputs);
            weights += conv3x3(inputs, outputs);
            activations += before * inputs as f64 + cells * outputs as f64;
            how.push(format!("{cells} x 9x{inputs}x{outputs}"));
        }
        if multiplies > 0.0 {
            let count = images as f64;
            terms.push(self.term(
                "sam: neck and downsampling".to_owned(),
                2.0 * count * multiplies,
                weights,
                count * activations,
                format!("2 x {images} images x ({})", how.join(" + ")),
            ));
        }
    }

    fn vit(&self, vit: &Vit, image_size: u64, before: u64, images: u64, terms: &mut Vec<Term>) {
        let name = vit.name;
        let hidden = vit.hidden as f64;
        let count = images as f64;
        let patches = if vit.fed_by_previous { before } else { vit.patches(image_size) } as f64;
        if !vit.fed_by_previous {
            let pixels = 3.0 * (vit.patch as f64).powi(2);
            terms.push(self.term(
                format!("{name}: patches"),
                2.0 * count * patches * pixels * hidden,
                pixels * hidden,
                count * patches * (pixels + hidden),
                format!("2 x {images} images x {patches} patches x {pixels} values x {}", vit.hidden),
            ));
        }
        let tokens = patches + if vit.class_token { 1.0 } else { 0.0 };
        terms.push(self.products(name, vit.layers, &vit.linears(), tokens, images, 4.0 * hidden));
        let pairs = tokens * tokens;
        terms.push(self.term(
            format!("{name}: attention"),
            4.0 * count * vit.layers as f64 * hidden * pairs,
            vit.positions.min(tokens as u64) as f64 * hidden,
            4.0 * count * vit.layers as f64 * tokens * hidden,
            format!("4 x {images} images x {} layers x {} x {tokens}^2", vit.layers, vit.hidden),
        ));
    }

    fn encoder(&self, encoder: &VisionEncoder, before: u64, images: u64, terms: &mut Vec<Term>) {
        let patches = before as f64;
        let queries = encoder.queries_for(before) as f64;
        let hidden = encoder.hidden as f64;
        let count = images as f64;
        let tokens = patches + queries;
        let name = "vision_encoder";
        terms.push(self.products(name, encoder.layers, &encoder.linears(), tokens, images, 2.0 * hidden));
        // Patches look at all patches; queries at all patches and at the queries before them.
        let pairs = patches * patches + queries * patches + queries * (queries + 1.0) / 2.0;
        terms.push(self.term(
            format!("{name}: attention"),
            4.0 * count * encoder.layers as f64 * hidden * pairs,
            queries * hidden + hidden,
            4.0 * count * encoder.layers as f64 * tokens * hidden,
            format!(
                "4 x {images} images x {} layers x {} x ({patches}^2 + {queries} x {patches} + {queries} x {} / 2)",
                encoder.layers,
                encoder.hidden,
                queries + 1.0
            ),
        ));
    }

    fn projector(&self, projector: &Projector, features: u64, images: u64, terms: &mut Vec<Term>) {
        let (inputs, multiplies) = match *projector {
            Projector::Linear { inputs, outputs } => (inputs, inputs as f64 * outputs as f64),
            Projector::TwoLayer { inputs, outputs } => {
                (inputs, (inputs as f64 + outputs as f64) * outputs as f64)
            }
            Projector::Unknown => return,
        };
        let (values, how) = projector_values(projector);
        let rows = features as f64 * images as f64;
        terms.push(self.term(
            "projector".to_owned(),
            2.0 * rows * multiplies,
            values,
            rows * inputs as f64,
            format!("2 x {images} images x {features} features x ({how})"),
        ));
    }
}
