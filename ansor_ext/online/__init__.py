"""Online rescaling: sums that are computed along with the maximum that their terms refer to."""
