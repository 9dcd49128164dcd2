//! The matrices of the parts of a model.

use super::architecture::{Experts, Linear, Projector, Sam, Tower, VisionEncoder, Vit, feed_forward};

pub fn linears_text(linears: &[Linear]) -> String {
    linears.iter().map(|l| format!("{} {}x{}", l.name, l.inputs, l.outputs)).collect::<Vec<_>>().join(" + ")
}

pub fn matrices(linears: &[Linear]) -> f64 {
    linears.iter().map(Linear::matrix).sum()
}

pub fn biases(linears: &[Linear]) -> f64 {
    linears.iter().map(Linear::bias_values).sum()
}

pub fn router_values(experts: &Experts, hidden: u64) -> f64 {
    let bias = if experts.router_bias { experts.routed as f64 } else { 0.0 };
    hidden as f64 * experts.routed as f64 + bias
}

impl Tower {
    /// Width of its features.
    pub fn width(&self) -> u64 {
        match self {
            Self::Sam(sam) => {
                sam.downsample.last().copied().unwrap_or(if sam.neck > 0 { sam.neck } else { sam.hidden })
            }
            Self::Vit(vit) => vit.hidden,
            Self::Encoder(encoder) => encoder.hidden,
        }
    }
}

impl Sam {
    /// Patches on a side of an image of this many pixels.
    pub fn grid(&self, image_size: u64) -> u64 {
        image_size / self.patch.max(1)
    }

    pub fn linears(&self) -> Vec<Linear> {
        vec![
            Linear::new("qkv", self.hidden, 3 * self.hidden, self.qkv_bias),
            Linear::new("proj", self.hidden, self.hidden, true),
            Linear::new("lin1", self.hidden, self.inner, true),
            Linear::new("lin2", self.inner, self.hidden, true),
        ]
    }

    /// Input and output channels of each strided convolution after the neck.
    pub fn downsample_steps(&self) -> Vec<(u64, u64)> {
        let mut inputs = if self.neck > 0 { self.neck } else { self.hidden };
        let mut steps = Vec::with_capacity(self.downsample.len());
        for &outputs in &self.downsample {
            steps.push((inputs, outputs));
            inputs = outputs;
        }
        steps
    }
}

/// Weights of a three by three convolution without bias.
pub fn conv3x3(inputs: u64, outputs: u64) -> f64 {
    9.0 * inputs as f64 * outputs as f64
}

impl Vit {
    /// Patches of an image of this many pixels a side.
    pub fn patches(&self, image_size: u64) -> u64 {
        let side = image_size / self.patch.max(1);
        side * side
    }

    pub fn linears(&self) -> Vec<Linear> {
        let mut linears = vec![
            Linear::new("qkv", self.hidden, 3 * self.hidden, true),
            Linear::new("proj", self.hidden, self.hidden, true),
        ];
        linears.extend(feed_forward(self.hidden, self.inner, self.gated, true));
        linears
    }
}

impl VisionEncoder {
    pub fn linears(&self) -> Vec<Linear> {
        let head_dim = self.hidden / self.heads.max(1);
        let mut linears = vec![
            Linear::new("q", self.hidden, self.heads * head_dim, true),
            Linear::new("k", self.hidden, self.kv_heads * head_dim, true),
            Linear::new("v", self.hidden, self.kv_heads * head_dim, true),
            Linear::new("o", self.heads * head_dim, self.hidden, false),
        ];
        linears.extend(feed_forward(self.hidden, self.inner, true, false));
        linears
    }
}

/// Weights and biases of the projector, and how.
pub fn projector_values(projector: &Projector) -> (f64, String) {
    match *projector {
        Projector::Linear { inputs, outputs } => {
            (inputs as f64 * outputs as f64 + outputs as f64, format!("{inputs} x {outputs} + {outputs}"))
        }
        Projector::TwoLayer { inputs, outputs } => (
            (inputs as f64 + outputs as f64) * outputs as f64 + 2.0 * outputs as f64,
            format!("{inputs} x {outputs} + {outputs} x {outputs} + 2 x {outputs}"),
        ),
        Projector::Unknown => (0.0, "not described by the configuration, left out".to_owned()),
    }
}
