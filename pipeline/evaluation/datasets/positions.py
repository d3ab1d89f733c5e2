"""Where an answer stands, as numbers and as groups.

Relative position follows PosIR's own scripts: the middle of the answer's characters over the document's
characters. SQuAD-PosQ groups by the character at which the answer starts; its published groups share their
edges, here an edge belongs to the group that it begins, so that each question counts once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

THIRDS = ("early", "middle", "late")
LENGTH_EDGES = (512, 1024, 1536)
LENGTH_CLASSES = ("1-512", "513-1024", "1025-1536", "over 1536")
SQUAD_EDGES = (100, 200, 300, 400, 500)
SQUAD_GROUPS = ("0-100", "100-200", "200-300", "300-400", "400-500", "500+")
N_PARTS = {"thirds": 3, "fifths": 5, "twentieths": 20}


def relative_position(span: tuple[int, int], doc_chars: int) -> float:
    """The middle of a span over the length of its document, from 0 to 1."""
    return min(1.0, (span[0] + span[1]) / 2 / doc_chars)


def part_names(n_parts: int) -> tuple[str, ...]:
    """Names of equal parts of a document, in order."""
    if n_parts == len(THIRDS):
        return THIRDS
    return tuple(f"{100 * part // n_parts}-{100 * (part + 1) // n_parts}%" for part in range(n_parts))


def squad_group(start: int) -> str:
    """The SQuAD-PosQ group of an answer that starts at a character."""
    return SQUAD_GROUPS[bisect_right(SQUAD_EDGES, start)]


def length_class(n_tokens: int) -> str:
    """PosIR's length class of a document: up to 512 tokens, up to 1024, up to 1536, or more."""
    return LENGTH_CLASSES[bisect_left(LENGTH_EDGES, n_tokens)]
