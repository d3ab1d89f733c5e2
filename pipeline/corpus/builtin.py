"""The corpus that needs no download: the topics of Python's own `help()`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.artifacts import fingerprint
from pipeline.corpus.fields import checked
from pipeline.corpus.source import Reading
from pipeline.records import Document

NAME = "python-docs"
_HEADING = re.compile(r"^(?P<title>\S.*)\n(?P<line>[*=\-~^\"])(?P=line){2,}[ \t]*$", re.MULTILINE)


class PythonDocs:
    """The language reference as it comes with the running interpreter, one document a topic."""

    def describe(self) -> str:
        """Say how many topics there are."""
        return f"{len(_topics())} topics of the Python documentation"

    def fingerprint(self) -> str:
        """Hash the topics, which change with the version of Python."""
        return fingerprint(_topics())

    def read(self) -> Iterator[Reading]:
        """Stream the topics in the order of their names."""
        for topic, text in sorted(_topics().items()):
            heading = _HEADING.search(text)
            place = f"{NAME}:{topic}"
            document = Document(topic, text, heading["title"] if heading else topic)
            yield place, checked(document, place=place)


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics

    return topics
