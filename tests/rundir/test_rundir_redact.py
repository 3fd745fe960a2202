"""Secrets stay out: arguments, URLs, mappings, text. What is no secret stays readable."""

from __future__ import annotations

import pytest

from kdwatch.rundir.redact import (
    MASK,
    is_secret_name,
    mask_args,
    mask_mapping,
    mask_text,
    mask_url,
    mask_values,
    secret_values,
)

SECRETS = ["hf_AbCdEfGhIjKlMnOp", "s3cr3t-p4ss", "ghp_0123456789abcdefABCDEF0123456789abcd"]


@pytest.mark.parametrize(
    "args",
    [
        ["--api-key", "s3cr3t-p4ss"],
        ["--api-key=s3cr3t-p4ss"],
        ["--api_key", "s3cr3t-p4ss"],
        ["--hf-token", "hf_AbCdEfGhIjKlMnOp"],
        ["--password", "s3cr3t-p4ss"],
        ["-c", "import os; os.environ['HF_TOKEN']='hf_AbCdEfGhIjKlMnOp'"],
        ["HF_TOKEN=hf_AbCdEfGhIjKlMnOp", "python", "x.py"],
        ["env", "WANDB_API_KEY=s3cr3t-p4ss", "python", "x.py"],
        ["bash", "-c", "export API_SECRET=s3cr3t-p4ss && train"],
        ["bash", "-c", "train --password s3cr3t-p4ss --lr 1"],
        ["bash", "-c", 'train --auth-token "s3cr3t-p4ss"'],
        ["curl", "-H", "Authorization: Bearer s3cr3t-p4ss"],
        ["git", "clone", "https://user:s3cr3t-p4ss@example.org/x.git"],
        ["git", "clone", "https://ghp_0123456789abcdefABCDEF0123456789abcd@example.org/x.git"],
        ["fetch", "https://example.org/x?access_token=s3cr3t-p4ss&page=2"],
        ["fetch", "postgresql://u:s3cr3t-p4ss@db/x"],
        ["use", "hf_AbCdEfGhIjKlMnOp"],
        ["--openai-apiKey", "s3cr3t-p4ss"],
        ["--config", '{"password": "s3cr3t-p4ss"}'],
        ["--config", "{'apiKey': 's3cr3t-p4ss', 'lr': 1}"],
        ["client_secret: s3cr3t-p4ss"],
    ],
)
def test_secrets_in_arguments_are_masked(args: list[str]) -> None:
    masked = mask_args(args)
    assert len(masked) == len(args)
    text = " ".join(masked)
    assert MASK in text and not any(secret in text for secret in SECRETS)
    assert not any(secret in mask_text(" ".join(args)) for secret in SECRETS)


@pytest.mark.parametrize(
    "args",
    [
        ["python", "train.py", "--max-new-tokens", "512", "--lr", "1e-4", "--out", "runs/a"],
        ["--num-tokens=4096", "--tokenizer", "gpt2", "--pad-token-id", "0", "--eos_token_id=2"],
        ["--monkey", "x", "--keyboard=us", "--author", "somebody"],
        ["https://example.org/a/b?page=2&per_page=3"],
        ["torchrun", "--nproc-per-node", "4", "-m", "pkg.mod"],
        ["tokens_per_s=5", "max_tokens: 7", "token_budget=3"],
    ],
)
def test_what_is_no_secret_stays(args: list[str]) -> None:
    assert mask_args(args) == args


