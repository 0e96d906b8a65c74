"""Windows of pools and depthwise convolutions on CPUs, with their terms written out."""
