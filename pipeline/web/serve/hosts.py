"""Accepted host names of requests, a protection against DNS rebinding."""

import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Hosts:
    """Accepted values of the header Host."""

    names: Collection[str]  # host names or addresses, each with its port
    any_address_at: int | None = None  # port for which every IP address is accepted too
    # Another site can make a name resolve to this server, but not an address.

    @classmethod
    def of(cls, bound: IPv4Address | IPv6Address, host: str, port: int) -> "Hosts":
        """Return the accepted hosts of a server bound to an address."""
        names = {"127.0.0.1", "localhost"} if bound.is_loopback or bound.is_unspecified else set()
        names |= {f"[{host}]" if ":" in host else host}
        if not bound.is_loopback:
            names |= {socket.gethostname(), socket.getfqdn()}
        with_port = {f"{name.lower()}:{port}" for name in names}
        # Browsers leave out port 80.
        return cls(
            with_port | (names if port == 80 else set()), port if bound.is_unspecified else None
        )

    def __contains__(self, host: str) -> bool:
        if host.lower() in self.names:
            return True
        if self.any_address_at is None or "@" in host:
            return False
        try:
            parts = urlsplit(f"http://{host}")
            ip_address(parts.hostname or "")
            return parts.netloc == host and (parts.port or 80) == self.any_address_at
        except ValueError:
            return False
