"""IEEE 754 decimal numbers in their binary integer encoding, which AMQP 1.0 prescribes (part 1, section 1.6)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal

_INFINITY, _NAN = 0b11110, 0b11111


@dataclass(frozen=True, slots=True)
class _Layout:
    """One of the three widths: bits in all, bits of the exponent, digits of the coefficient."""

    bits: int
    exponent_bits: int
    digits: int

    @property
    def coefficient_bits(self) -> int:
        """The coefficient's bits where its highest one is not implied."""
        return self.bits - 1 - self.exponent_bits

    @property
    def bias(self) -> int:
        return 3 * (1 << (self.exponent_bits - 3)) + self.digits - 2


_LAYOUTS = {each.bits // 8: each for each in (_Layout(32, 8, 7), _Layout(64, 10, 16), _Layout(128, 14, 34))}


def decode_decimal(data: bytes) -> Decimal:
    """Return the number that 4, 8 or 16 bytes encode. Every NaN is a quiet one."""
    layout = _LAYOUTS[len(data)]
    number = int.from_bytes(data, "big")
    negative = number >> (layout.bits - 1)
    special = (number >> (layout.bits - 6)) & 0b11111
    if special in (_INFINITY, _NAN):
        return Decimal("NaN") if special == _NAN else Decimal("-Infinity" if negative else "Infinity")
    width = layout.coefficient_bits
    if special >> 3 == 0b11:
        width -= 2
        coefficient = (0b100 << width) | (number & ((1 << width) - 1))
    else:
        coefficient = number & ((1 << width) - 1)
    exponent = (number >> width) & ((1 << layout.exponent_bits) - 1)
    if coefficient >= 10**layout.digits:
        # Not canonical: it counts as zero (IEEE 754-2008, 3.5.2).
        coefficient = 0
    return Decimal((negative, tuple(map(int, str(coefficient))), exponent - layout.bias))


def encode_decimal128(number: Decimal) -> bytes:
    """Return 16 bytes for a number, rounded to the 34 digits that they have."""
    layout = _LAYOUTS[16]
    sign = int(number.is_signed()) << 127
    if not number.is_finite():
        return (sign | ((_NAN if number.is_nan() else _INFINITY) << 122)).to_bytes(16, "big")
    context = Context(prec=layout.digits, Emin=-6143, Emax=6144, clamp=1, traps=[])
    rounded = context.plus(number)
    if not rounded.is_finite():
        return encode_decimal128(rounded)
    _, digits, exponent = rounded.as_tuple()
    assert isinstance(exponent, int)
    coefficient = int("".join(map(str, digits)))
    return (sign | ((exponent + layout.bias) << layout.coefficient_bits) | coefficient).to_bytes(16, "big")
