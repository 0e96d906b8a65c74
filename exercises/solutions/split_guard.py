"""Round up; the guard compares the index with the extent."""


def split(extent, factor):
    return -(-extent // factor), extent % factor != 0


def inside(outer, inner, extent, factor):
    return outer * factor + inner < extent
