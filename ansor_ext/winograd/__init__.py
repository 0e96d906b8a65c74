"""Convolutions by Winograd's algorithm, their transforms and products in tiles of one program."""
