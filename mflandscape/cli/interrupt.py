"""Ctrl-C and SIGTERM: the first asks a run to stop after its chunk, the second ends the process at once."""

import os
import signal
import threading
from types import TracebackType

from .teaching import INTERRUPTED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MESSAGE = b"\nstopping after this chunk and saving; once more to abort at once\n"
_SHOW_CURSOR = b"\x1b[?25h"
_STANDARD_ERROR = 2


class Interrupt:
    """Whether the user asked to stop, while used as a context (`with Interrupt() as interrupted: interrupted()`).

    Signals wake a thread by way of a pipe: Python's own handlers would wait until a compilation is over. Ending the
    process at any moment is safe for the store.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        """Whether a signal came."""
        return self._asked

    def __enter__(self) -> "Interrupt":
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _watch(self) -> None:
        while number := os.read(self._reader, 1):
            if number[0] not in _SIGNALS:
                continue
            if self._asked:
                if os.isatty(_STANDARD_ERROR):
                    os.write(_STANDARD_ERROR, _SHOW_CURSOR)  # the progress bar hides it
                os._exit(INTERRUPTED)
            self._asked = True
            os.write(_STANDARD_ERROR, _MESSAGE)
