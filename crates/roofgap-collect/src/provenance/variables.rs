//! Environment variables, by an allow-list: whatever is not on it may be a secret.

use std::collections::BTreeMap;

/// Variables that change how a workload runs and hold no secret.
const NAMES: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_CACHE_DISABLE",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "PYTHONHASHSEED",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "CONDA_DEFAULT_ENV",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LANG",
    "LC_ALL",
    "TZ",
];

/// Families of such variables. A name with a word of [`SECRET`] in it is left out all the same.
const FAMILIES: &[&str] = &[
    "PYTORCH_",
    "TORCH_",
    "TORCHINDUCTOR_",
    "NCCL_",
    "VLLM_",
    "NSYS_",
    "ROOFGAP_",
    "TRITON_",
];

const SECRET: &[&str] = &[
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "URL",
    "URI",
    "ENDPOINT",
    "PROXY",
];

/// The variables that may be written down, out of all there are.
pub fn allowed<I: IntoIterator<Item = (String, String)>>(all: I) -> BTreeMap<String, String> {
    all.into_iter().filter(|(name, _)| is_allowed(name)).collect()
}

/// The variables of this process that may be written down.
pub fn here() -> BTreeMap<String, String> {
    allowed(
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
}

fn is_allowed(name: &str) -> bool {
    if NAMES.contains(&name) {
        return true;
    }
    let upper = name.to_ascii_uppercase();
    FAMILIES.iter().any(|family| name.starts_with(family)) && !SECRET.iter().any(|word| upper.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_on_the_list() {
        let all = [
            "CUDA_VISIBLE_DEVICES",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "PATH",
            "HOME",
            "VLLM_API_KEY",
            "VLLM_USE_V1",
            "NCCL_DEBUG",
            "TORCH_HUB_TOKEN",
            "PYTORCH_CUDA_ALLOC_CONF",
            "MY_NCCL_DEBUG",
            "ROOFGAP_PHASE",
        ];
        let kept: Vec<String> = allowed(all.map(|name| (name.to_owned(), "value".to_owned())))
            .into_keys()
            .collect();
        assert_eq!(
            kept,
            [
                "CUDA_VISIBLE_DEVICES",
                "NCCL_DEBUG",
                "PYTORCH_CUDA_ALLOC_CONF",
                "ROOFGAP_PHASE",
                "VLLM_USE_V1"
            ]
        );
    }
}
