"""What every page of the service has in common: style, script, and headers that keep it to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from starlette.responses import HTMLResponse, Response

from pipeline.html.page import Section, render_page

# The page's own policy names its scripts by hash; this one adds what only a header can forbid.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def html_page(
    title: str,
    sections: Sequence[Section],
    *,
    subtitle: str = "",
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answer with a page."""
    page = render_page(
        title,
        sections,
        subtitle=subtitle,
        scripts=[_asset("serve.js")],
        styles=[_asset("serve.css")],
        same_origin=True,
    )
    return HTMLResponse(page, status, headers={**_HEADERS, **(headers or {})})


@cache
def _asset(name: str) -> str:
    return files("pipeline.html").joinpath("templates", name).read_text("utf-8")
