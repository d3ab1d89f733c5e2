"""One self-contained page: style and script inline, nothing loaded, nothing sent.

Reports and the service share it. A part renders its templates with `render_template` and puts the result
into a `Section`; `render_page` lays the sections out. Everything that reaches a template is escaped, and
control characters become U+FFFD: ids, titles and texts are other people's. The CSS classes are listed at the
top of `templates/page.css`, what the script does at the top of `templates/page.js`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_CONTROL = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"}

# In a browser a page may then load nothing at all; scripts run only if their hash is in the policy, so that
# even markup that slipped through escaping stays inert. Styles are inline because plots carry their own.
_OFFLINE = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page.

    Attributes:
        title: its heading; also its entry in the table of contents. Empty: no heading and no entry.
        anchor: its id in the page, unique there.
        body: its content, already escaped.
        lead: a sentence or two under the heading, in plain text.
    """

    title: str
    anchor: str
    body: Markup
    lead: str = ""


def render_page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    footer: str = "",
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    same_origin: bool = False,
) -> str:
    """Lay sections out on one page that needs no other resource.

    Args:
        title: of the page, in plain text.
        sections: from top to bottom; those with a title make the table of contents, if there are several.
        subtitle: a line under the title.
        footer: a line at the end.
        scripts: JavaScript of one's own, run after the page's.
        styles: CSS of one's own, after the page's.
        same_origin: allow forms and requests to the server that the page comes from; a report forbids them.
    """
    inline = (_asset("page.js"), *scripts)
    return str(
        render_template(
            "page.html.j2",
            title=title,
            subtitle=subtitle,
            footer=footer,
            sections=sections,
            contents=[section for section in sections if section.title],
            policy=content_security_policy(inline, same_origin=same_origin),
            # Our own files, not the user's texts.
            styles=[Markup(text) for text in (_asset("page.css"), *styles)],  # noqa: S704
            scripts=[Markup(text) for text in inline],  # noqa: S704
        )
    )


def render_template(name: str, **values: Any) -> Markup:
    """Render a template of this package; values are escaped unless they are `Markup`."""
    return Markup(_environment().get_template(name).render(values))  # noqa: S704


def content_security_policy(scripts: Sequence[str], *, same_origin: bool = False) -> str:
    """Forbid everything but the given inline scripts; with `same_origin`, allow talking to the own server."""
    own = "'self'" if same_origin else "'none'"
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return f"{_OFFLINE}; script-src {hashes}; connect-src {own}; form-action {own}"


def visible(value: Any) -> Any:
    """Replace control characters in text that is not markup: they could not be seen, or break a file."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.translate(_CONTROL)
    return value


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("pipeline.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _asset(name: str) -> str:
    return files("pipeline.html").joinpath("templates", name).read_text("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
