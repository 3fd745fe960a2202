"""Settings of the built-in stages: what `with:` may hold in a recipe. Imports pydantic and nothing heavy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Base: unknown settings are errors."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ModelSettings(Settings):
    """How a model is loaded and where it computes."""

    revision: str | None = None
    """Hub revision; a commit id keeps the artifact the same for ever."""
    trust_remote_code: bool = False
    """Run code that a model repository brings. Only ever on where the recipe says so."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of the forward pass; losses are computed in float32 whatever this is."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, `mps`."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of torch; None: OMP_NUM_THREADS, else as many as this process may use (`processes` share them)."""


class PreprocessSettings(Settings):
    """Text rows to token arrays, with the positions that count for the loss."""

    data: str
    """JSONL, JSON or Parquet file, or `hub:OWNER/NAME`."""
    split: str = "train"
    """Split of a hub data set; file names must contain it."""
    revision: str | None = None
    """Revision of a hub data set."""
    tokenizer: str
    """Model directory (or hub name) whose `tokenizer.json` is used."""
    teacher: str | None = None
    """Model whose vocabulary must be the same; checked here, before any teacher energy is spent."""
    prompt_key: str = "prompt"
    response_key: str = "response"
    messages_key: str = "messages"
    """Rows with this key are chats: a list of `{role, content}`; it goes before prompt and response."""
    task_key: str = "task"
    """Optional key that names the benchmark of a row."""
    chat_template: Literal["auto", "none"] = "auto"
    """`auto`: the tokenizer's own template where it has one; `none`: prompt and response as they are."""
    max_length: int = Field(default=1024, ge=2)
    """Longest row in tokens."""
    too_long: Literal["drop", "truncate"] = "drop"
    """What happens to longer rows; a truncated row has no end-of-text label."""
    limit: int | None = Field(default=None, ge=1)
    """Use this many rows, chosen by `seed`."""
    validation: float = Field(default=0.0, ge=0, lt=1)
    """Share of rows held out for early stopping, chosen by `seed`."""
    seed: int = 0


class CacheSettings(ModelSettings):
    """The teacher's top-k logits at response positions."""

    teacher: str
    top_k: Count = 100
    temperatures: list[Positive] = Field(default=[1.0], min_length=1)
    """Every temperature a student may train with; another one is refused later, not approximated."""
    method: Literal["top_k", "sample"] = "top_k"
    """`sample`: draw ids from the teacher's distribution, unbiased in expectation (arXiv 2503.16870)."""
    samples: Count = 50
    """Draws a position with `method: sample`."""
    quantised: bool = False
    """Store 8-bit steps between sorted logits instead of half precision."""
    batch_tokens: Count = 8192
    """Padded tokens in a batch."""
    shard_tokens: Count = 262144
    """Response positions in a shard: what a kill can cost."""
    seed: int = 0
    """Of `method: sample`."""

    @model_validator(mode="after")
    def _together(self) -> CacheSettings:
        if len(set(self.temperatures)) != len(self.temperatures):
            raise ValueError("temperatures holds one value twice: name each once")
        if self.method == "sample" and self.quantised:
            raise ValueError("quantised belongs to method top_k: take one of both out")
        return self


class GenerateSettings(ModelSettings):
    """The teacher's own answers to the prompts."""

    teacher: str
    max_new_tokens: Count = 512
    do_sample: bool = True
    """False: greedy."""
    temperature: Positive = 0.7
    top_p: float = Field(default=0.9, gt=0, le=1)
    prompts: int | None = Field(default=None, ge=1)
    """Use the first this many prompts."""
    batch_rows: int | None = Field(default=None, ge=1)
    """Rows in a batch; None: as many as the memory is thought to hold."""
    engine: Literal["transformers", "vllm"] = "transformers"
    tensor_parallel: Count = 1
    """GPUs that share the model; only for engine vllm."""
    min_tokens: int = Field(default=1, ge=0)
    """Shorter answers are dropped."""
    keep_truncated: bool = False
    """Keep answers that reached max_new_tokens without an end."""
    max_repetition: Share = 1.0
    """Drop an answer whose share of repeated 4-grams is higher."""
    drop_duplicates: bool = True
    """Keep one of rows with the same prompt and answer."""
    filter_command: list[str] | None = None
    """A command that reads JSON lines {prompt, response} and writes one of `true` or `false` a line."""
    shard_rows: Count = 512
    """Rows between two saves: what a kill can cost."""
    seed: int = 0

    @model_validator(mode="after")
    def _prompt_and_answer(self) -> GenerateSettings:
        if self.min_tokens > self.max_new_tokens:
            raise ValueError("min_tokens is above max_new_tokens: every answer would be dropped")
        if self.tensor_parallel > 1 and self.engine != "vllm":
            raise ValueError("tensor_parallel belongs to engine vllm: set that, or take it out")
        return self


