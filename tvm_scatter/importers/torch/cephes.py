"""Bessel functions, the inverse of the normal distribution and a scaled ``erfc``.

The series and rational functions are those of the Cephes Mathematical Library by Stephen L. Moshier
(3-clause BSD licence), which PyTorch has them from, too. All is computed by double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from tvm_scatter.emit.numbers import number_like, polynomial, ratio

from .functions import library

_DOUBLE = "float64"
#: Chebyshev series of exp(-x) I0(x) for x up to 8, the term of order zero last.
_I0E = (
    -4.4153416464793395e-18,
    3.3307945188222384e-17,
    -2.431279846547955e-16,
    1.715391285555133e-15,
    -1.1685332877993451e-14,
    7.676185498604936e-14,
    -4.856446783111929e-13,
    2.95505266312964e-12,
    -1.726826291441556e-11,
    9.675809035373237e-11,
    -5.189795601635263e-10,
    2.6598237246823866e-09,
    -1.300025009986248e-08,
    6.046995022541919e-08,
    -2.670793853940612e-07,
    1.1173875391201037e-06,
    -4.4167383584587505e-06,
    1.6448448070728896e-05,
    -5.754195010082104e-05,
    0.00018850288509584165,
    -0.0005763755745385824,
    0.0016394756169413357,
    -0.004324309995050576,
    0.010546460394594998,
    -0.02373741480589947,
    0.04930528423967071,
    -0.09490109704804764,
    0.17162090152220877,
    -0.3046826723431984,
    0.6767952744094761,
)
#: The same of exp(-x) sqrt(x) I0(x) by 1 / x, for greater x.
_I0E_FAR = (
    -7.233180487874754e-18,
    -4.830504485944182e-18,
    4.46562142029676e-17,
    3.461222867697461e-17,
    -2.8276239805165836e-16,
    -3.425485619677219e-16,
    1.7725601330565263e-15,
    3.8116806693526224e-15,
    -9.554846698828307e-15,
    -4.150569347287222e-14,
    1.54008621752141e-14,
    3.8527783827421426e-13,
    7.180124451383666e-13,
    -1.7941785315068062e-12,
    -1.3215811840447713e-11,
    -3.1499165279632416e-11,
    1.1889147107846439e-11,
    4.94060238822497e-10,
    3.3962320257083865e-09,
    2.266668990498178e-08,
    2.0489185894690638e-07,
    2.8913705208347567e-06,
    6.889758346916825e-05,
    0.0033691164782556943,
    0.8044904110141088,
)
#: The same of exp(-x) I1(x) / x for x up to 8.
_I1E = (
    2.7779141127610464e-18,
    -2.111421214358166e-17,
    1.5536319577362005e-16,
    -1.1055969477353862e-15,
    7.600684294735408e-15,
    -5.042185504727912e-14,
    3.223793365945575e-13,
    -1.9839743977649436e-12,
    1.1736186298890901e-11,
    -6.663489723502027e-11,
    3.625590281552117e-10,
    -1.8872497517228294e-09,
    9.381537386495773e-09,
    -4.445059128796328e-08,
    2.0032947535521353e-07,
    -8.568720264695455e-07,
    3.4702513081376785e-06,
    -1.3273163656039436e-05,
    4.781565107550054e-05,
    -0.00016176081582589674,
    0.0005122859561685758,
    -0.0015135724506312532,
    0.004156422944312888,
    -0.010564084894626197,
    0.024726449030626516,
    -0.05294598120809499,
    0.1026436586898471,
    -0.17641651835783406,
    0.25258718644363365,
)
#: The same of exp(-x) sqrt(x) I1(x) by 1 / x, for greater x.
_I1E_FAR = (
    7.517296310842105e-18,
    4.414348323071708e-18,
    -4.6503053684893586e-17,
    -3.209525921993424e-17,
    2.96262899764595e-16,
    3.3082023109209285e-16,
    -1.8803547755107825e-15,
    -3.8144030724370075e-15,
    1.0420276984128802e-14,
    4.272440016711951e-14,
    -2.1015418427726643e-14,
    -4.0835511110921974e-13,
    -7.198551776245908e-13,
    2.0356285441470896e-12,
    1.4125807436613782e-11,
    3.2526035830154884e-11,
    -1.8974958123505413e-11,
    -5.589743462196584e-10,
    -3.835380385964237e-09,
    -2.6314688468895196e-08,
    -2.512236237870209e-07,
    -3.882564808877691e-06,
    -0.00011058893876262371,
    -0.009761097491361469,
    0.7785762350182801,
)
#: Rational functions of ``ndtri``: in the middle, in the tails by 1 / x for x up to 8 and beyond.
_MIDDLE = (
    (
        -59.96335010141079,
        98.00107541859997,
        -56.67628574690703,
        13.931260938727968,
        -1.2391658386738125,
    ),
    (
        1.0,
        1.9544885833814176,
        4.676279128988815,
        86.36024213908905,
        -225.46268785411937,
        200.26021238006066,
        -82.03722561683334,
        15.90562251262117,
        -1.1833162112133,
    ),
)
_NEAR = (
    (
        4.0554489230596245,
        31.525109459989388,
        57.16281922464213,
        44.08050738932008,
        14.684956192885803,
        2.1866330685079025,
        -0.1402560791713545,
        -0.03504246268278482,
        -0.0008574567851546854,
    ),
    (
        1.0,
        15.779988325646675,
        45.39076351288792,
        41.3172038254672,
        15.04253856929075,
        2.504649462083094,
        -0.14218292285478779,
        -0.03808064076915783,
        -0.0009332594808954574,
    ),
)
_FAR = (
    (
        3.2377489177694603,
        6.915228890689842,
        3.9388102529247444,
        1.3330346081580755,
        0.20148538954917908,
        0.012371663481782003,
        0.00030158155350823543,
        2.6580697468673755e-06,
        6.239745391849833e-09,
    ),
    (
        1.0,
        6.02427039364742,
        3.6798356385616087,
        1.3770209948908132,
        0.21623699359449663,
        0.013420400608854318,
        0.00032801446468212774,
        2.8924786474538068e-06,
        6.790194080099813e-09,
    ),
)
_TAIL = math.exp(-2)
#: Asymptotic series of ``erfcx`` by 1 / x ** 2, and where it begins.
_ERFCX = (-945 / 32, 105 / 16, -15 / 8, 3 / 4, -1 / 2, 1.0)
_ERFCX_FROM = 25


def i0(value: Any) -> Any:
    """The modified Bessel function of order 0."""
    size = tirx.abs(_double(value))
    return tirx.exp(size) * _scaled(size, _I0E, _I0E_FAR)


def i0e(value: Any) -> Any:
    """``i0(x) * exp(-abs(x))``."""
    return _scaled(tirx.abs(_double(value)), _I0E, _I0E_FAR)


def i1(value: Any) -> Any:
    """The modified Bessel function of order 1."""
    size = tirx.abs(_double(value))
    near = tirx.exp(size) * size * _series(_I1E, size / _of(2) - _of(2))
    far = tirx.exp(size) * _far(size, _I1E_FAR)
    return _odd(value, tirx.Select(size <= _of(8), near, far))


def i1e(value: Any) -> Any:
    """``i1(x) * exp(-abs(x))``."""
    size = tirx.abs(_double(value))
    near = size * _series(_I1E, size / _of(2) - _of(2))
    return _odd(value, tirx.Select(size <= _of(8), near, _far(size, _I1E_FAR)))


def ndtri(value: Any) -> Any:
    """The inverse of ``ndtr``, the distribution function of the normal distribution."""
    below, one = _double(value), _of(1)
    is_right = below > one - _of(_TAIL)
    tail = tirx.Select(is_right, one - below, below)
    centred = below - _of(0.5)
    square = centred * centred
    middle = centred + centred * (square * ratio(_MIDDLE, square))
    middle = middle * _of(math.sqrt(2 * math.pi))
    root = tirx.sqrt(_of(-2) * tirx.log(tail))
    inverse = one / root
    correction = tirx.Select(root < _of(8), ratio(_NEAR, inverse), ratio(_FAR, inverse))
    outer = root - tirx.log(root) / root - inverse * correction
    outer = tirx.Select(is_right, outer, -outer)
    found = tirx.Select(tail > _of(_TAIL), middle, outer)
    found = tirx.Select(below == _of(0), _of(-math.inf), found)
    found = tirx.Select(below == one, _of(math.inf), found)
    inside = tirx.all(below >= _of(0), below <= one)
    return tirx.Select(inside, found, _of(math.nan))


def erfcx(value: Any) -> Any:
    """``exp(x * x) * erfc(x)``."""
    at = _double(value)
    inverse = _of(1) / at
    far = inverse * _of(1 / math.sqrt(math.pi)) * polynomial(_ERFCX, inverse * inverse)
    return tirx.Select(at > _of(_ERFCX_FROM), far, tirx.exp(at * at) * library("erfc", at))


def _scaled(size: Any, near: Sequence[float], far: Sequence[float]) -> Any:
    close = _series(near, size / _of(2) - _of(2))
    return tirx.Select(size <= _of(8), close, _far(size, far))


def _far(size: Any, series: Sequence[float]) -> Any:
    return _series(series, _of(32) / size - _of(2)) / tirx.sqrt(size)


def _odd(value: Any, of_size: Any) -> Any:
    """An odd function, of the function of sizes."""
    return tirx.Select(value < number_like(0, value), -of_size, of_size)


def _series(coefficients: Sequence[float], twice: Any) -> Any:
    """A Chebyshev series, given twice its argument. As a polynomial its terms do not branch."""
    ascending = np.array(coefficients[::-1])
    ascending[0] /= 2
    powers = np.polynomial.chebyshev.cheb2poly(ascending)
    return polynomial([float(each) for each in powers[::-1]], twice / _of(2))


def _double(value: Any) -> Any:
    return value.astype(_DOUBLE)


def _of(number: float) -> Any:
    return tirx.const(number, _DOUBLE)
