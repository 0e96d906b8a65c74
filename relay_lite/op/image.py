"""The operators of images, by TVM's names: `relay.image.resize2d(...)`."""

from .resize import resize2d

__all__ = ["resize2d"]
