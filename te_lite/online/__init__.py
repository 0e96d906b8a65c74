"""Online rescaling: sums that run along with the maximum that their terms refer to.

Law: derives operations from operations; the steps, loops and statements for them are made above.

In reading order:

    files    online, carried
"""
