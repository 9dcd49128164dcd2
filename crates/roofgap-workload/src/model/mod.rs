//! The model: towers, projector, decoder, and the layers that they are made of. An image and tokens in, scores of the next token out.

mod decoder;
mod vision;

use ndarray::{Array1, Array2, Axis, concatenate, s};

use decoder::Decoder;
pub use decoder::KvCache;
use vision::{Clip, Sam, as_lines};

use crate::exec::Exec;
use crate::ops;
use crate::props::Shape;
use crate::source::{Image, Source};

/// The whole model.
#[derive(Debug)]
pub struct Model {
    shape: Shape,
    sam: Sam,
    clip: Clip,
    projector: Linear,
    newline: Array2<f32>,
    separator: Array2<f32>,
    decoder: Decoder,
}

impl Model {
    /// Takes its tensors from a source, always in the same order.
    pub fn new(source: &mut Source, shape: Shape) -> Self {
        let hidden = shape.decoder.hidden;
        Self {
            sam: Sam::new(source, &shape),
            clip: Clip::new(source, &shape),
            projector: Linear::with_bias(source, 2 * shape.clip.width, hidden),
            newline: source.matrix(1, hidden),
            separator: source.matrix(1, hidden),
            decoder: Decoder::new(source, &shape.decoder),
            shape,
        }
    }

    /// Counts the parameters of a shape without allocating them.
    pub fn count_parameters(shape: &Shape) -> u64 {
        let mut source = Source::counting();
        drop(Self::new(&mut source, shape.clone()));
        source.parameters()
    }

    /// Creates an empty cache for `capacity` positions.
    pub fn cache(&self, capacity: usize) -> KvCache {
        KvCache::new(&self.shape.decoder, capacity)
    }

    /// Reads the image, if there is one, and the prompt; gives the first token, and the prompt as the decoder takes it.
    pub fn prefill(
        &self,
        exec: &mut Exec<'_>,
        image: Option<&Image>,
        prompt: &[usize],
        cache: &mut KvCache,
    ) -> (usize, Array2<f32>) {
        let vision = image.map(|image| self.see(exec, image));
        let text = self.decoder.embed(exec, prompt);
        let x = match vision {
            Some(vision) => exec.op("concatenate", || join(0, &vision, &text)),
            None => text,
        };
        let scores = self.decoder.forward(exec, x.clone(), cache);
        (pick(exec, &scores), x)
    }

    /// Takes one token; gives the next.
    pub fn step(&self, exec: &mut Exec<'_>, token: usize, cache: &mut KvCache) -> usize {
        let x = self.decoder.embed(exec, &[token]);
        let scores = self.decoder.forward(exec, x, cache);
        pick(exec, &scores)
    }

    /// Reads the prompt and all tokens after it again, at most the last `limit` positions; gives the next token.
    pub fn step_again(
        &self,
        exec: &mut Exec<'_>,
        prompt: &Array2<f32>,
        tokens: &[usize],
        limit: usize,
        cache: &mut KvCache,
    ) -> usize {
        cache.clear();
        let text = self.decoder.embed(exec, tokens);
        let x = exec.op("concatenate", || join(0, prompt, &text));
        let first = x.nrows().saturating_sub(limit);
        let scores = self.decoder.forward(exec, x.slice_move(s![first.., ..]), cache);
        pick(exec, &scores)
    }

    /// Encodes the image as tokens of the decoder.
    fn see(&self, exec: &mut Exec<'_>, image: &Image) -> Array2<f32> {
        let sam = exec.note("sam", |exec| self.sam.forward(exec, image));
        let clip = exec.note("clip", |exec| self.clip.forward(exec, &sam));
        exec.note("projector", |exec| {
            let both = exec.op("concatenate", || join(1, &clip, &sam));
            let tokens = self.projector.forward(exec, &both);
            exec.op("concatenate", || {
                let side = self.shape.vision_grid();
                as_lines(&tokens, side, &self.newline, &self.separator)
            })
        })
    }
}

fn pick(exec: &mut Exec<'_>, scores: &Array2<f32>) -> usize {
    exec.op("sampling", || ops::argmax(scores.row(0)))
}

/// Joins two matrices along an axis.
fn join(axis: usize, first: &Array2<f32>, second: &Array2<f32>) -> Array2<f32> {
    // The shapes fit: both are made by this model.
    concatenate(Axis(axis), &[first.view(), second.view()]).unwrap_or_default()
}