class EarlyStop(Settings):
    """Stop when validation loss has not improved by `epsilon` for `patience` evaluations; the best weights are kept."""

    epsilon: float = Field(ge=0, allow_inf_nan=False)
    patience: Count
    every: Count = 100
    """Optimizer updates between two evaluations."""


class TrainSettings(ModelSettings):
    """Training of a student."""

    student: str
    objective: Literal["sft", "kd", "on_policy"] = "sft"
    alpha: Share = 0.5
    """Weight of the hard-label cross-entropy: loss = alpha CE + (1 - alpha) T^2 KL."""
    temperature: Positive = 1.0
    divergence: Literal["forward", "reverse", "jsd"] = "forward"
    beta: float = Field(default=0.5, gt=0, lt=1, allow_inf_nan=False)
    """Weight of the teacher in the mixture of `jsd`."""
    tail: Literal["ghost", "paper-compatible"] = "ghost"
    """`ghost`: what lies outside the top-k is one more class; `paper-compatible`: plain truncation, biased."""
    teacher: str | None = None
    """Only for `on_policy`: the model that scores the student's own answers."""
    teacher_revision: str | None = None
    """Its hub revision."""
    logits: str | None = None
    """Directory of a logit cache made outside, in place of the input logits."""
    max_new_tokens: Count = 64
    """Only for `on_policy`: length of the student's answers."""
    epochs: Positive = 1.0
    max_steps: int | None = Field(default=None, ge=1)
    """Optimizer updates; overrides epochs."""
    batch_rows: Count = 8
    """Rows of one forward and backward pass."""
    accumulate: Count = 1
    """Passes to one optimizer update; every token of the update weighs the same."""
    packing: bool = False
    """Fill rows with several examples that do not see each other."""
    learning_rate: Positive = 5e-5
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    weights: Literal["float32", "bfloat16"] = "float32"
    """Format the weights are kept in; bfloat16 rounds updates stochastically."""
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    clip: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Largest gradient norm; null: no clipping."""
    gradient_checkpointing: bool = False
    early_stop: EarlyStop | None = None
    checkpoint_every_s: Positive = 300.0
    """Seconds between two checkpoints."""
    processes: Count = 1
    """Processes of one machine, each with a copy of the model; 1: this one."""
    launcher: Literal["torchrun", "accelerate"] = "torchrun"
    """What starts several processes. `accelerate` reads your `accelerate config`."""
    seed: int = 0

    @model_validator(mode="after")
    def _objective(self) -> TrainSettings:
        if self.dtype == "float16":
            raise ValueError("float16 cannot hold small gradients: train in bfloat16 or float32")
        if self.objective == "on_policy" and not self.teacher:
            raise ValueError("objective on_policy needs `teacher:`: name the model that scores")
        if self.objective != "on_policy" and self.teacher:
            raise ValueError("`teacher:` belongs to objective on_policy; kd takes the teacher from the input logits")
        return self


class LmEvalSettings(Settings):
    """Tasks of lm-evaluation-harness, if it is installed."""

    tasks: list[str] = Field(min_length=1)
    limit: int | None = Field(default=None, ge=1)
    include_path: str | None = None
    """Directory with task files of your own."""
    fewshot: int | None = Field(default=None, ge=0)
    """Examples before each question; None: as the task says."""
    chat_template: Literal["auto", "none"] = "auto"
    """`auto`: questions go through the tokenizer's own template where it has one."""


class EvaluateSettings(ModelSettings):
    """Scores of a model."""

    exact_match: str | None = None
    """JSONL with prompt, response and an optional task; each task is one benchmark."""
    prompt_key: str = "prompt"
    response_key: str = "response"
    task_key: str = "task"
    max_new_tokens: Count = 32
    limit: int | None = Field(default=None, ge=1)
    """Rows of each benchmark."""
    perplexity: bool = False
    """Score = 1 / perplexity on the validation rows of the input `data`, so that higher is better."""
    agreement: bool = False
    """Share of response positions where the student's first choice is the teacher's (needs the input `logits`)."""
    lm_eval: LmEvalSettings | None = None
    command: list[str] | None = None
    """A command that gets the model's directory as its last word and prints one JSON object {benchmark: score}."""
    batch_rows: Count = 64


class StudentEvaluateSettings(EvaluateSettings):
    """Scores of a student; a checkpoint made outside is named by `student`."""

    student: str | None = None


class TeacherEvaluateSettings(EvaluateSettings):
    """Scores of the teacher, cached with it."""

    teacher: str
