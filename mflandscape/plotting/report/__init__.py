"""One run as one interactive HTML page that needs no server and no network."""

from .page import page
from .payload import MOST_MEMBERS, chosen_members

__all__ = ["MOST_MEMBERS", "chosen_members", "page"]
