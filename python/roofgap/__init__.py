"""roofgap: where the time of an LLM goes on an NVIDIA GPU.

The package has no dependencies. Ranges cost nothing where no profiler can read them::

    import roofgap

    with roofgap.stage("prefill"):
        logits = model(prompt)
    with roofgap.stage("decode"):
        for _ in range(64):
            with roofgap.step():
                logits = model(token)

    analysis = roofgap.analyze("run.sqlite")
    slowest = roofgap.lake("tables").query("slowest-kernels")
"""

from ._analysis import analyze, load_kernels
from ._binary import RoofgapError
from ._lake import lake, question, questions
from ._ranges import stage, step
from ._regression import assert_no_regression

__all__ = ["RoofgapError", "analyze", "assert_no_regression", "lake", "load_kernels", "question", "questions", "stage", "step"]
