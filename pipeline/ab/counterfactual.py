"""A chunk read from another place on: the same words, the same neighbours but at one seam, other positions.

Turning a chunk around so that its evidence stands first (or last) is the test behind every verdict. Moving
the evidence alone, with its neighbours or its paragraph, and deleting it were tried too: see the README.
"""

from __future__ import annotations

from pipeline.ab.windows import Span, covering_sentences, sentence_spans


def evidence_first(text: str, evidence: Span) -> str:
    """Turn a text around so that the sentences of the evidence stand first."""
    start, _ = covering_sentences(sentence_spans(text), evidence)
    return turned(text, start)


def evidence_last(text: str, evidence: Span) -> str:
    """Turn a text around so that the sentences of the evidence stand last."""
    _, end = covering_sentences(sentence_spans(text), evidence)
    return turned(text, end)


def turned(text: str, offset: int) -> str:
    """Read a text from `offset` on to its end, then from its beginning on.

    The white space that stood at the offset stands at the seam; not a visible character is added or lost. A
    text with nothing before or nothing behind the offset comes back as it is.
    """
    head, tail = text[:offset], text[offset:]
    if not head.strip() or not tail.strip():
        return text
    gap = head[len(head.rstrip()) :] + tail[: len(tail) - len(tail.lstrip())]
    return tail.strip() + gap + head.strip()