/// A linear layer; its weight is stored as output by input.
#[derive(Debug)]
pub struct Linear {
    pub weight: Array2<f32>,
    bias: Option<Array1<f32>>,
}

impl Linear {
    pub fn new(source: &mut Source, input: usize, output: usize) -> Self {
        Self { weight: source.matrix(output, input), bias: None }
    }

    pub fn with_bias(source: &mut Source, input: usize, output: usize) -> Self {
        Self { weight: source.matrix(output, input), bias: Some(source.constant(output, 0.0)) }
    }

    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Array2<f32> {
        exec.op("matmul", || {
            let mut out = ops::matmul(x.view(), self.weight.view());
            if let Some(bias) = &self.bias {
                out += bias;
            }
            out
        })
    }
}

/// A norm of rows: layer norm where it has a bias, else root-mean-square norm.
#[derive(Debug)]
pub struct Norm {
    weight: Array1<f32>,
    bias: Option<Array1<f32>>,
}

impl Norm {
    /// Creates a layer norm.
    pub fn layer(source: &mut Source, width: usize) -> Self {
        Self { weight: source.constant(width, 1.0), bias: Some(source.constant(width, 0.0)) }
    }

    /// Creates a root-mean-square norm.
    pub fn rms(source: &mut Source, width: usize) -> Self {
        Self { weight: source.constant(width, 1.0), bias: None }
    }

    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Array2<f32> {
        exec.op("norm", || match &self.bias {
            Some(bias) => ops::layer_norm(x, &self.weight, bias),
            None => ops::rms_norm(x, &self.weight),
        })
    }
}

/// The two-layer network of a vision transformer.
#[derive(Debug)]
pub struct Mlp {
    up: Linear,
    down: Linear,
    activation: fn(f32) -> f32,
}

impl Mlp {
    pub fn new(source: &mut Source, width: usize, inner: usize, activation: fn(f32) -> f32) -> Self {
        Self {
            up: Linear::with_bias(source, width, inner),
            down: Linear::with_bias(source, inner, width),
            activation,
        }
    }

    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Array2<f32> {
        let mut inner = self.up.forward(exec, x);
        exec.op("activation", || ops::each(&mut inner, self.activation));
        self.down.forward(exec, &inner)
    }
}

