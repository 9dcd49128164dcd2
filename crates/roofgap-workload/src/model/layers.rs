//! Layers every part of the model is made of.

use ndarray::{Array1, Array2};

use crate::exec::Exec;
use crate::ops;
use crate::source::Source;

/// A linear layer; its weight is stored as output by input.
#[derive(Debug)]
pub struct Linear {
    pub weight: Array2<f32>,
    bias: Option<Array1<f32>>,
}

impl Linear {
    pub fn new(source: &mut Source, input: usize, output: usize) -> Linear {
        Linear { weight: source.matrix(output, input), bias: None }
    }

    pub fn with_bias(source: &mut Source, input: usize, output: usize) -> Linear {
        Linear { weight: source.matrix(output, input), bias: Some(source.constant(output, 0.0)) }
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
    pub fn layer(source: &mut Source, width: usize) -> Norm {
        Norm { weight: source.constant(width, 1.0), bias: Some(source.constant(width, 0.0)) }
    }

    /// Creates a root-mean-square norm.
    pub fn rms(source: &mut Source, width: usize) -> Norm {
        Norm { weight: source.constant(width, 1.0), bias: None }
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
    pub fn new(source: &mut Source, width: usize, inner: usize, activation: fn(f32) -> f32) -> Mlp {
        Mlp {
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
    pub fn new(source: &mut Source, width: usize, inner: usize) -> GatedMlp {
        GatedMlp {
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
