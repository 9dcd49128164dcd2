"""Exit statuses, errors and messages of the Hugging Face driver."""

import sys

# Exit statuses of failures that a user can fix.
EXIT_USAGE = 2
EXIT_NO_TORCH = 10
EXIT_NO_CUDA = 11
EXIT_NO_MODEL = 12
EXIT_OUT_OF_MEMORY = 13
EXIT_FAILED = 14

DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float32": "float32",
}


class DriverError(Exception):
    """A failure with an exit status and a message of one line."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def report(text):
    """Prints progress to stderr; stdout carries only the result."""
    print(f"hf_driver: {text}", file=sys.stderr, flush=True)


def one_line(error):
    """Returns the first line of an error, shortened."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 300 else text[:300] + "..."
