//! Environment variables on an allow-list: any other may be a secret.

use std::collections::BTreeMap;

/// Variables that affect a workload and hold no secret.
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

/// Prefixes of such variables. A name that contains a word of [`SECRET`] is not allowed.
const PREFIXES: &[&str] =
    &["PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "NCCL_", "VLLM_", "NSYS_", "ROOFGAP_", "TRITON_"];

/// Words in the name of a variable that holds a secret.
const SECRET: &[&str] = &[
    "KEY",
    "TOKEN",
    "SECRET",
    "PASS",
    "_PWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "SESSION",
    "URL",
    "URI",
    "ENDPOINT",
    "PROXY",
];

/// Keeps the variables that may be recorded.
pub fn allowed<I: IntoIterator<Item = (String, String)>>(all: I) -> BTreeMap<String, String> {
    all.into_iter().filter(|(name, _)| is_allowed(name)).collect()
}

/// Returns the variables of this process that may be recorded.
pub fn current() -> BTreeMap<String, String> {
    allowed(
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    )
}

fn is_allowed(name: &str) -> bool {
    if NAMES.contains(&name) {
        return true;
    }
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !names_a_secret(name)
}

/// Tells whether the name of a variable has a word of secrets.
pub fn names_a_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET.iter().any(|word| upper.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_variables_on_the_list_are_kept() {
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
        let kept: Vec<String> =
            allowed(all.map(|name| (name.to_owned(), "value".to_owned()))).into_keys().collect();
        assert_eq!(
            kept,
            ["CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "PYTORCH_CUDA_ALLOC_CONF", "ROOFGAP_PHASE", "VLLM_USE_V1"]
        );
    }
}
