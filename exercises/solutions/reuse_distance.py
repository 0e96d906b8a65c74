"""Of the loops that bring an element back the innermost one is nearest, and what is inside of it lies in between."""


def reuse(access, nest, moves, total):
    loops = [j for j, extent in enumerate(nest.extents) if extent > 1]
    still = max([j for j in loops if j not in moves and j not in access.nest.fixed], default=-1)
    common = access.shared - 1 if access.others else -1
    if still < 0 and common < 0:
        return {"reuse_none": 1.0, "reuse_ct": 0.0}
    if common > still:
        kind, count, level = "serial", access.others, common + 1
    else:
        kind, count, level = "loop", nest.extents[still], still + 1
    distance = {"reuse_dis_iter": nest.inside[level], "reuse_dis_bytes": total[level]}
    return {f"reuse_{kind}": 1.0, "reuse_ct": count, **distance}
