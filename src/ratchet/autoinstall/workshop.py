"""What an install works with: the store, the layers, the sandboxes, the bases, and the log of what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.events import Event, Events
from ratchet.protocols import Judge, Sandbox
from ratchet.records import Base, Checkout, Goal, Limits, Network, Opinion, SandboxSpec
from ratchet.sandbox.bases import BASE_USER, SUITE_PYTHONS, ensure_base, find_base, list_bases, load
from ratchet.sandbox.clients import ClientSettings, read_clients
from ratchet.sandbox.debian_contents import ContentsIndex
from ratchet.sandbox.layers import Layers
from ratchet.sandbox.network import AllowlistNetwork
from ratchet.sandbox.oci import OciBackend
from ratchet.sandbox.proxy import ProxyRequest
from ratchet.store import Store

WORKSPACE = "/workspace"


@dataclass(frozen=True)
class Workshop:
    """Opened with `Workshop.open`, for as long as its context lasts. Meanwhile nothing of the store is collected.
    `judge` is asked where only prose describes a goal, and `on_opinion` told what it thinks."""

    home: Path
    store: Store
    layers: Layers
    backend: OciBackend
    events: Events
    network: AllowlistNetwork
    clients: ClientSettings
    allowed_hosts: tuple[str, ...] = ()
    judge: Judge | None = None
    on_opinion: Callable[[Goal, Opinion], None] = lambda _goal, _opinion: None

    @staticmethod
    @contextmanager
    def open(
        home: Path,
        *,
        on_event: Callable[[Event], None] | None = None,
        allow_hosts: Sequence[str] = (),
    ) -> Iterator[Workshop]:
        """`allow_hosts` may be reached in the install phase beside the package registries of this machine."""
        events = Events(home / "events.jsonl")
        if on_event is not None:
            events.subscribe(on_event)

        def log(request: ProxyRequest) -> None:
            events.emit(
                "proxy",
                sandbox=request.sandbox,
                method=request.method,
                host=request.host,
                port=request.port,
                allowed=request.allowed,
                bytes_down=request.bytes_down,
            )

        clients = read_clients()

        def note(text: str) -> None:
            events.emit("network", text=text)

        network = AllowlistNetwork(
            clients,
            home,
            tuple(allow_hosts),
            log=log,
            on_event=note,
        )

        def emit(kind: str, data: Mapping[str, object]) -> None:
            events.emit(kind, **data)

        backend = OciBackend(home, emit=emit, network=network)
        store = Store(home)
        with store.shared():
            yield Workshop(home, store, backend.layers, backend, events, network, clients, tuple(allow_hosts))

    def show(self, output: str | bytes) -> None:
        """Output of a command as it comes, for whoever watches. It is not kept in the log of events."""
        text = output if isinstance(output, str) else output.decode(errors="replace")
        self.events.publish("output", text=text)

    # ------------------------------------------------------------------ bases

    def pythons(self) -> tuple[str, ...]:
        """The Python versions that a base is at hand for, or can be built for."""
        built = [python for base in list_bases(self.home) for python in base.pythons]
        return tuple(dict.fromkeys([*built, *SUITE_PYTHONS.values()]))

    def base_for(self, python: str, suite: str | None = None) -> Base:
        """The named base, else one with that Python: one that is there (built suites before imports), or the suite of
        Debian that ships it."""
        known = load(self.home, suite) if suite is not None else find_base(self.home, python)
        if known is not None and self.layers.exists(known.id):
            return known
        wanted = suite or next(s for s, version in SUITE_PYTHONS.items() if version == python)
        self.events.emit("stage", name="base", suite=wanted)
        return ensure_base(self.home, self.layers, wanted, self.clients, on_output=self.show)

    def contents(self, base: Base) -> ContentsIndex:
        return ContentsIndex(base, self.home)

    # ------------------------------------------------------------------ sandboxes

    def checkout_layer(self, checkout: Checkout) -> str:
        layer = f"checkout-{checkout.id[:32]}"
        if not self.layers.exists(layer):
            self.layers.add_tree(Path(checkout.path), layer, at=WORKSPACE)
        return layer

    def pristine_layers(self, base: Base, checkout: Checkout) -> tuple[str, ...]:
        return base.id, self.checkout_layer(checkout)

    def offline(self, layers: Sequence[str], limits: Limits) -> Sandbox:
        return self.backend.open(SandboxSpec(tuple(layers), Network.OFFLINE, limits))

    def online(self, layers: Sequence[str], limits: Limits, cache: Path) -> Sandbox:
        """A sandbox of the install phase: the registries through the proxy, and the install's private cache."""
        return self.backend.open(SandboxSpec(tuple(layers), Network.INSTALL, limits, cache=str(cache)))


__all__ = ["BASE_USER", "WORKSPACE", "Workshop"]
