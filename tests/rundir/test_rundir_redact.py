"""Secrets stay out: arguments, URLs, mappings, text. What is no secret stays readable."""

from __future__ import annotations

import pytest

from kdwatch.rundir.redact import MASK, is_secret_name, mask_args, mask_mapping, mask_text, mask_url

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
    "name", ["HF_TOKEN", "apiKey", "AWS_SECRET_ACCESS_KEY", "db.password", "GITHUB_PAT_TOKEN", "PGPASSWORD"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["tokenizer", "max_tokens", "monkey", "keys", "author", "n_tokens", "PATH", "design"])
def test_plain_names(name: str) -> None:
    assert not is_secret_name(name)
