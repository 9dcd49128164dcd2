"""Tests of the Python that is carried inside the binary: `python3 -m unittest discover -s tests -t .` in the folder above; no torch needed."""
