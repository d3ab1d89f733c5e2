"""The page asks for the token once; a cookie that cannot be turned back into it remembers."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from pipeline.html.page import Section, render_template
from pipeline.serving.middleware import COOKIE, cookie_value, same_secret
from pipeline.serving.shell import html_page


def login_routes(token: str) -> APIRouter:
    """The form, and where it is sent."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    async def login() -> Response:
        return _form(is_wrong=False)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        fields = parse_qs((await request.body()).decode("utf-8", "replace"))
        if not same_secret(fields.get("token", [""])[0], token):
            return _form(is_wrong=True)
        answer = RedirectResponse("/", 303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie_value(token), httponly=True, samesite="strict", secure=is_secure)
        return answer

    return router


def _form(*, is_wrong: bool) -> Response:
    body = render_template("login.html.j2", is_wrong=is_wrong)
    return html_page("lastpage", [Section("", "login", body)], status=401 if is_wrong else 200)
