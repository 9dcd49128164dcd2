//! Wording by vendor: texts are written for CUDA, and reworded for ROCm on GPUs of AMD.

use crate::result::{Analysis, DeviceInfo};

/// Words and phrases of CUDA, and those of ROCm in their place. PyTorch calls its module `torch.cuda` on both. Counters of ROCm are not
/// read, so that no text may ask for them.
const ROCM: &str = include_str!("../../texts/rocm.tsv");

/// Puts texts of this program into the words of the vendor of the devices.
pub fn reword<'a>(devices: &[DeviceInfo], texts: impl IntoIterator<Item = &'a mut String>) {
    let is_amd = |device: &DeviceInfo| {
        let name = device.name.as_deref().unwrap_or_default();
        let model =
            name.strip_prefix("MI").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        model || ["AMD", "Instinct", "Radeon", "gfx"].iter().any(|word| name.contains(word))
    };
    if !devices.iter().any(is_amd) {
        return;
    }
    for text in texts {
        for (cuda, rocm) in ROCM.lines().filter_map(|line| line.split_once('\t')) {
            *text = replaced(text, cuda, rocm);
        }
    }
}

/// Replaces a phrase where it is no part of a name of the program, such as `my_NCCL_kernel`.
fn replaced(text: &str, phrase: &str, new: &str) -> String {
    let is_joined = |c: char| c == '_' || c.is_alphanumeric();
    let (mut told, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(phrase) {
        let inside = phrase.starts_with(is_joined) && before.ends_with(is_joined) || after.starts_with('_');
        told.extend([before, if inside { phrase } else { new }]);
        rest = after;
    }
    told + rest
}

/// Puts the findings and reasons of an analysis into the words of the vendor of its devices.
pub fn reword_analysis(analysis: &mut Analysis) {
    let findings = analysis.findings.iter_mut();
    let findings =
        findings.flat_map(|finding| [&mut finding.title, &mut finding.action, &mut finding.disproof]);
    reword(&analysis.devices, findings.chain(analysis.reasons.iter_mut().map(|reason| &mut reason.why)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::RULES;

    fn said(device: &str, text: &str) -> String {
        let device = DeviceInfo { name: Some(device.to_owned()), ..DeviceInfo::default() };
        let mut text = text.to_owned();
        reword(&[device], [&mut text]);
        text
    }

    #[test]
    fn amd_is_told_the_words_of_rocm() {
        let text = "replay it as a CUDA graph (torch.cuda.graph, cudaStreamBeginCapture)";
        assert_eq!(said("NVIDIA H200", text), text);
        let rocm = "replay it as a HIP graph (torch.cuda.graph, hipStreamBeginCapture)";
        assert_eq!(said("AMD Instinct MI300X", text), rocm);
        assert_eq!(
            said("MI300X", "NCCL and my_NCCL_kernel, NCCL_ring"),
            "RCCL and my_NCCL_kernel, NCCL_ring"
        );
        assert_eq!(said("MIG 1g.10gb", "NCCL"), "NCCL");
    }

    /// Advice for an AMD GPU names no tool of NVIDIA. Findings of whole graphs and of ncu are about captures of such tools.
    #[test]
    fn no_action_for_amd_needs_a_tool_of_nvidia() {
        let of_nvidia = ["graphs-whole", "ncu-*"];
        for rule in RULES.iter().filter(|rule| !of_nvidia.contains(&rule.id)) {
            let told = said("AMD Instinct MI300X", rule.fix);
            let foreign = ["nsys", "ncu", "CUDA ", "cudaM", "cudaS", "cudaH", "CUDA_VISIBLE", "NCCL"];
            assert!(!foreign.iter().any(|word| told.contains(word)), "{}: {told}", rule.id);
        }
    }
}
