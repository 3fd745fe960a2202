"""kdwatch: watch, account for and plan the energy of distillation pipelines."""

__version__ = "0.1.0"
