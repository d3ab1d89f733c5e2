"""Run the application until a signal ends it: what is at work is finished first."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from pipeline.config import ServeSettings
from pipeline.errors import UsageError
from pipeline.serving.service import SearchService

_log = logging.getLogger("lastpage.serve")


def listen(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0 takes a free one.

    Raises:
        UsageError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By name, or asyncio leaves TCP_NODELAY out: answers would wait 40 ms for the client's delayed ACK.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise UsageError(
            f"{host}:{port}: cannot listen there ({error.strerror}); choose another --port"
        ) from None
    return bound


def serve(
    app: FastAPI, service: SearchService, bound: socket.socket, *, on_ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is at work and return.

    SIGTERM first makes /readyz fail for a while, so that no more requests are sent here. SIGINT, a person's,
    ends at once; a second one cuts off what is at work.
    """
    settings = service.settings
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Longer than any request may take; it ends only what hangs.
        timeout_graceful_shutdown=int(settings.timeout_seconds) + 5,
    )
    _Server(config, service, settings, on_ready).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Uvicorn, but it drains, and does not die of the signal that it has obeyed."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: SearchService,
        settings: ServeSettings,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._drain_seconds = settings.drain_seconds
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Drain, then stop. The signal is not raised again afterwards: the exit code is 0."""
        _log.info("shutting down", extra={"event": "shutdown", "signal": signal.Signals(sig).name})
        is_second = self._service.is_draining
        self._service.is_draining = True
        if sig == signal.SIGINT:
            self.should_exit, self.force_exit = True, is_second
            return
        timer = threading.Timer(self._drain_seconds, self._stop)
        timer.daemon = True
        timer.start()

    def _stop(self) -> None:
        self.should_exit = True
