"""The error of the estimate of tokens, against an exact count by tiktoken.

It needs the extra ``nanobot-core[tokens]`` and an encoding in tiktoken's cache; see
`nanobot_core.agent.encoding`. The texts are the repository's own and, for other languages, the
first article of the Universal Declaration of Human Rights.
"""

# ruff: noqa: RUF001 - letters of other scripts

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row, compare
from nanobot_core import Message
from nanobot_core.agent.encoding import count_exactly
from nanobot_core.agent.tokens import TokenEstimator, measure

ROOT = Path(__file__).parents[1]
FILES = {
    "English": "docs/**/*.md",
    "Python": "nanobot_core/**/*.py",
    "JSON": "plugins/*/src/*/nanobot-plugin.json",
}
ARTICLE = {
    "German": (
        "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft "
        "und Gewissen begabt und sollen einander im Geiste der Brüderlichkeit begegnen."
    ),
    "Russian": (
        "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены "
        "разумом и совестью и должны поступать в отношении друг друга в духе братства."
    ),
    "Arabic": (
        "يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً وعليهم أن "
        "يعامل بعضهم بعضاً بروح الإخاء."
    ),
    "Hindi": (
        "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें "
        "बुद्धि और अन्तरात्मा की देन प्राप्त है और परस्पर उन्हें भाईचारे के भाव से बर्ताव करना चाहिए।"
    ),
    "Korean": (
        "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. "
        "인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다."
    ),
    "Chinese": (
        "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。"
    ),
    "Japanese": (
        "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
        "人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。"
    ),
}
REPORTS = 5


def rows(scale: int) -> Iterator[Row]:
    """Compare the first estimate, and the one after some reports of a provider."""
    for name, text in _texts():
        exact = count_exactly([text])
        if exact is None:
            print("no encoding of tiktoken is on this machine", file=sys.stderr)
            return
        messages = [Message(role="user", content=text)]
        estimator, (length, fixed) = TokenEstimator(), measure(messages)
        first = estimator.count_all(messages) - fixed
        for _ in range(REPORTS * scale):
            estimator.learn((length, fixed), exact + fixed)
        learned = estimator.count_all(messages) - fixed
        yield compare(f"{name}: first estimate", "tokens", [first], [exact])
        yield compare(f"{name}: after {REPORTS * scale} answers", "tokens", [learned], [exact])


def _texts() -> Iterator[tuple[str, str]]:
    for name, pattern in FILES.items():
        yield name, "\n".join(path.read_text("utf-8") for path in sorted(ROOT.glob(pattern)))
    for name, text in ARTICLE.items():
        yield name, "\n".join([text] * 20)
