"""Chapter 11: an accelerator, VTA."""

from . import Mistake, Mistakes

FREE, WRITTEN = (
    f"        if turn > 0:\n            queue.dep_pop({modules})\n" for modules in ("compute, load", "store, compute")
)
TELL = "        if turn < turns - 1:\n            queue.dep_push(compute, load)\n"
MISTAKES = {
    "token_order": Mistakes(
        "load may overwrite a vector only",
        (
            Mistake(FREE, "", "load may overwrite a vector only"),
            Mistake(WRITTEN, "", "compute may clear the sums only"),
            Mistake(FREE, "        queue.dep_pop(compute, load)\n", "who gives the first one?"),
            Mistake("queue.dep_pop(compute, load)", "queue.dep_pop(store, load)", "no tokens pass"),
        ),
        ((TELL, "        queue.dep_push(compute, load)\n"),),
    ),
    "hide_the_loads": Mistakes(
        "with one virtual thread nothing overlaps",
        (
            Mistake('"oc_nthread": 2', '"oc_nthread": 4', "must divide the 2 tiles"),
            Mistake('"tile_co": 2', '"tile_co": 4', "must divide the 1 tiles"),
            Mistake('"tile_ci": 1', '"tile_ci": 4', "no program"),
            Mistake('"tile_h": 14', '"tile_h": 1', "no program"),
            Mistake('"tile_w": 14', '"tile_w": 7', "cycles, 49,500 are wanted"),
            Mistake(', "h_nthread": 1', "", "must have tile_h"),
        ),
        (('"tile_h": 14', '"tile_h": 7'),),
    ),
}  # fmt: skip
