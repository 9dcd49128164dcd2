//! NVTX ranges: where the program tells a profiler what it is doing.

/// The NVTX domain of the stages.
pub const LLM_DOMAIN: &str = "LLM";

/// Something that takes nested ranges of one thread.
///
/// The embedded model opens `prefill`, `decode_all`, `decode_step` and `warmup` in domain [`LLM_DOMAIN`], and `sam`, `clip` and `projector`
/// in the default domain (`None`).
pub trait Ranges: Sync {
    /// Opens a range on the calling thread.
    fn push(&self, domain: Option<&'static str>, name: &'static str);
    /// Closes the innermost range of that domain on the calling thread.
    fn pop(&self, domain: Option<&'static str>);
}

/// Opens nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Ranges for Silent {
    fn push(&self, _domain: Option<&'static str>, _name: &'static str) {}

    fn pop(&self, _domain: Option<&'static str>) {}
}
