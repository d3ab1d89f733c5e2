"""The command that answers over HTTP."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.options import override_of
from pipeline.cli.runs import find_run
from pipeline.config import Config, ServeSettings, load_config
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPILOG = (
    "Exit codes: 0 ended by a signal, with everything at work finished; 1 model or index unusable; "
    "2 wrong request, or the address is taken."
)
_TOKEN = "LASTPAGE_TOKEN"  # noqa: S105  the name of the variable
_BUILTIN_EXAMPLES = Path("configs/python-docs.queries.jsonl")


@click.command("serve", epilog=_EPILOG)
@click.option("--run", help="The run directory.  [default: $LASTPAGE_RUN, else the newest below runs/]")
@click.option("--host", help="Address to listen at.  [default: 127.0.0.1, this machine only]")
@click.option("--port", type=int, help="Port to listen at; 0 takes a free one.  [default: 8000]")
@click.option(
    "--examples", type=click.Path(path_type=Path), help="A query file whose questions the page offers."
)
@click.option("--model", help="Where the model's files are now, if they have moved.")
@click.option(
    "--device", default="auto", show_default=True, help="Where texts are embedded: auto, cpu, cuda."
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"A file that holds the token which clients must send.  [default: ${_TOKEN}, if it is set]",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="A TOML file with a [serve] section.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, e.g. serve.timeout_seconds=10.",
)
@click.option("--json", "as_json", is_flag=True, help="Print where it serves as JSON, when it does.")
def serve_command(
    run: str | None,
    host: str | None,
    port: int | None,
    examples: Path | None,
    model: str | None,
    device: str,
    token_file: Path | None,
    config_path: Path | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Answer over HTTP, and show a page at /.

    A new build of the run is taken into service without a restart. The log goes to standard error, one JSON
    object a line, without the text of queries.

    \b
    lastpage serve
    lastpage serve --run runs/notes --port 8080
    curl -s localhost:8000/v1/query -H 'Content-Type: application/json' \\
         -d '{"query": "When does finally run?", "arm": "calibrated", "k": 3}'
    """
    folder, hint = find_run(run)
    chosen = {"host": host, "port": port, "examples": None if examples is None else str(examples)}
    serving = _settings(folder, config_path, settings, chosen)
    token = _token(token_file)
    if token is None and not _is_loopback(serving.host):
        raise UsageError(
            f"--host {serving.host}: other machines could read the documents without a token; set ${_TOKEN} "
            "or give --token-file"
        )
    questions = _examples(folder, serving)

    from pipeline.serving.app import create_app
    from pipeline.serving.logs import log_to_stderr
    from pipeline.serving.server import listen, serve
    from pipeline.serving.service import SearchService

    bound = listen(serving.host, serving.port)
    url = f"http://{_shown_host(serving.host)}:{bound.getsockname()[1]}/"
    log_to_stderr()
    service = SearchService(folder, serving, model=model, device=device)
    build_id = service.builds.current.build_id
    ready = json.dumps({"run": str(folder), "build_id": build_id, "url": url})
    if not as_json:
        ready = f"run {folder}{hint}, build {build_id}\nserving at {url}"
    app = create_app(service, token=token, examples=questions)
    serve(app, service, bound, on_ready=lambda: click.echo(ready))


def _settings(
    run: Path, config_path: Path | None, settings: Sequence[str], chosen: dict[str, str | int | None]
) -> ServeSettings:
    """The [serve] section of the file that is named, else of the run's; options on top."""
    from pipeline.artifacts import RunLayout, read_json

    overrides = dict(override_of(text) for text in settings)
    if foreign := [key for key in overrides if not key.startswith("serve.")]:
        raise UsageError(
            f"--set {foreign[0]}: `serve` takes settings of its own only, such as serve.max_k=50"
        )
    overrides |= {f"serve.{key}": value for key, value in chosen.items() if value is not None}
    if config_path is None:
        stored = Config.model_validate(read_json(RunLayout(run).config) or {}).serve
        overrides = {f"serve.{key}": value for key, value in stored.model_dump().items()} | overrides
    return load_config(config_path, overrides).serve


def _examples(run: Path, settings: ServeSettings) -> list[str]:
    """The questions of the file that is named; for the built-in corpus, of the one in configs/."""
    from pipeline.ab.queries import read_queries
    from pipeline.artifacts import RunLayout, read_json

    path = None if settings.examples is None else Path(settings.examples)
    if path is None:
        source = (read_json(RunLayout(run).config) or {}).get("corpus", {}).get("source")
        path = _BUILTIN_EXAMPLES if source == "python-docs" and _BUILTIN_EXAMPLES.is_file() else None
    return [] if path is None else [query.text for query in read_queries(path)]


def _token(path: Path | None) -> str | None:
    """The token from the file or the environment, never from the command line, which everyone can read."""
    if path is None:
        return _checked_token(os.environ[_TOKEN], f"${_TOKEN}") if _TOKEN in os.environ else None
    try:
        return _checked_token(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: the token cannot be read ({error})") from error


def _checked_token(text: str, place: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{place}: not a token; expected visible ASCII characters without a space")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