@pytest.mark.parametrize(
    ("args", "masked"),
    [
        (["mysql", "-h", "db", "-ps3cr3t", "kd"], ["mysql", "-h", "db", f"-p{MASK}", "kd"]),
        (["mysql", "-p", "kd"], ["mysql", "-p", "kd"]),  # it asks; the word is a database
        (["/usr/bin/sshpass", "-p", "s3cr3t", "ssh", "node"], ["/usr/bin/sshpass", "-p", MASK, "ssh", "node"]),
        (["redis-cli", "-a", "s3cr3t", "get", "x"], ["redis-cli", "-a", MASK, "get", "x"]),
        (["curl", "-u", "me:s3cr3t", "https://x.org/"], ["curl", "-u", f"me:{MASK}", "https://x.org/"]),
        (["curl", "-ume:s3cr3t"], ["curl", f"-ume:{MASK}"]),
        (["curl", "--user=me:s3cr3t"], ["curl", f"--user=me:{MASK}"]),
        (["docker", "run", "-u", "1000"], ["docker", "run", "-u", "1000"]),
        (["train", "-p16", "--port", "a:b"], ["train", "-p16", "--port", "a:b"]),
        (["python", "-u", "train.py"], ["python", "-u", "train.py"]),
    ],
)
def test_short_flags_that_carry_a_password(args: list[str], masked: list[str]) -> None:
    assert mask_args(args) == masked


def test_the_values_of_secret_variables_are_found_in_other_texts() -> None:
    environment = {
        "MY_TOKEN": "abcd-efgh-ijkl",
        "OTHER_TOKEN": "abcd-efgh",
        "PIN_TOKEN": "1234",
        "HOME": "/home/someone",
    }
    values = secret_values(environment)
    assert values == ["abcd-efgh-ijkl", "abcd-efgh"]
    told = {
        "command": ["x", "--key=abcd-efgh-ijkl"],
        "n": 3,
        "home": "/home/someone",
        "pin": "1234",
        "b": ("abcd-efgh",),
    }
    assert mask_values(told, values) == {
        "command": ["x", f"--key={MASK}"], "n": 3, "home": "/home/someone", "pin": "1234", "b": [MASK],
    }  # fmt: skip


def test_the_directory_of_the_shell_is_no_secret() -> None:
    assert secret_values({"PWD": "/home/me/project", "DB_PWD": "s3cr3t-p4ss"}) == ["s3cr3t-p4ss"]


def test_urls_lose_their_password_only() -> None:
    assert mask_url("https://me:pw@example.org/r.git") == f"https://{MASK}@example.org/r.git"
    assert mask_url("git@example.org:me/r.git") == "git@example.org:me/r.git"
    assert mask_url("https://example.org/?sig=abc&x=1") == f"https://example.org/?sig={MASK}&x=1"


def test_mappings_are_masked_at_any_depth() -> None:
    recipe = {
        "name": "n", "env": {"A": "plain", "HF_TOKEN": "hf_AbCdEfGhIjKlMnOp"}, "budget": 3.5,
        "stages": [
            {"run": ["x", "--token", "s3cr3t-p4ss"], "with": {"api_key": "s3cr3t-p4ss", "tokens": 7, "password": 1234}},
            {"run": "curl https://u:s3cr3t-p4ss@h/", "on": True, "nothing": None},
        ],
    }  # fmt: skip
    masked = mask_mapping(recipe)
    assert (
        not any(secret in str(masked) for secret in SECRETS)
        and "plain" not in str(masked)
        and "1234" not in str(masked)
    )
    assert masked["env"] == {"A": MASK, "HF_TOKEN": MASK}
    assert (masked["budget"], masked["stages"][0]["with"]["tokens"]) == (3.5, 7)
    assert masked["stages"][1]["on"] is True and masked["stages"][1]["nothing"] is None


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "apiKey",
        "AWS_SECRET_ACCESS_KEY",
        "db.password",
        "GITHUB_PAT_TOKEN",
        "PGPASSWORD",
        "WANDB_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "huggingfaceToken",
        "OPENAI_TOKEN",
        "ADMIN_TOKEN",
        "MAXIM_TOKEN",
        "TOKEN",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer",
        "max_tokens",
        "maxNewTokens",
        "min_new_tokens",
        "mask_token",
        "monkey",
        "keys",
        "author",
        "n_tokens",
        "PATH",
        "design",
    ],
)
def test_plain_names(name: str) -> None:
    assert not is_secret_name(name)
