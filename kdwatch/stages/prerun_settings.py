"""Settings of the built-in stage `prerun`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Expected(BaseModel):
    """Hardware that a recipe asserts; what is not named is not checked."""

    model_config = ConfigDict(extra="forbid")

    gpus: int | None = Field(None, ge=0)
    """Number of GPUs that the stage can use."""
    gpu_name: str | None = None
    """Part of every GPU's name, in any case: `H100`."""
    gpu_memory_gb: float | None = Field(None, gt=0)
    """Least memory of every GPU, in GB of 1e9 bytes."""
    gpu_counter: bool | None = None
    """Whether every GPU must have an energy counter."""
    cpu_measured: bool | None = None
    """Whether the CPU's energy must be measured, not estimated."""
    cpus: int | None = Field(None, ge=1)
    """Least number of logical CPUs."""
    memory_gb: float | None = Field(None, gt=0)
    """Least main memory, in GB of 1e9 bytes."""


class PrerunSettings(BaseModel):
    """What the prerun does and for how long. The default takes about 2 s."""

    model_config = ConfigDict(extra="forbid")

    expect: Expected = Field(default_factory=lambda: Expected.model_validate({}))
    idle_s: float = Field(0.6, ge=0, le=600)
    """Length of the idle baseline; 0: none."""
    seconds: float = Field(1.0, ge=0, le=3600)
    """Length of the load on CPUs (and GPUs); 0: none."""
    gpu_load: bool = True
    """Load the GPUs too where there are any and torch is installed; that takes a few seconds more to start."""