/// The gated network of a decoder layer or an expert.
#[derive(Debug)]
pub struct GatedMlp {
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl GatedMlp {
    pub fn new(source: &mut Source, width: usize, inner: usize) -> Self {
        Self {
            gate: Linear::new(source, width, inner),
            up: Linear::new(source, width, inner),
            down: Linear::new(source, inner, width),
        }
    }

    pub fn forward(&self, exec: &mut Exec<'_>, x: &Array2<f32>) -> Array2<f32> {
        let mut inner = self.gate.forward(exec, x);
        let up = self.up.forward(exec, x);
        exec.op("activation", || ops::gated(&mut inner, &up));
        self.down.forward(exec, &inner)
    }

    /// Runs the network without timing, for experts that run in parallel.
    pub fn apply(&self, x: &Array2<f32>) -> Array2<f32> {
        let mut inner = ops::matmul(x.view(), self.gate.weight.view());
        let up = ops::matmul(x.view(), self.up.weight.view());
        ops::gated(&mut inner, &up);
        ops::matmul(inner.view(), self.down.weight.view())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Silent;
    use crate::props::Preset;
    use crate::props::{DecoderShape, SamShape, TowerShape};

    fn nano(seed: u64) -> Model {
        Model::new(&mut Source::seeded(seed), Shape::of(Preset::Nano))
    }

    /// Returns the published DeepSeek-OCR. It is never run: its weights are 13 GB in f32.
    fn full() -> Shape {
        Shape {
            image_size: 1024,
            sam: SamShape {
                patch: 16,
                tower: TowerShape { width: 768, layers: 12, heads: 12 },
                window: 14,
                global_layers: vec![2, 5, 8, 11],
                neck: 256,
                halved: 512,
            },
            clip: TowerShape { width: 1024, layers: 24, heads: 16 },
            decoder: DecoderShape {
                hidden: 1280,
                layers: 12,
                heads: 10,
                intermediate: 6848,
                expert_intermediate: 896,
                routed_experts: 64,
                shared_experts: 2,
                experts_per_token: 6,
                dense_layers: 1,
                vocabulary: 129_280,
            },
        }
    }

    #[test]
    fn the_full_shape_has_the_published_number_of_parameters() {
        // The published checkpoint also holds CLIP's own patch embedding, which DeepSeek-OCR never runs.
        let unused = 3 * 14 * 14 * 1024;
        let counted = Model::count_parameters(&full());
        assert_eq!(counted + unused, 3_336_106_240);
    }

    #[test]
    fn parameters_are_the_tensors_that_were_allocated() {
        let mut source = Source::seeded(0);
        let model = Model::new(&mut source, Shape::of(Preset::Nano));
        assert_eq!(source.parameters(), Model::count_parameters(&model.shape));
        let d = &model.shape.decoder;
        let experts = d.routed_experts + d.shared_experts;
        let decoder = 2 * d.vocabulary * d.hidden
            + d.hidden
            + d.layers * (4 * d.hidden * d.hidden + 2 * d.hidden)
            + 3 * d.hidden * d.intermediate
            + (d.layers - 1) * (d.routed_experts * d.hidden + experts * 3 * d.hidden * d.expert_intermediate);
        let mut alone = Source::counting();
        drop(Decoder::new(&mut alone, d));
        assert_eq!(alone.parameters(), decoder as u64);
    }

    #[test]
    fn a_token_that_goes_through_every_expert_uses_all_but_the_embedding_table() {
        for shape in [Shape::of(Preset::Nano), Shape::of(Preset::Tiny)] {
            let mut decoder = shape.decoder.clone();
            decoder.experts_per_token = decoder.routed_experts;
            let table = (decoder.vocabulary * decoder.hidden) as u64;
            let mut alone = Source::counting();
            drop(Decoder::new(&mut alone, &decoder));
            let every = Shape { decoder, ..shape };
            assert_eq!(every.active_parameters() + table, alone.parameters());
        }
    }

    #[test]
    fn an_image_becomes_as_many_tokens_as_the_shape_says() {
        let model = nano(0);
        let mut exec = Exec::new(&Silent);
        let seen = model.see(&mut exec, &Image::page(64, 0));
        assert_eq!(seen.dim(), (model.shape.vision_tokens(), model.shape.decoder.hidden));
        assert!(seen.iter().all(|value| value.is_finite()));
        let notes: Vec<String> = exec.take_notes().into_iter().map(|n| n.name).collect();
        assert_eq!(notes, ["sam", "clip", "projector"]);
    }

    #[test]
    fn what_is_seen_changes_what_is_said() {
        let model = nano(0);
        let mut exec = Exec::new(&Silent);
        let a = model.see(&mut exec, &Image::page(64, 1));
        let b = model.see(&mut exec, &Image::page(64, 2));
        assert_ne!(a, b);
    }

    #[test]
    fn decoding_with_the_cache_equals_reading_everything_again() {
        let model = nano(3);
        let mut exec = Exec::new(&Silent);
        let mut tokens = vec![5, 17, 200, 3, 3, 90];
        let mut cache = model.cache(20);
        let x = model.decoder.embed(&mut exec, &tokens);
        let mut scores = model.decoder.forward(&mut exec, x, &mut cache);
        for _ in 0..8 {
            let next = pick(&mut exec, &scores);
            tokens.push(next);
            let x = model.decoder.embed(&mut exec, &[next]);
            scores = model.decoder.forward(&mut exec, x, &mut cache);

            let mut fresh = model.cache(20);
            let x = model.decoder.embed(&mut exec, &tokens);
            let again = model.decoder.forward(&mut exec, x, &mut fresh);
            assert_eq!(cache.length(), tokens.len());
            assert_eq!(fresh.length(), tokens.len());
            let off = (&scores - &again).mapv(f32::abs);
            let worst = off.into_iter().fold(0.0, f32::max);
            assert!(worst < 1e-3, "off by {worst} at {} tokens", tokens.len());
        }
    }

    #[test]
    fn order_of_the_tokens_matters() {
        let model = nano(3);
        let mut exec = Exec::new(&Silent);
        let mut scores = |tokens: &[usize]| {
            let x = model.decoder.embed(&mut exec, tokens);
            model.decoder.forward(&mut exec, x, &mut model.cache(4))
        };
        assert_ne!(scores(&[1, 2, 3, 4]), scores(&[2, 1, 3, 4]));
    }
}
