"""The operators of images, by TVM's names: `relay.image.resize2d(...)`."""

from .op.image import resize2d

__all__ = ["resize2d"]
