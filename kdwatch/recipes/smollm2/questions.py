"""Short questions with right answers, made from templates: no instruction set comes with the packages."""

from __future__ import annotations

import random

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Italy": "Rome", "Egypt": "Cairo", "Canada": "Ottawa", "Peru": "Lima",
    "Norway": "Oslo", "Greece": "Athens", "Kenya": "Nairobi", "Chile": "Santiago", "Austria": "Vienna",
    "Portugal": "Lisbon", "Cuba": "Havana", "Finland": "Helsinki", "Spain": "Madrid", "Poland": "Warsaw",
    "Ireland": "Dublin", "Hungary": "Budapest", "Russia": "Moscow", "China": "Beijing", "Germany": "Berlin",
    "Sweden": "Stockholm", "Denmark": "Copenhagen", "Belgium": "Brussels", "Thailand": "Bangkok",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "early": "late", "open": "closed", "light": "dark", "fast": "slow", "up": "down",
    "rich": "poor", "strong": "weak", "hard": "soft", "young": "old", "full": "empty", "high": "low", "wet": "dry",
    "long": "short", "near": "far", "loud": "quiet", "right": "wrong", "sweet": "sour", "thick": "thin",
}  # fmt: skip


def questions(rows: int, seed: int = 5) -> list[dict[str, str]]:
    """`rows` different rows `{task, prompt, response}` of three kinds, in an order that the seed gives."""
    pool = [
        {
            "task": "capital",
            "prompt": f"What is the capital of {land}?",
            "response": f"The capital of {land} is {city}.",
        }
        for land, city in CAPITALS.items()
    ]
    pool += [
        {
            "task": "opposite",
            "prompt": f"What is the opposite of {word}?",
            "response": f"The opposite of {word} is {other}.",
        }
        for word, other in OPPOSITES.items()
    ]
    pool += [
        {"task": "sum", "prompt": f"What is {a} plus {b}?", "response": f"{a} plus {b} is {a + b}."}
        for a in range(2, 20)
        for b in range(2, 20)
    ]  # fmt: skip
    return random.Random(seed).sample(pool, rows)
