"""The SASL layer of a connection, before AMQP itself begins (OASIS AMQP 1.0, part 5, section 5.3).

The service offers four mechanisms. Three do not authenticate the client, which puts a token to `$cbs` later;
MSSBCBS is the service's own name for that. PLAIN carries the name and the key of an authorization rule
("AMQP 1.0 protocol guide", learn.microsoft.com).
"""

from __future__ import annotations

from collections.abc import Callable

from outbox_relay.emulators.servicebus import codec
from outbox_relay.emulators.servicebus.frames import HEADER_BYTES, encode_frame

HEADER = b"AMQP\x03\x01\x00\x00"
OFFERED = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")

_SASL_FRAME = 1
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_OK, _REFUSED = 0, 1
_LARGEST_FRAME = 512
"""MIN-MAX-FRAME-SIZE, which a SASL frame must not exceed (section 5.3.1)."""


class Sasl:
    """Answers one client's handshake. When it is `refused`, the connection is to be closed."""

    def __init__(self, accepts_key: Callable[[str, str], bool]) -> None:
        """`accepts_key` checks the name and the key of a rule, and grants what they allow."""
        self._accepts_key = accepts_key
        self._expected = [self._begin, self._decide]
        self.refused = False

    @staticmethod
    def concerns(frame: bytes) -> bool:
        """Return whether a protocol header or frame belongs to this layer."""
        if frame.startswith(b"AMQP"):
            return frame == HEADER
        return len(frame) > HEADER_BYTES and frame[5] == _SASL_FRAME

    def answer(self, frame: bytes) -> bytes:
        """Return the answer to the client's header, then to its one frame; none to anything else."""
        if not self._expected or len(frame) > _LARGEST_FRAME:
            self.refused = True
            return b""
        return self._expected.pop(0)(frame)

    def _begin(self, frame: bytes) -> bytes:
        self.refused = frame != HEADER
        return HEADER + encode_frame(_SASL_FRAME, _MECHANISMS, [codec.encode_symbols(OFFERED)])

    def _decide(self, frame: bytes) -> bytes:
        try:
            accepted = self._accepts(frame)
        except (*codec.DECODE_ERRORS, StopIteration):
            accepted = False
        self.refused = not accepted
        code = _OK if accepted else _REFUSED
        return encode_frame(_SASL_FRAME, _OUTCOME, [codec.encode_ubyte(code)])

    def _accepts(self, frame: bytes) -> bool:
        if frame[HEADER_BYTES : HEADER_BYTES + 3] != bytes((codec.DESCRIBED, 0x53, _INIT)):
            return False
        fields = [codec.decode(each)[0] for each in codec.items(frame, HEADER_BYTES + 3)]
        mechanism = str(fields[0])
        if mechanism == "PLAIN":
            _, name, key = bytes(fields[1]).decode().split("\0")
            return self._accepts_key(name, key)
        return mechanism in OFFERED
