"""Nothing secret reaches a run directory: masks for arguments, URLs, mappings and free text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:api[-_. ]?key|access[-_. ]?key|private[-_. ]?key|account[-_. ]?key|secret|passw(?:or)?d|passwd"
    r"|passphrase|pwd|token|credential|auth(?:orization)?|bearer|cookie|session[-_. ]?id|signature"
    r"|sig|dsn)s?(?:$|[^a-z])"
)
_COUNTED_TOKENS = re.compile(
    r"(?i)(?:^|[^a-z])(?:(?:max|min|num|n|total|new|budget|input|output)[-_. ]?(?:[a-z0-9]+[-_. ])*tokens"
    r"|(?:per|special|pad|eos|bos|unk|sep|cls|add|mask)[-_. ]?(?:[a-z0-9]+[-_. ])*tokens?)(?:$|[-_.])"
    r"|tokens?[-_. ](?:per|count|budget|limit|length|ids?)(?:$|[^a-z])"
)
"""`max_new_tokens`, `tokens_per_s`: numbers and vocabulary, no credentials."""

_KNOWN_SHAPES = re.compile(
    r"\b(?:"
    r"hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}"
    r"|sk-[A-Za-z0-9_-]{12,}|xox[abposr]-[\w-]{8,}|A(?:KI|SI)A[A-Z0-9]{12,}|AIza[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{6,}\.[\w-]*|npm_[A-Za-z0-9]{16,}|pypi-[\w-]{16,}|wandb_v1_[\w]{8,}"
    r")"
)
_URL = re.compile(r"\b([a-zA-Z][\w+.-]*://)([^\s/@'\"<>]*)@")
_QUERY = re.compile(r"([?&;])([\w.%-]+)=([^&#;\s'\"]*)")
_HEADER = re.compile(r"(?i)\b(authorization|proxy-authorization|x-api-key)(\s*[:=]\s*)(?:(bearer|basic|token)\s+)?\S+")
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_ASSIGNMENT = re.compile(
    r"(?P<name>[\w.-]*[A-Za-z][\w.-]*)(?P<sep>[\"']?\s*[=:]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&'\"]+)"
)
_FLAG_AND_VALUE = re.compile(r"(?P<flag>--?[A-Za-z][\w-]*)(?P<sep>\s+)(?P<value>\"[^\"]*\"|'[^']*'|[^\s-][^\s]*)")


_GLUED_PASSWORD = {
    "mysql": "-p", "mysqldump": "-p", "mariadb": "-p", "mariadb-dump": "-p", "sshpass": "-p", "redis-cli": "-a",
}  # fmt: skip
"""Programs whose short flag carries a password."""
_NEXT_WORD_TOO = ("sshpass", "redis-cli")
"""Those of them that also take it as the next word."""
_USER_AND_PASSWORD = re.compile(r"(?P<flag>-u|--user=|--proxy-user=)?(?P<user>[^\s:/-][^\s:/]*):\S+")
_USER_FLAGS = ("-u", "--user", "--proxy-user")
_NO_SECRETS = ("PWD",)
"""Variables of every shell that are only named like a password: its directory."""
_LEAST_SECRET = 8
"""Characters that a variable's value needs before it is looked for in other texts."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, flag or key of this name usually holds a credential."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return bool(_SECRET_NAME.search(spaced) or "passw" in spaced.lower()) and not _COUNTED_TOKENS.search(spaced)


def mask_url(text: str) -> str:
    """URLs without user, password and secret query parameters; the rest of the text stays."""
    text = _URL.sub(lambda m: f"{m[1]}{MASK}@", text)

    def query(m: re.Match[str]) -> str:
        return f"{m[1]}{m[2]}={MASK}" if is_secret_name(m[2]) else m[0]

    return _QUERY.sub(query, text)


