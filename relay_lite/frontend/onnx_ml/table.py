"""The converters of `ai.onnx.ml`, by operator."""

from __future__ import annotations

from collections.abc import Mapping

from ..onnx.node import Converters
from . import encode, linear, prepare, svm, trees

NEWEST = 5
"""The newest version of the domain whose definitions were read."""

_MAPS = "maps are not computed: export with zipmap=False, or ask for the tensor that it reads by `outputs`"
INSTEAD: Mapping[str, str] = {
    "ZipMap": _MAPS,
    "CastMap": "maps are not computed: give its values as a tensor, and make that an input of the model",
    "DictVectorizer": "maps are not computed: give its values as a tensor, and make that an input of the model",
    "CategoryMapper": "strings are not computed: encode them before the model, and ask for outputs of numbers by "
    "`outputs`",
}
"""What to do about operators that are not read."""

CONVERTERS: Converters = {
    **encode.CONVERTERS,
    **linear.CONVERTERS,
    **prepare.CONVERTERS,
    **svm.CONVERTERS,
    **trees.CONVERTERS,
}
