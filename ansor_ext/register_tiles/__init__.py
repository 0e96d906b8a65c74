"""Large products and convolutions on a GPU in tiles that are decided already, as those of kernels written by hand."""