def mask_text(text: str) -> str:
    """Free text with credentials of known shape, `name=value` secrets and URL passwords masked."""
    text = mask_url(text)
    text = _HEADER.sub(lambda m: f"{m[1]}{m[2]}{MASK}", text)
    text = _BEARER.sub(lambda m: f"{m[1]} {MASK}", text)

    def assignment(m: re.Match[str]) -> str:
        return f"{m['name']}{m['sep']}{MASK}" if is_secret_name(m["name"]) else m[0]

    def flag(m: re.Match[str]) -> str:
        return f"{m['flag']}{m['sep']}{MASK}" if is_secret_name(m["flag"]) else m[0]

    text = _ASSIGNMENT.sub(assignment, text)
    text = _FLAG_AND_VALUE.sub(flag, text)
    return _KNOWN_SHAPES.sub(MASK, text)


def mask_args(args: Sequence[str]) -> list[str]:
    """A command line, word by word: values of secret flags, secrets inside a word, URL passwords."""
    masked: list[str] = []
    hide_next = False
    for word in _mask_short_flags([str(arg) for arg in args]):
        if hide_next and not (word.startswith("-") and is_secret_name(word)):
            masked.append(MASK)
            hide_next = False
            continue
        is_flag = word.startswith("-") and "=" not in word and " " not in word
        hide_next = is_flag and is_secret_name(word)
        masked.append(word if hide_next else mask_text(word))
    return masked


def _mask_short_flags(words: Sequence[str]) -> list[str]:
    """`mysql -pSECRET`, `sshpass -p SECRET`, `curl -u me:SECRET`: flags that only their programs give a meaning."""
    masked: list[str] = []
    program, previous = "", ""
    for word in words:
        name = word.rpartition("/")[2]
        program = name if name in _GLUED_PASSWORD else program
        flag = _GLUED_PASSWORD.get(program)
        user = _USER_AND_PASSWORD.fullmatch(word)
        if flag and word.startswith(flag) and word != flag:
            word = flag + MASK
        elif flag and previous == flag and program in _NEXT_WORD_TOO:
            word = MASK
        elif user and (user["flag"] or previous in _USER_FLAGS):
            word = f"{user['flag'] or ''}{user['user']}:{MASK}"
        masked.append(word)
        previous = word
    return masked


def secret_values(environment: Mapping[str, str]) -> list[str]:
    """Values of variables whose names say that they hold credentials, the longest first; short ones are left out."""
    secret = {name for name in environment if is_secret_name(name) and name not in _NO_SECRETS}
    found = {environment[name] for name in secret if len(environment[name]) >= _LEAST_SECRET}
    return sorted(found, key=len, reverse=True)


def mask_values(data: Any, secrets: Sequence[str]) -> Any:
    """The same data with known secrets masked in every text, keys excepted."""
    if isinstance(data, str):
        for secret in secrets:
            data = data.replace(secret, MASK)
        return data
    if isinstance(data, Mapping):
        return {k: mask_values(v, secrets) for k, v in data.items()}
    if isinstance(data, list | tuple):
        return [mask_values(item, secrets) for item in data]
    return data


def mask_mapping(data: Any) -> Any:
    """A recipe or settings with the values of secret keys masked, at any depth; shapes stay.

    Values under a key named `env` are masked whole: an environment is recorded by name only.
    """
    if isinstance(data, Mapping):
        return {k: _mask_entry(str(k), v) for k, v in data.items()}
    if isinstance(data, str):
        return mask_text(data)
    if isinstance(data, list | tuple):
        if data and all(isinstance(item, str) for item in data):
            return mask_args(data)
        return [mask_mapping(item) for item in data]
    return data


def _mask_entry(key: str, value: Any) -> Any:
    if key == "env" and isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    if is_secret_name(key) and value and (isinstance(value, str) or _is_secret_number(key, value)):
        return MASK
    return mask_mapping(value)


def _is_secret_number(key: str, value: Any) -> bool:
    """A password may be all digits; a number of tokens is a count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and "token" not in key.lower()
